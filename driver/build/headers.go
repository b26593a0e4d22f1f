package build

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
)

// headersPackage is the distribution's name for the package with a kernel's build headers.
func headersPackage(os accel.OS, release string) string {
	flavour := release[strings.LastIndexByte(release, '-')+1:] // "6.4.0-150600.23-default", "6.6.52-0-lts"
	switch os.ID {
	case "debian", "ubuntu", "linuxmint", "pop", "raspbian", "kali":
		return "linux-headers-" + release
	case "rhel", "centos", "rocky", "almalinux", "ol", "fedora", "amzn", "azurelinux", "mariner":
		if os.ID == "ol" && strings.Contains(release, "uek") {
			return "kernel-uek-devel-" + release
		}
		return "kernel-devel-" + release
	case "sles", "sled", "opensuse-leap", "opensuse-tumbleweed", "opensuse":
		return "kernel-" + flavour + "-devel"
	case "arch", "archlinux", "manjaro":
		return "linux-headers"
	case "alpine":
		return "linux-" + flavour + "-dev"
	}
	return "the build headers of kernel " + release
}

// headerDirs are the directories in which distributions install a kernel's build headers.
func headerDirs(k accel.Kernel) []string {
	r := k.Release
	dirs := []string{
		k.Headers, "/lib/modules/" + r + "/build", "/usr/lib/modules/" + r + "/build",
		"/usr/src/linux-headers-" + r, // Debian, Ubuntu
		"/usr/src/kernels/" + r,       // Fedora, RHEL
	}
	if i := strings.LastIndexByte(r, '-'); i > 0 { // SUSE: linux-<version>-obj/<architecture>/<flavour>
		dirs = append(dirs, path.Join("/usr/src/linux-"+r[:i]+"-obj", k.Arch, r[i+1:]))
	}
	return dirs
}

// headers returns the directory of the kernel's build headers.
func (b *Builder) headers(facts accel.Facts) (string, *accel.Problem) {
	if problem := b.toolkit(facts.Kernel.Release); problem != nil {
		return "", problem
	}
	install := headersPackage(facts.OS, facts.Kernel.Release)
	for _, dir := range headerDirs(facts.Kernel) {
		if dir == "" || !b.h.Exists(path.Join(dir, "Makefile")) {
			continue
		}
		if release := b.headersRelease(dir); release != "" && release != facts.Kernel.Release {
			return "", accel.Problemf(accel.KernelMismatch,
				"the headers in %q are of kernel %q, wanted is %q: install package %q", dir, release,
				facts.Kernel.Release, install)
		}
		if part := b.incomplete(dir); part != "" {
			return "", accel.Problemf(accel.HeadersMissing,
				"the headers in %q are not whole, %q is not there: install package %q", dir, part, install)
		}
		return dir, nil
	}
	return "", accel.Problemf(accel.HeadersMissing, "the headers of kernel %q are not installed: install package %q",
		facts.Kernel.Release, install)
}

// headersRelease is the kernel release of the headers, which modules get in their vermagic; empty if unknown. It
// ignores include/config/kernel.release, which differs on Debian.
func (b *Builder) headersRelease(dir string) string {
	text, err := b.h.ReadFile(path.Join(dir, "include/generated/utsrelease.h"))
	if err != nil {
		return ""
	}
	if m := regexp.MustCompile(`UTS_RELEASE "([^"]+)"`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// incomplete names a missing file that the Makefile of the headers includes from another package (Debian's -common
// and kbuild, SUSE's kernel-devel); empty if there is none.
func (b *Builder) incomplete(dir string) string {
	for _, name := range b.included(dir) {
		if !b.h.Exists(name) {
			return name
		}
	}
	return ""
}

// included returns the files of other packages that the Makefile of the headers includes.
func (b *Builder) included(dir string) (out []string) {
	text, err := b.h.ReadFile(path.Join(dir, "Makefile"))
	const longest = 4096 // a longer Makefile is that of a whole tree, which includes only its own files
	if err != nil || len(text) > longest {
		return nil
	}
	for _, m := range regexp.MustCompile(`(?m)^include[ \t]+(/[^\s$]+)[ \t]*$`).FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// toolkitFile is in the root of an image with the headers and compiler for one kernel of an image-based distribution.
const toolkitFile = "/etc/driver-toolkit-release.json"

// toolkit refuses the root of a toolkit image for another kernel.
func (b *Builder) toolkit(release string) *accel.Problem {
	var t struct {
		Kernel   string `json:"KERNEL_VERSION"`
		RealTime string `json:"RT_KERNEL_VERSION"`
	}
	text, err := b.h.ReadFile(toolkitFile)
	known := err == nil && json.Unmarshal(text, &t) == nil && t.Kernel != ""
	if !known || release == t.Kernel || release == t.RealTime {
		return nil
	}
	return accel.Problemf(accel.KernelMismatch,
		"the toolkit (%s) is for kernel %q, wanted is %q: use the toolkit image of the same release of the distribution",
		toolkitFile, t.Kernel, release)
}
