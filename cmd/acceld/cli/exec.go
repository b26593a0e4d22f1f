package cli

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
)

func execCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "exec KIND -- PROGRAM [ARGUMENT]...", Short: "Run a program of a driver's user space on the host",
		Long: `exec runs a program that belongs to the driver of a kind, such as a vendor's tool that lists devices, with the libraries
of the same driver. The program is the one that containers are given. It comes from the driver's user space, of which
nothing is installed on the host, or, for a kind without one, from the host. exec becomes the program, so that its exit
code is the program's.`,
		Args: takes(2, many, "name a kind and, after --, a program of its driver"),
		RunE: c.opened(func(p *parts, args []string) error {
			kinds, err := p.chosen(args[:1])
			if err != nil {
				return err
			}
			if kinds[0].Driver.UserSpace == nil {
				return failed(execOfHost(p, kinds[0], args[1], args[2:]))
			}
			return failed(execProgram(p, args[0], args[1], args[2:]))
		}),
	}
}

// execOfHost becomes a program that the host has for a kind whose driver has no user space of its own.
func execOfHost(p *parts, def *accel.Definition, name string, args []string) *accel.Problem {
	found := map[string]string{}
	for _, group := range def.Container.Programs {
		for _, name := range group.Names {
			if program, err := p.Host.Programs().LookPath(name); err == nil {
				found[name] = program
			}
		}
	}
	program, ok := found[name]
	if !ok {
		return accel.Problemf(accel.UserSpaceMissing,
			"the driver of %q has no user space of its own, and the host has no program %q of it; it has: %s", def.Kind, name,
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(found)), ", "), "none"))
	}
	return accel.ProblemOf(p.Host.Programs().Exec(program, args, nil), "cannot run %q", program)
}

// execProgram becomes a program of the user space that serves a kind.
func execProgram(p *parts, kind, name string, args []string) *accel.Problem {
	root := accel.UserSpaceRoot(kind)
	names, err := p.Host.Names(path.Join(root, accel.UserSpacePrograms))
	if !p.Host.Exists(root) {
		return accel.Problemf(accel.UserSpaceMissing, "no user space of %q serves", kind)
	}
	program := path.Join(root, accel.UserSpacePrograms, path.Base(name))
	if err != nil || path.Base(name) != name || !p.Host.Exists(program) {
		return accel.Problemf(accel.UserSpaceMissing, "the user space of %q has no program %q; it has: %s", kind, name,
			strings.Join(names, ", "))
	}
	err = p.Host.Programs().Exec(program, args, []string{
		"LD_LIBRARY_PATH=" + path.Join(root, accel.UserSpaceLibraries),
	})
	return accel.ProblemOf(err, "cannot run %q", program)
}
