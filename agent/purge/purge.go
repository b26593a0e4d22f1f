// Package purge undoes everything that acceld changed on a host, from the ledger's record of it. It decides what may
// be undone and in which order; it prints nothing.
package purge

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/probe"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/settings"
)

// Options of a purge.
type Options struct {
	// DryRun changes nothing; the outcomes say what a purge would do.
	DryRun bool
	// KeepDrivers leaves the kernel modules loaded.
	KeepDrivers bool
	// Runtime is the container runtime whose files are restored.
	Runtime *runtime.Runtime
}

// purge is one purge of a host.
type purge struct {
	*agent.Setup
	dry, keep bool
	runtime   *runtime.Runtime
	outcomes  []ledger.Outcome
}

// Run purges a host and returns the outcome for each thing, including those before a problem. The agent must not run.
func Run(ctx context.Context, s *agent.Setup, o Options) ([]ledger.Outcome, *accel.Problem) {
	g := &purge{Setup: s, dry: o.DryRun, keep: o.KeepDrivers, runtime: o.Runtime}
	problem := g.run(ctx)
	return g.outcomes, problem
}

// Left returns how many things still differ from their state before acceld.
func Left(outcomes []ledger.Outcome) int {
	n := 0
	for _, o := range outcomes {
		if o.Action == ledger.Left {
			n++
		}
	}
	return n
}

