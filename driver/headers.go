package driver

import (
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
)

// headersPackage names the package with the build headers of a kernel, as the distribution calls it.
func headersPackage(os accel.OS, release string) string {
	switch os.ID {
	case "debian", "ubuntu", "linuxmint", "pop", "raspbian", "kali":
		return "linux-headers-" + release
	case "rhel", "centos", "rocky", "almalinux", "ol", "fedora", "amzn", "azurelinux", "mariner":
		if os.ID == "ol" && strings.Contains(release, "uek") {
			return "kernel-uek-devel-" + release
		}
		return "kernel-devel-" + release
	case "sles", "sled", "opensuse-leap", "opensuse-tumbleweed", "opensuse":
		flavour := release[strings.LastIndexByte(release, '-')+1:] // "6.4.0-150600.23-default"
		return "kernel-" + flavour + "-devel"
	case "arch", "archlinux", "manjaro":
		return "linux-headers"
	case "alpine":
		flavour := release[strings.LastIndexByte(release, '-')+1:] // "6.6.52-0-lts"
		return "linux-" + flavour + "-dev"
	}
	return "the build headers of kernel " + release
}

// headers returns the directory of the build headers of the running kernel.
func (d *Driver) headers(facts accel.Facts) (string, *accel.Problem) {
	for _, dir := range []string{facts.Kernel.Headers, path.Join("/lib/modules", facts.Kernel.Release, "build")} {
		if dir != "" && d.h.Exists(path.Join(dir, "Makefile")) {
			return dir, nil
		}
	}
	return "", accel.Problemf(accel.HeadersMissing, "the headers of kernel %q are not installed: install package %q", facts.Kernel.Release, headersPackage(facts.OS, facts.Kernel.Release))
}

// compiler checks that the programs of a build are there and returns the path of make and the arguments that the
// kernel's own compiler asks of it.
func (d *Driver) compiler(facts accel.Facts, headers string) (program string, arguments []string, problem *accel.Problem) {
	needs := []string{"make", "gcc", "ld"}
	if config, err := d.h.ReadFile(path.Join(headers, ".config")); err == nil && strings.Contains(string(config), "\nCONFIG_CC_IS_CLANG=y\n") {
		needs, arguments = []string{"make", "clang", "ld.lld"}, []string{"LLVM=1"}
	}
	for _, program := range needs {
		if _, err := d.h.LookPath(program); err != nil {
			return "", nil, accel.Problemf(accel.CompilerMissing, "program %q is not installed: install package %q", program, programPackage(facts.OS, program))
		}
	}
	program, err := d.h.LookPath(needs[0])
	if err != nil {
		return "", nil, problemOf(err, "cannot find make")
	}
	return program, arguments, nil
}

func programPackage(os accel.OS, program string) string {
	switch {
	case program == "ld":
		return "binutils"
	case program == "ld.lld":
		return "lld"
	case program == "gcc" && os.ID == "alpine":
		return "build-base"
	}
	return program
}
