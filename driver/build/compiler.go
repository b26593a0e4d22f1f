package build

import (
	"context"
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/host"
)

// tools are the programs that builds run: those of the machine, or of a builder image.
type tools struct {
	h     *host.Host // the file system that they are in
	image string     // the name of the image; empty for the machine's
	// output runs one of them and returns the beginning of what it says.
	output func(ctx context.Context, program string, args ...string) (string, error)
}

// machineTools are the programs of a machine.
func machineTools(h *host.Host) tools {
	return tools{h: h, output: func(ctx context.Context, program string, args ...string) (string, error) {
		out, err := h.Programs().Command(ctx, program, args...).Output()
		return string(out), err
	}}
}

// lacks says that a program is missing, which the package of the machine's distribution has.
func (t tools) lacks(program, from string) *accel.Problem {
	if t.image != "" {
		return accel.Problemf(accel.CompilerMissing, "the builder image %q has no program %q: name one that has", t.image,
			program)
	}
	return accel.Problemf(accel.CompilerMissing,
		"program %q is not installed: install package %q, or set image of the source to build in an image that has it",
		program, from)
}

// compiler checks that the programs for a build are installed. It returns the path of make and the arguments that the
// kernel's compiler requires.
func (t tools) compiler(ctx context.Context, facts accel.Facts, config string, other bool) (program string,
	arguments []string, problem *accel.Problem,
) {
	needs := []string{"make", "gcc", "ld"}
	clang := kmod.ConfigValue(config, "CONFIG_CC_IS_CLANG") == "y"
	if clang {
		needs, arguments = []string{"make", "clang", "ld.lld"}, []string{"LLVM=1"}
	}
	cc, problem := t.matchingCompiler(ctx, facts, needs[1], config, other)
	if problem != nil {
		return "", nil, problem
	}
	if cc != needs[1] {
		arguments = append(arguments, "CC="+cc)
		needs[1] = cc
	}
	for i, name := range needs {
		file, err := t.find(name)
		if err != nil {
			return "", nil, t.lacks(name, programPackage(facts.OS, name))
		}
		if i == 0 {
			program = file
		}
	}
	return program, arguments, nil
}

// find returns the path of a program, which may be an absolute one already.
func (t tools) find(name string) (string, error) {
	if path.IsAbs(name) {
		_, err := t.h.Stat(name)
		return name, err
	}
	return t.h.Programs().LookPath(name)
}

// matchingCompiler returns the installed compiler with the kernel's major version. With another one, kbuild warns and
// continues, but the layout of data may differ, and a kernel with compiler plugins cannot be built for at all.
func (t tools) matchingCompiler(ctx context.Context, facts accel.Facts, name, config string, other bool) (string,
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
		version := t.compilerVersion(ctx, candidate)
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
	if t.image != "" {
		return "", accel.Problemf(accel.CompilerMismatch,
			"kernel %q was built with %q, %s in the builder image %q is %s; %s: name an image with %s %s", facts.Kernel.Release,
			text, name, t.image, has, why, name, want)
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
func (t tools) compilerVersion(ctx context.Context, name string) string {
	program, err := t.find(name)
	if err != nil {
		return ""
	}
	args := []string{"-dumpfullversion", "-dumpversion"} // as in the kernel's scripts/cc-version.sh
	if strings.Contains(path.Base(name), "clang") {
		args = args[1:]
	}
	out, err := t.output(ctx, program, args...)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
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
