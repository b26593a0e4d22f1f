package kinds

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/packages"
	"github.com/acceld/acceld/driver/template"
)

// TestDistributions fills what the definition of the GPUs asks of the repositories of three distributions, for their
// kernels: a package that is named in another way than the repository has it would never be found.
func TestDistributions(t *testing.T) {
	def := definitions(t)["nvidia-gpu"]
	wish := accel.KindConfig{}
	wish.Driver.Version = "580.126.20"
	wish.Driver.Sources = []accel.Source{{Type: accel.SourceDistribution}}
	wish.Driver.UserSpace = &accel.UserSpace{}
	def, misfit := wish.Apply(def)
	if misfit != "" {
		t.Fatal(misfit)
	}
	for name, c := range map[string]struct {
		os           accel.OS
		kernel, arch string
		sources      int
		needs, space string
	}{
		"Debian": {
			accel.OS{ID: "debian", VersionID: "12"},
			"6.1.0-47-amd64", "x86_64", 2,
			"deb amd64: linux-headers-6.1.0-47-amd64 linux-headers-6.1.0-47-common linux-kbuild-6.1; " +
				"deb amd64: nvidia-open-kernel-dkms=580.126.20 firmware-nvidia-gsp=580.126.20",
			"deb amd64: libcuda1=580.126.20 libnvidia-cfg1=580.126.20 libnvidia-ml1=580.126.20 " +
				"libnvidia-nvvm4=580.126.20 libnvidia-ptxjitcompiler1=580.126.20 nvidia-opencl-icd=580.126.20 " +
				"nvidia-smi=580.126.20",
		},
		"Ubuntu": {
			accel.OS{ID: "ubuntu", VersionID: "24.04"},
			"6.8.0-60-generic", "x86_64", 2,
			"deb amd64: linux-headers-6.8.0-60-generic linux-headers-6.8.0-60; deb amd64: " +
				"nvidia-kernel-source-580-open=580.126.20 nvidia-firmware-580-580.126.20",
			"deb amd64: libnvidia-cfg1-580=580.126.20 libnvidia-compute-580=580.126.20 " +
				"nvidia-compute-utils-580=580.126.20 nvidia-utils-580=580.126.20 nvidia-fabricmanager-580=580.126.20?",
		},
		"a relative of RHEL": {
			accel.OS{ID: "rocky", VersionID: "9.6"},
			"5.14.0-570.39.1.el9_6.aarch64", "aarch64", 3,
			"rpm aarch64: kernel-devel=5.14.0-570.39.1.el9_6; " +
				"rpm aarch64: kmod-nvidia-open-dkms=580.126.20 nvidia-kmod-common=580.126.20",
			"rpm aarch64: nvidia-driver-cuda=580.126.20 nvidia-driver-cuda-libs=580.126.20 libnvidia-cfg=580.126.20? " +
				"libnvidia-gpucomp=580.126.20? libnvidia-ml=580.126.20? nvidia-driver-common=580.126.20? " +
				"nvidia-persistenced=580.126.20? nvidia-fabric-manager=580.126.20? nvidia-fabricmanager=580.126.20?",
		},
		"SUSE": {
			accel.OS{ID: "sles", VersionID: "15.7"},
			"6.4.0-150700.53.11-default", "x86_64", 1, "",
			"rpm x86_64: nvidia-compute-G06=580.126.20 nvidia-compute-utils-G06=580.126.20 libnvidia-cfg=580.126.20? " +
				"libnvidia-gpucomp=580.126.20? libnvidia-ml=580.126.20? nvidia-persistenced=580.126.20? " +
				"nvidia-fabric-manager=580.126.20? nvidia-fabricmanager=580.126.20?",
		},
	} {
		facts := accel.Facts{OS: c.os, Kernel: accel.Kernel{Release: c.kernel, Arch: c.arch}}
		here := def.On(facts.OS.Major())
		fill := func(set accel.PackageSet) string {
			set, problem := template.Packages(here, facts, "packages", set)
			if problem != nil {
				t.Errorf("%s: %v", name, problem)
			}
			r := packages.Of(set, c.arch)
			text := string(r.Repository.Format) + " " + r.Repository.Architecture + ":"
			for _, p := range r.Packages {
				text += " " + p.Name
				if p.Version != "" {
					text += "=" + p.Version
				}
				if p.Optional {
					text += "?"
				}
			}
			return text
		}
		if len(here.Driver.Sources) != c.sources {
			t.Errorf("%s: %d sources of modules", name, len(here.Driver.Sources))
		}
		var needs []string
		for _, set := range here.Driver.Sources[0].Needs {
			needs = append(needs, fill(set))
		}
		if diff := cmp.Diff(c.needs, strings.Join(needs, "; ")); diff != "" {
			t.Errorf("%s: needs (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(c.space, fill(here.UserSpaceSources()[0].PackageSet())); diff != "" {
			t.Errorf("%s: user space (-want +got)\n%s", name, diff)
		}
	}
}

// TestRelatives: what the definition knows of RHEL and SUSE holds for the distributions that have the same packages.
func TestRelatives(t *testing.T) {
	def := definitions(t)["nvidia-gpu"]
	known := map[string]bool{}
	for _, d := range def.Driver.Distributions {
		for _, os := range d.OS {
			known[os] = true
		}
	}
	for _, os := range []accel.OS{
		{ID: "rhel", VersionID: "8.10"},
		{ID: "rhel", VersionID: "10.1"},
		{ID: "almalinux", VersionID: "9.6"},
		{ID: "centos", VersionID: "10"},
		{ID: "ol", VersionID: "9.6"},
		{ID: "rhcos", VersionID: "4.19", RHEL: "9.6"},
		{ID: "opensuse-leap", VersionID: "15.6"},
		{ID: "opensuse-leap", VersionID: "16.0"},
		{ID: "sles", VersionID: "16.0"},
	} {
		if !known[os.Major()] {
			t.Errorf("%s is not known", os.Major())
		}
	}
}
