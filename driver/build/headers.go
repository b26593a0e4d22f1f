package build

import (
	"context"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
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
	text, err := b.h.ReadFile(path.Join(dir, "Makefile"))
	const longest = 4096 // a longer Makefile is that of a whole tree, which includes only its own files
	if err != nil || len(text) > longest {
		return ""
	}
	for _, m := range regexp.MustCompile(`(?m)^include[ \t]+(/[^\s$]+)[ \t]*$`).FindAllSubmatch(text, -1) {
		if !b.h.Exists(string(m[1])) {
			return string(m[1])
		}
	}
	return ""
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

// compiler checks that the programs for a build are installed. It returns the path of make and the arguments that the
// kernel's compiler requires.
func (b *Builder) compiler(ctx context.Context, facts accel.Facts, config string, other bool) (program string,
	arguments []string, problem *accel.Problem,
) {
	needs := []string{"make", "gcc", "ld"}
	clang := kmod.ConfigValue(config, "CONFIG_CC_IS_CLANG") == "y"
	if clang {
		needs, arguments = []string{"make", "clang", "ld.lld"}, []string{"LLVM=1"}
	}
	cc, problem := b.matchingCompiler(ctx, facts, needs[1], config, other)
	if problem != nil {
		return "", nil, problem
	}
	if cc != needs[1] {
		arguments = append(arguments, "CC="+cc)
		needs[1] = cc
	}
	for i, name := range needs {
		file, err := b.find(name)
		if err != nil {
			return "", nil, accel.Problemf(accel.CompilerMissing, "program %q is not installed: install package %q",
				name, programPackage(facts.OS, name))
		}
		if i == 0 {
			program = file
		}
	}
	return program, arguments, nil
}

// find returns the path of a program, which may be an absolute one already.
func (b *Builder) find(name string) (string, error) {
	if path.IsAbs(name) {
		_, err := b.h.Stat(name)
		return name, err
	}
	return b.h.Programs().LookPath(name)
}

// matchingCompiler returns the installed compiler with the kernel's major version. With another one, kbuild warns and
// continues, but the layout of data may differ, and a kernel with compiler plugins cannot be built for at all.
func (b *Builder) matchingCompiler(ctx context.Context, facts accel.Facts, name, config string, other bool) (string,
	*accel.Problem,
) {
	text := kmod.ConfigValue(config, "CONFIG_CC_VERSION_TEXT") // "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"
	want := majorOf(text)
	if want == "" {
		return name, nil
	}
	found := []string{name, name + "-" + want, "/opt/rh/gcc-toolset-" + want + "/root/usr/bin/" + name}
	has := ""
	for _, candidate := range found {
		version := b.compilerVersion(ctx, candidate)
		if major, _, _ := strings.Cut(version, "."); major == want {
			return candidate, nil
		}
		if has == "" {
			has = version
		}
	}
	plugins := kmod.ConfigValue(config, "CONFIG_GCC_PLUGINS") == "y"
	if has == "" || other && !plugins { // the caller reports if there is none at all
		return name, nil
	}
	why := "set anyCompiler for the source to build with another"
	if plugins {
		why = "the kernel has compiler plugins, which need the same"
	}
	return "", accel.Problemf(accel.CompilerMismatch,
		"kernel %q was built with %q, %s here is %s; %s: install package %q", facts.Kernel.Release, text, name, has,
		why, versionedPackage(facts.OS, name, want))
}

// majorOf is the major version in a compiler's version text: of the first version number for clang, of the last for
// others.
func majorOf(text string) string {
	all := regexp.MustCompile(`(?:^|[ )])(\d+)\.\d+(?:\.\d+)?`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	if strings.Contains(text, "clang") {
		return all[0][1]
	}
	return all[len(all)-1][1]
}

// compilerVersion asks a compiler for its version; empty if it is not installed.
func (b *Builder) compilerVersion(ctx context.Context, name string) string {
	program, err := b.find(name)
	if err != nil {
		return ""
	}
	args := []string{"-dumpfullversion", "-dumpversion"} // as in the kernel's scripts/cc-version.sh
	if strings.Contains(path.Base(name), "clang") {
		args = args[1:]
	}
	out, err := b.h.Programs().Command(ctx, program, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func versionedPackage(os accel.OS, name, major string) string {
	switch os.ID {
	case "rhel", "centos", "rocky", "almalinux", "ol":
		if name == "gcc" {
			return "gcc-toolset-" + major
		}
		return name
	case "sles", "sled", "opensuse-leap", "opensuse-tumbleweed", "opensuse":
		return name + major
	}
	return name + "-" + major
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
