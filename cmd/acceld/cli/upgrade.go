package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/store"
)

// upgradeFlags are the options of `acceld driver upgrade`.
type upgradeFlags struct {
	version, holders string
	adopt, dryRun    bool
}

func driverUpgradeCommand(c *common) *cobra.Command {
	var f upgradeFlags
	cmd := &cobra.Command{
		Use: "upgrade KIND", Short: "Replace the driver of a kind with the one that its sources have now",
		Long: `upgrade asks the sources of a kind again. If they have another driver, it prepares that driver and then replaces the
current one. While somebody uses the old driver it changes nothing, unless --holders says to wait for the users or to
evict their pods. If the new driver does not work, acceld rolls back to the old one. --version pins a version until
the configuration names another one than today. A running agent does the work, and continues if you interrupt this
command.`,
		Args: takes(1, 1, "name one kind"),
		RunE: c.opened(func(p *parts, kinds []string) error {
			if err := oneOf("holders", f.holders); err != nil {
				return err
			}
			if _, err := p.chosen(kinds); err != nil {
				return err
			}
			v, d := p.work(false)
			defer v.close()
			return p.upgrade(v, d, kinds[0], f)
		}),
	}
	cmd.Flags().StringVar(&f.version, "version", "", "the version to install; default: the configured one")
	cmd.Flags().StringVar(&f.holders, "holders", "",
		"what to do about users of the old driver: refuse, wait or evict; default: the policy of the kind")
	cmd.Flags().BoolVar(&f.adopt, "adopt", false, "also replace a driver that acceld did not load")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done, and who uses the driver")
	return cmd
}

// upgrade plans, requests and follows an upgrade.
func (p *parts) upgrade(v *view, d *driver.Driver, kind string, f upgradeFlags) error {
	facts := p.facts()
	def, branch, problem := p.newest(d, kind, f, facts)
	if problem != nil {
		return v.failed(problem)
	}
	r := driver.Request{
		Version: f.version, Holders: accel.Holders(f.holders), Adopt: f.adopt, Over: def.Driver.Version,
		Asked: time.Now().UTC().Round(0),
	}
	def = r.Apply(def)
	accs := p.Accelerators(def, facts)
	have, problem := d.Probe(def, facts, accs)
	if have.Upgrade == nil {
		if problem == nil {
			problem = accel.Problemf(accel.DeviceGone, "kind %q has no driver in use that could be replaced", kind)
		}
		return failed(problem)
	}
	printPlan(p.out, def, *have.Upgrade, d.Holders(def, accs))
	if f.dryRun {
		return nil
	}
	if _, err := p.Host.Path(p.Config.Socket); err != nil { // an agent that cannot be asked may be running
		return exit{exitFailed, err}
	}
	if branch != nil {
		if problem := branch.Choose(p.Host, p.Config.StateDir, kind); problem != nil {
			return failed(problem)
		}
	}
	if problem := driver.Ask(p.Host, p.Config.StateDir, kind, r); problem != nil {
		return failed(problem)
	}
	a := p.agent()
	if _, err := a.Machine(p.ctx); err == nil {
		return a.follow(v, p.out, kind, r)
	}
	have, problem = d.Upgrade(p.ctx, def, facts, accs)
	if problem != nil {
		return v.failed(problem)
	}
	fmt.Fprintf(p.out, "%s: version %s serves\n", kind, cmp.Or(have.Version, "-"))
	_ = v.waited(d.Sources().Wait) // the new driver serves, though it may not be published
	return nil
}

// newest returns the definition of a kind as it is configured. If that names a branch and the command no version, it
// has the newest version of the branch, unless the one in use is newer; branch is what to record then.
func (p *parts) newest(d *driver.Driver, kind string, f upgradeFlags, facts accel.Facts) (def *accel.Definition,
	branch *store.Branch, problem *accel.Problem,
) {
	def = p.BaseKinds[kind]
	if def.Driver.Branch == "" || f.version != "" {
		return def, nil, nil
	}
	b, problem := d.Sources().Newest(p.ctx, def, facts)
	if problem != nil || accel.Natural(b.Version, def.Driver.Version) < 0 {
		return def, nil, problem
	}
	fmt.Fprintf(p.out, "%s: the newest version of branch %s is %s\n", kind, b.Branch, b.Version)
	return b.Apply(def), &b, nil
}

// printPlan writes what an upgrade would do.
func printPlan(out io.Writer, def *accel.Definition, u accel.Upgrade, holders []accel.Holder) {
	fmt.Fprintf(out, "%s: from %s to %s\n  why      %s\n", def.Kind, u.From, u.To, plain(u.Why))
	fmt.Fprintf(out, "  used by  %s\n  policy   %s%s\n", cmp.Or(users(holders), "nobody"),
		cmp.Or(def.Driver.Upgrade.Holders, accel.HoldersRefuse), prefixed(", at most ", def.Driver.Upgrade.Timeout))
}

// follow prints the progress of an upgrade in the agent until it has ended or cannot continue.
func (a *asked) follow(v *view, out io.Writer, kind string, r driver.Request) error {
	tick := time.NewTicker(500 * time.Millisecond) // the endpoint answers from memory
	defer tick.Stop()
	last := ""
	for {
		v.Replace(a.Progress(v.ctx, kind))
		m, err := a.Machine(v.ctx)
		if err == nil && m.Want.Kinds[kind] != nil && m.Want.Kinds[kind].Driver.Upgrade.Asked.Equal(r.Asked) {
			u := m.Have[kind].Driver.Upgrade
			if u == nil && m.Status[kind].State != accel.DriverMissing {
				fmt.Fprintf(out, "%s: version %s serves\n", kind, cmp.Or(m.Have[kind].Driver.Version, "-"))
				return nil
			}
			if text := progress(m, kind); text != last {
				last = text
				fmt.Fprintf(out, "%s: %s\n", kind, plain(text))
			}
			if problem := ended(m, kind); problem != nil {
				return failed(problem)
			}
		}
		select {
		case <-v.ctx.Done():
			fmt.Fprintf(out, "%s: the agent continues the upgrade; see `acceld status`\n", kind)
			return nil
		case <-tick.C:
		}
	}
}

// progress describes the progress of an upgrade.
func progress(m accel.Machine, kind string) string {
	u := m.Have[kind].Driver.Upgrade
	if u == nil {
		return m.Status[kind].Sentence
	}
	text := string(u.Phase)
	if u.Failure != nil {
		text += ": " + u.Failure.Message
	}
	return text
}

// ended returns why an upgrade does not continue by itself; nil while it does, or while it waits as requested.
func ended(m accel.Machine, kind string) *accel.Problem {
	if b := m.Status[kind].Blocked; b != nil && b.Step == accel.StepDriver {
		return &b.Problem
	}
	u := m.Have[kind].Driver.Upgrade
	if u == nil || u.Failure == nil || u.Phase == accel.UpgradeDraining {
		return nil
	}
	return &u.Failure.Problem
}
