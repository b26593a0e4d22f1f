package build

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
)

// command is one program of a build.
type command struct {
	name string // for messages
	path string
	args []string
	env  []string
}

// system is the build system of a source: the definition's, else DKMS if there is a dkms.conf, else kbuild.
func (b *Builder) system(s template.BuildSource) accel.BuildSystem {
	if s.System != "" {
		return s.System
	}
	if b.h.Exists(path.Join(s.Path, dkmsFile)) {
		return accel.BuildDKMS
	}
	return accel.BuildKbuild
}

// commands are the programs of a build, in order.
func (b *Builder) commands(j *job) ([]command, *accel.Problem) {
	args := []string{fmt.Sprintf("-j%d", b.o.Jobs)}
	switch j.system {
	case accel.BuildDKMS:
		return b.dkmsCommands(j)
	case accel.BuildKbuild:
		args = append(args, "-C", j.headers, "M="+j.Work)
	}
	args = slices.Concat(args, j.variables(), []string{"modules"})
	return []command{{name: "make", path: j.make, args: args}}, nil
}

// variables are the variables for make: those for the kernel's compiler, those of the definition, and a flag that
// keeps paths out of the result.
func (j *job) variables() []string {
	flags := "-ffile-prefix-map=" + j.Work + "=."
	var rest []string
	for _, a := range slices.Concat(j.extra, j.source.Make) {
		if more, ok := strings.CutPrefix(a, "KCFLAGS="); ok {
			flags += " " + more
			continue
		}
		rest = append(rest, a)
	}
	return append([]string{"KCFLAGS=" + flags}, rest...)
}

// environment is the environment of every step, in addition to its own. Builder and time are fixed, so that equal
// sources produce equal bytes on every host of a fleet (Documentation/kbuild/reproducible-builds.rst,
// reproducible-builds.org).
func (j *job) environment() []string {
	tmp := path.Join(j.Dir, "tmp")
	return []string{
		"TMPDIR=" + tmp, "HOME=" + tmp, "SOURCE_DATE_EPOCH=0", "TZ=UTC",
		"KBUILD_BUILD_USER=acceld", "KBUILD_BUILD_HOST=acceld", "KBUILD_BUILD_TIMESTAMP=1970-01-01 00:00:00 +0000",
	}
}

// makeFlags is a value of MAKEFLAGS that passes jobs and variables to make, and to every make that it starts, as if
// on the command line (GNU make, "Communicating Options to a Sub-make"). Words are separated by blanks, a backslash
// escapes a blank, and a dollar is doubled.
func makeFlags(jobs int, variables []string) string {
	words := []string{fmt.Sprintf("-j%d", jobs), "--"}
	quote := strings.NewReplacer(`\`, `\\`, " ", `\ `, "\t", "\\\t", "$", "$$")
	for _, v := range variables {
		words = append(words, quote.Replace(v))
	}
	return strings.Join(words, " ")
}
