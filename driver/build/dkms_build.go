package build

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// readDKMS reads and parses the dkms.conf of a source tree.
func (b *Builder) readDKMS(tree string) (*dkmsConf, *accel.Problem) {
	name := path.Join(tree, dkmsFile)
	data, err := b.h.ReadFile(name)
	if err != nil {
		return nil, accel.ProblemOr(err, accel.SourceMissing, "cannot read %q", name)
	}
	return parseDKMS(name, data)
}

// dkmsFacts sets the other variables that DKMS provides to the file and its commands (dkms(8)).
func (j *job) dkmsFacts(jobs int) {
	maps.Copy(j.dkms.facts, map[string]string{
		"kernelver": j.facts.Kernel.Release, "kernel_source_dir": j.headers, "arch": j.facts.Kernel.Arch,
		"dkms_tree": path.Join(j.Dir, "dkms"), "source_tree": path.Dir(j.source.Path),
		"parallel_jobs": strconv.Itoa(jobs),
	})
}

// work is where DKMS puts the copy of the source within the build directory: some files refer to that path.
func (c *dkmsConf) work() string {
	return path.Join("dkms", c.facts["module"], c.facts["module_version"], "build")
}

// exclusive says why the source is not for this kernel, nil if it is.
func (c *dkmsConf) exclusive(k accel.Kernel, config string) *accel.Problem {
	for _, directive := range []string{
		"BUILD_EXCLUSIVE_KERNEL", "BUILD_EXCLUSIVE_KERNEL_MIN", "BUILD_EXCLUSIVE_KERNEL_MAX", "BUILD_EXCLUSIVE_ARCH",
		"BUILD_EXCLUSIVE_CONFIG",
	} {
		want, problem := c.value(directive)
		if problem != nil {
			return problem
		}
		if want == "" {
			continue
		}
		is, line := k.Release, c.texts[directive].line
		var fits bool
		var err error
		switch directive {
		case "BUILD_EXCLUSIVE_KERNEL":
			fits, err = matches(want, is)
		case "BUILD_EXCLUSIVE_KERNEL_MIN":
			fits = compareReleases(is, want) >= 0
		case "BUILD_EXCLUSIVE_KERNEL_MAX":
			fits = compareReleases(is, want) <= 0
		case "BUILD_EXCLUSIVE_ARCH":
			is = k.Arch
			fits, err = matches(want, is)
		case "BUILD_EXCLUSIVE_CONFIG":
			is, fits = "its configuration", configured(want, config)
		}
		if err != nil {
			return c.refuse(line, "%s: %v", directive, err)
		}
		if !fits {
			return accel.Problemf(accel.KernelMismatch, "%s:%d: the source is only for %s %q, and kernel %q has %s",
				c.file, line, directive, want, k.Release, is)
		}
	}
	return nil
}

// matches is the shell's [[ text =~ pattern ]].
func matches(pattern, text string) (bool, error) {
	re, err := regexp.CompilePOSIX(pattern)
	if err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

// compareReleases compares the leading numbers of two kernel releases.
func compareReleases(a, b string) int {
	numbers := func(s string) []int {
		var out []int
		for _, n := range strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' }) {
			i, err := strconv.Atoi(n)
			if err != nil {
				break
			}
			out = append(out, i)
		}
		return out
	}
	return slices.Compare(numbers(a), numbers(b))
}

// configured reports whether every "CONFIG_X" in want is on and every "!CONFIG_X" is off.
func configured(want, config string) bool {
	for _, option := range strings.Fields(want) {
		name, off := strings.CutPrefix(option, "!")
		on := strings.Contains("\n"+config, "\n"+name+"=y\n") || strings.Contains("\n"+config, "\n"+name+"=m\n")
		if on == off {
			return false
		}
	}
	return true
}