// run purges in an order in which the purge may stop after any step: first no new container gets a device, then
// the settings of devices are restored and the drivers are unloaded, then the remaining files go, and finally the
// record of it all.
func (g *purge) run(ctx context.Context) *accel.Problem {
	live := g.Host.Live()
	if live && !g.dry && os.Geteuid() != 0 {
		return accel.Problemf(accel.PermissionDenied, "cannot purge as user %d: it takes root", os.Geteuid())
	}
	if !g.dry && (live || g.Host.Exists(ledger.RunDir)) {
		release, problem := lock.Agent(g.Host, "")
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
		if problem := g.settings(ctx); problem != nil {
			return problem
		}
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

// undo undoes what the ledger has recorded.
func (g *purge) undo(o ledger.UndoOptions) *accel.Problem {
	o.DryRun = g.dry
	out, err := g.Ledger.Undo(o)
	g.outcomes = append(g.outcomes, out...)
	if err != nil {
		return agent.LedgerProblem(err)
	}
	return nil
}

// files restores or removes the files, and makes a running container runtime read its own files again.
func (g *purge) files(ctx context.Context, only func(string) bool) *accel.Problem {
	if g.dry {
		return g.undo(ledger.UndoOptions{Only: only})
	}
	coming, err := g.Ledger.Undo(ledger.UndoOptions{DryRun: true, Only: only})
	if err != nil {
		return agent.LedgerProblem(err)
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
		g.outcomes = append(g.outcomes, ledger.Outcome{
			Path: "container runtime", Action: ledger.Left, Reason: p.Reason, Detail: p.Message,
		})
	}
	return nil
}

// settings restores what was set on devices before acceld, while their drivers are still bound.
func (g *purge) settings(ctx context.Context) *accel.Problem {
	cleaner := driver.NewCleaner(g.Driver(nil))
	out, problem := settings.Purge(ctx, settings.PurgeOptions{
		Host: g.Host, Ledger: g.Ledger, DryRun: g.dry,
		Start: func(ctx context.Context, kind string) (settings.Program, error) {
			if def := g.Kinds[kind]; def != nil && def.Probe != nil {
				return probe.Start(ctx, g.Host, agent.OwnPrograms(), def)
			}
			return nil, fmt.Errorf("no definition of kind %q names it", kind)
		},
		FunctionUsers: driver.Functions(cleaner).Users,
		Users: func(kind, device string) (names []string) {
			def := g.Kinds[kind]
			if def == nil {
				return nil
			}
			for _, a := range g.Accelerators(def, g.Detect(detect.Options{})) {
				for _, u := range cleaner.Users(def, a) {
					if a.ID == device {
						names = append(names, u.String())
					}
				}
			}
			return names
		},
	})
	g.outcomes = append(g.outcomes, out...)
	return problem
}

// drivers undoes what was done to the running kernel.
func (g *purge) drivers(ctx context.Context) *accel.Problem {
	facts := g.Detect(detect.Options{})
	kinds := map[*accel.Definition][]accel.Accelerator{}
	for _, def := range g.Kinds {
		if accs := g.Accelerators(def, facts); len(accs) > 0 {
			kinds[def] = accs
		}
	}
	out, problem := g.Driver(nil).Purge(ctx, driver.PurgeOptions{DryRun: g.dry, KeepDrivers: g.keep, Kinds: kinds})
	g.outcomes = append(g.outcomes, out...)
	return problem
}

// nodes removes what acceld created below /dev, unless a driver that stays needs it.
func (g *purge) nodes() *accel.Problem {
	loaded := func(o ledger.Outcome) bool { return o.Action == ledger.Left && hasDir(o.Path, "/sys/module") }
	if slices.ContainsFunc(g.outcomes, loaded) {
		return nil
	}
	return g.undo(ledger.UndoOptions{Keep: g.keep, Only: func(p string) bool { return hasDir(p, "/dev") }})
}

// forgetKernel drops the records about a kernel that is not running: in a copy of a machine, only files can be
// restored.
func (g *purge) forgetKernel(ofKernel func(string) bool) *accel.Problem {
	notes, err := g.Ledger.Notes("")
	lasting, unread := g.Ledger.LastingNotes("")
	if err = cmp.Or(err, unread); err == nil && !g.dry {
		_, err = g.Ledger.Undo(ledger.UndoOptions{Keep: true, Only: ofKernel})
		for _, n := range notes {
			err = cmp.Or(err, g.Ledger.Forget(n.Kind, n.Name))
		}
		for _, n := range lasting {
			err = cmp.Or(err, g.Ledger.ForgetLasting(n.Kind, n.Name))
		}
	}
	if err != nil {
		return agent.LedgerProblem(err)
	}
	return nil
}

// rest removes files that are acceld's by their content, and acceld's own state.
func (g *purge) rest() *accel.Problem {
	found, problem := g.runtime.Remnants(g.dry)
	for _, name := range found {
		if !hasDir(name, path.Clean(g.Config.StateDir)) {
			g.outcomes = append(g.outcomes, ledger.Outcome{
				Path: name, Action: ledger.Removed, Detail: "not on record, but acceld's by its content",
			})
		}
	}
	if problem != nil {
		return problem
	}
	if problem := g.sockets(); problem != nil {
		return problem
	}
	if g.dry && Left(g.outcomes) > 0 {
		return nil
	}
	out, err := g.Ledger.Discard(g.dry)
	g.outcomes = append(g.outcomes, out...)
	if err != nil {
		return agent.LedgerProblem(err)
	}
	if rest, err := g.Ledger.Remaining(); err == nil && rest > 0 && !g.dry {
		g.outcomes = append(g.outcomes, ledger.Outcome{
			Path: path.Join(g.Config.StateDir, "ledger"), Action: ledger.Kept,
			Detail: "the record of what was left, and what was there before: the next purge goes on from it",
		})
	}
	return nil
}

// sockets removes the sockets that a killed agent left in the kubelet's directory. No agent runs now.
func (g *purge) sockets() *accel.Problem {
	for _, name := range g.Host.Glob("/var/lib/kubelet/device-plugins", "acceld-*-????????.sock") {
		if st, err := g.Host.Stat(name); err != nil || st.Mode().Type() != fs.ModeSocket {
			continue
		}
		if !g.dry {
			if err := g.Host.Remove(name); err != nil {
				return agent.LedgerProblem(err)
			}
		}
		g.outcomes = append(g.outcomes, ledger.Outcome{Path: name, Action: ledger.Removed})
	}
	return nil
}

// stopFirst adds to the problem how to stop the running agent.
func (g *purge) stopFirst(p *accel.Problem) *accel.Problem {
	if p.Reason != accel.AlreadyRunning {
		return p
	}
	p.Message += "; stop it first: `systemctl disable --now acceld.service acceld.socket acceld-early.service`, " +
		"or delete the DaemonSet (`kubectl -n acceld-system delete daemonset acceld`)"
	return p
}
