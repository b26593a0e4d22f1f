package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime"
)

// purge is one purge of a host.
type purge struct {
	*parts
	dry, keep bool
	runtime   *runtime.Runtime
	outcomes  []ledger.Outcome
}

// purgeReport is what -o json prints.
type purgeReport struct {
	DryRun   bool             `json:"dryRun"`
	Outcomes []ledger.Outcome `json:"outcomes"`
	// Left is how many of them are not as before acceld.
	Left int `json:"left"`
}

func purgeCommand(c *common) *cobra.Command {
	var format outputFormat
	var dry, keep, stay bool
	cmd := &cobra.Command{
		Use: "purge", Short: "Take back everything that acceld changed on this host", Args: noArgs,
		Long: `purge takes back what acceld changed: containers are given no device any more, the files of container runtimes are again
what they were, to the byte and with their mode, owner and time, the modules that acceld loaded are unloaded, and what acceld
keeps for itself goes. Files that somebody else changed since, and drivers in use, are left and named. It can be repeated at
any time, and finishes one that was interrupted. The agent must not run.

The programs, the units and /etc/acceld belong to the package, or to whoever wrote them, and stay. The exit code is 0 when
nothing was left.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			r, err := p.runtimeFor(runtimeFlags{})
			if err != nil {
				return err
			}
			g := &purge{parts: p, dry: dry, keep: keep, runtime: r}
			problem = g.run(cmd.Context())
			if err := g.print(cmd.OutOrStdout(), format); err != nil {
				return err
			}
			if problem != nil {
				return failed(problem)
			}
			if g.left() > 0 {
				return exit{exitFailed, nil}
			}
			if stay {
				<-cmd.Context().Done()
			}
			return nil
		},
	}
	format.flag(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, change nothing")
	cmd.Flags().BoolVar(&keep, "keep-drivers", false, "leave the kernel modules loaded")
	cmd.Flags().BoolVar(&stay, "stay", false, "where nothing was left, wait for a signal rather than end: for a pod that would be started again")
	return cmd
}

// run does everything in an order in which each step may be the last one: first no new container gets a device, then the
// drivers go, then what is left of files, and the record of it all at the end.
func (g *purge) run(ctx context.Context) *accel.Problem {
	live := g.host.Live()
	if live && !g.dry && os.Geteuid() != 0 {
		return accel.Problemf(accel.PermissionDenied, "cannot purge as user %d: it takes root", os.Geteuid())
	}
	if !g.dry && (live || g.host.Exists(ledger.RunDir)) {
		release, problem := lock.Agent(g.host)
		if problem != nil {
			return g.stopFirst(problem)
		}
		defer release()
	}
	ofKernel := func(p string) bool { return hasDir(p, "/sys") || hasDir(p, "/proc") }
	if problem := g.files(ctx, func(p string) bool { return !ofKernel(p) && !hasDir(p, "/dev") }); problem != nil {
		return problem
	}
	if live {
		if problem := g.drivers(ctx); problem != nil {
			return problem
		}
	} else if problem := g.forgetKernel(ofKernel); problem != nil {
		return problem
	}
	if problem := g.nodes(); problem != nil {
		return problem
	}
	return g.rest()
}

func hasDir(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// undo takes back what the ledger has.
func (g *purge) undo(o ledger.UndoOptions) *accel.Problem {
	o.DryRun = g.dry
	out, err := g.ledger.Undo(o)
	g.outcomes = append(g.outcomes, out...)
	if err != nil {
		return problemOf(err)
	}
	return nil
}

// files takes back the files, and lets a running container runtime read its own again.
func (g *purge) files(ctx context.Context, only func(string) bool) *accel.Problem {
	if g.dry {
		return g.undo(ledger.UndoOptions{Only: only})
	}
	coming, err := g.ledger.Undo(ledger.UndoOptions{DryRun: true, Only: only})
	if err != nil {
		return problemOf(err)
	}
	var paths []string
	for _, o := range coming {
		if o.Action == ledger.Restored || o.Action == ledger.Removed {
			paths = append(paths, o.Path)
		}
	}
	if problem := g.runtime.BeforePurge(paths); problem != nil {
		return problem
	}
	if problem := g.undo(ledger.UndoOptions{Only: only}); problem != nil {
		return problem
	}
	if p := g.runtime.AfterPurge(ctx); p != nil {
		g.outcomes = append(g.outcomes, ledger.Outcome{Path: "container runtime", Action: ledger.Left, Reason: p.Reason, Detail: p.Message})
	}
	return nil
}

// problemOf gives an error of the ledger its reason.
func problemOf(err error) *accel.Problem {
	var p *accel.Problem
	if errors.As(err, &p) {
		return p
	}
	return accel.Problemf(accel.ReasonForError(err, accel.InternalError), "%v", err)
}

// drivers takes back what was done to the running kernel.
func (g *purge) drivers(ctx context.Context) *accel.Problem {
	facts := detect.Detect(g.host, detect.Options{})
	kinds := map[*accel.Definition][]accel.Accelerator{}
	for _, def := range g.defs {
		if accs := g.accelerators(def, facts); len(accs) > 0 {
			kinds[def] = accs
		}
	}
	out, problem := g.driver(nil).Purge(ctx, driver.PurgeOptions{DryRun: g.dry, KeepDrivers: g.keep, Kinds: kinds})
	g.outcomes = append(g.outcomes, out...)
	return problem
}

// nodes takes back what acceld made below /dev, unless a driver that stays needs it.
func (g *purge) nodes() *accel.Problem {
	loaded := func(o ledger.Outcome) bool { return o.Action == ledger.Left && hasDir(o.Path, "/sys/module") }
	if slices.ContainsFunc(g.outcomes, loaded) {
		return nil
	}
	return g.undo(ledger.UndoOptions{Keep: g.keep, Only: func(p string) bool { return hasDir(p, "/dev") }})
}

// forgetKernel drops what was done to a kernel that does not run: of a copy of a machine only files can be taken back.
func (g *purge) forgetKernel(ofKernel func(string) bool) *accel.Problem {
	notes, err := g.ledger.Notes("")
	if err == nil && !g.dry {
		_, err = g.ledger.Undo(ledger.UndoOptions{Keep: true, Only: ofKernel})
		for _, n := range notes {
			if err == nil {
				err = g.ledger.Forget(n.Kind, n.Name)
			}
		}
	}
	if err != nil {
		return problemOf(err)
	}
	return nil
}

// rest removes what is acceld's by its own content, and what acceld keeps for itself.
func (g *purge) rest() *accel.Problem {
	found, problem := g.runtime.Remnants(g.dry)
	for _, name := range found {
		if !hasDir(name, path.Clean(g.config.StateDir)) {
			g.outcomes = append(g.outcomes, ledger.Outcome{Path: name, Action: ledger.Removed, Detail: "not on record, but acceld's by its content"})
		}
	}
	if problem != nil {
		return problem
	}
	if problem := g.sockets(); problem != nil {
		return problem
	}
	if g.dry && g.left() > 0 {
		return nil
	}
	out, err := g.ledger.Discard(g.dry)
	g.outcomes = append(g.outcomes, out...)
	if err != nil {
		return problemOf(err)
	}
	if rest, err := g.ledger.Remaining(); err == nil && rest > 0 && !g.dry {
		g.outcomes = append(g.outcomes, ledger.Outcome{
			Path: path.Join(g.config.StateDir, "ledger"), Action: ledger.Kept,
			Detail: "the record of what was left, and what was there before: the next purge goes on from it",
		})
	}
	return nil
}

// sockets removes those that a killed agent left in the kubelet's directory: no agent runs now.
func (g *purge) sockets() *accel.Problem {
	for _, name := range g.host.Glob("/var/lib/kubelet/device-plugins", "acceld-*-????????.sock") {
		if st, err := g.host.Stat(name); err != nil || st.Mode().Type() != fs.ModeSocket {
			continue
		}
		if !g.dry {
			if err := g.host.Remove(name); err != nil {
				return problemOf(err)
			}
		}
		g.outcomes = append(g.outcomes, ledger.Outcome{Path: name, Action: ledger.Removed})
	}
	return nil
}

// stopFirst says how the agent that runs is stopped.
func (g *purge) stopFirst(p *accel.Problem) *accel.Problem {
	if p.Reason != accel.AlreadyRunning {
		return p
	}
	p.Message += "; stop it first: `systemctl disable --now acceld.service acceld.socket acceld-early.service`, or delete the DaemonSet (`kubectl -n acceld-system delete daemonset acceld`)"
	return p
}

func (g *purge) left() int {
	n := 0
	for _, o := range g.outcomes {
		if o.Action == ledger.Left {
			n++
		}
	}
	return n
}

// print lists what was done for people, or all of it as JSON.
func (g *purge) print(out io.Writer, format outputFormat) error {
	if format.json() {
		return writeJSON(out, purgeReport{g.dry, append([]ledger.Outcome{}, g.outcomes...), g.left()})
	}
	i := ink(colourful(out))
	var b strings.Builder
	width := 0
	for _, o := range g.outcomes {
		width = max(width, len(o.Path))
	}
	done := 0
	for _, o := range g.outcomes {
		paint := i.good
		switch o.Action {
		case ledger.Settled:
			continue
		case ledger.Left:
			paint = i.bad
		}
		done++
		line := fmt.Sprintf("%s  %-*s  %s", paint(fmt.Sprintf("%-8s", o.Action)), width, plain(o.Path), plain(o.Detail))
		if o.Reason != "" {
			line += fmt.Sprintf(" (%s)", o.Reason)
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	switch {
	case g.left() > 0:
		fmt.Fprintf(&b, "%d left: run purge again when what is named is settled\n", g.left())
	case done == 0:
		fmt.Fprintln(&b, "nothing of acceld is on this host but its package")
	case g.dry:
		fmt.Fprintln(&b, "nothing was changed: this is what a purge would do")
	default:
		fmt.Fprintln(&b, "the programs, the units and /etc/acceld are the package's: remove them with the package manager")
	}
	return printPage(out, b.String())
}