// dkmsCommands are the commands that DKMS runs for a build: patches, PRE_BUILD, one MAKE and POST_BUILD. MAKE and the
// scripts are shell text of the source, trusted as much as its Makefile. They are passed to the shell unchanged, with
// the variables of DKMS in the environment, and run inside the scope. CLEAN is not run, because the copy is clean.
func (b *Builder) dkmsCommands(j *job) ([]command, *accel.Problem) {
	shell, err := j.tools.find("bash") // the shell that DKMS uses
	if err != nil {
		shell, err = j.tools.find("sh")
	}
	if err != nil {
		return nil, j.tools.lacks("bash", "bash")
	}
	variables, problem := j.dkms.variables()
	if problem != nil {
		return nil, problem
	}
	commands, problem := b.dkmsPatches(j)
	if problem != nil {
		return nil, problem
	}
	run := func(name, text string, makeVariables []string) {
		commands = append(commands, command{
			name: name, path: shell, args: []string{"-c", text},
			env: append(slices.Clone(variables), "MAKEFLAGS="+makeFlags(b.o.Jobs, makeVariables)),
		})
	}
	script := func(directive string) {
		if text := j.dkms.texts[directive].text; text != "" {
			run(directive, "./"+strings.TrimPrefix(text, "./"), j.variables())
		}
	}
	script("PRE_BUILD")
	make, problem := j.dkms.makeText(j.facts.Kernel.Release)
	if problem != nil {
		return nil, problem
	}
	all := j.variables()
	if strings.HasPrefix(make, "make ") { // as DKMS does; sources that do not want this write 'make' (dkms(8))
		all = append(all, "KERNELRELEASE="+j.facts.Kernel.Release)
	}
	run("MAKE", make, all)
	script("POST_BUILD")
	return commands, nil
}

// makeText is the make command for a kernel: the last MAKE whose MAKE_MATCH is empty or matches, or else DKMS's
// default.
func (c *dkmsConf) makeText(release string) (string, *accel.Problem) {
	text := `make -C "$kernel_source_dir" M="$dkms_tree/$module/$module_version/build"`
	for _, i := range c.elements("MAKE") {
		match, problem := c.value(element("MAKE_MATCH", i))
		if problem != nil {
			return "", problem
		}
		if match != "" {
			ok, err := matches(match, release)
			if err != nil {
				return "", c.refuse(c.texts[element("MAKE_MATCH", i)].line, "%v", err)
			}
			if !ok {
				continue
			}
		}
		text = c.texts[element("MAKE", i)].text
	}
	return text, nil
}

// dkmsPatches are the commands that apply the file's patches for this kernel.
func (b *Builder) dkmsPatches(j *job) ([]command, *accel.Problem) {
	var commands []command
	for _, i := range j.dkms.elements("PATCH") {
		match, problem := j.dkms.value(element("PATCH_MATCH", i))
		if problem != nil {
			return nil, problem
		}
		line := j.dkms.texts[element("PATCH", i)].line
		ok, err := matches(match, j.facts.Kernel.Release) // an empty pattern matches
		if err != nil {
			return nil, j.dkms.refuse(line, "%v", err)
		}
		if !ok {
			continue
		}
		file, problem := j.dkms.value(element("PATCH", i))
		if problem != nil {
			return nil, problem
		}
		if file = path.Join("patches", path.Clean("/"+file)); !b.h.Exists(path.Join(j.Work, file)) {
			return nil, j.dkms.refuse(line, "the patch %q is not there", file)
		}
		program, err := j.tools.find("patch")
		if err != nil {
			return nil, j.tools.lacks("patch", "patch")
		}
		commands = append(commands, command{
			name: fmt.Sprintf("PATCH[%d]", i), path: program,
			args: []string{"-p1", "-i", file},
		})
	}
	return commands, nil
}

// module returns where the build leaves a module of the definition; empty if the file does not say.
func (c *dkmsConf) module(name string) (string, *accel.Problem) {
	for _, i := range c.elements("BUILT_MODULE_NAME") {
		var v [3]string
		for n, directive := range []string{"BUILT_MODULE_NAME", "DEST_MODULE_NAME", "BUILT_MODULE_LOCATION"} {
			var problem *accel.Problem
			if v[n], problem = c.value(element(directive, i)); problem != nil {
				return "", problem
			}
		}
		if kmod.Normal(v[0]) == kmod.Normal(name) || v[1] != "" && kmod.Normal(v[1]) == kmod.Normal(name) {
			return path.Clean("/" + path.Join(v[2], v[0]+".ko")), nil
		}
	}
	return "", nil
}
