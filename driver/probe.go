package driver

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
)

// Probe reads the state of one kind's driver and changes nothing. Serves means that every non-optional module is live
// and is one that acceld may use, and that every present accelerator is bound to it and has its nodes.
//
// If another version or other parameters are configured than those of a driver that acceld chose, the driver serves
// and Upgrade says what is pending. A driver that acceld did not choose never serves in that case, unless the
// definition allows adopting it. The problem says why the driver does not serve. Nil without Serves means that the
// driver is not loaded, or that an upgrade was interrupted.
func (d *Driver) Probe(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave,
	*accel.Problem,
) {
	s := d.look(def, accs)
	c := d.store.Choice(def.Kind, facts.Kernel)
	have := accel.DriverHave{Modules: s.modules, Version: s.version()}
	ours := d.ours(def, facts, c, s.modules)
	if len(s.modules) > 0 {
		have.Source = string(accel.SourceLoaded)
	}
	if ours != nil {
		have.Source, have.Key, have.Published = string(ours.Source), ours.Key, d.sources.Published(ours.Key)
	}
	if d.journals.read(def.Kind) != nil {
		return have, nil // the upgrade is completed or reverted before the driver is judged
	}
	problem := s.stuck
	if problem == nil {
		problem = d.difference(def, facts, c, s)
	}
	var stale bool
	var missing *accel.Problem
	have.UserSpace, stale, missing = d.spaces.Judge(def, have.Version)
	pending := pendable(problem) || problem == nil && (stale || def.Driver.Upgrade.Asked.After(c.Asked))
	if pending && !s.missing && (ours != nil || def.Driver.Upgrade.Adopt) {
		have.Upgrade = &accel.Upgrade{
			From: accel.DriverRef{Version: have.Version, Key: have.Key},
			To:   accel.DriverRef{Version: def.Driver.Version},
			Why:  "somebody asked for it", Wish: store.Wish(def, facts), Phase: accel.UpgradePending,
		}
		switch {
		case problem != nil:
			have.Upgrade.Why = problem.Message
		case stale:
			have.Upgrade.Why = "another user space is configured"
		}
		problem = nil
	}
	if problem == nil {
		problem = s.devices
	}
	if problem == nil && !s.missing {
		problem = missing
	}
	if have.UserSpace != nil {
		var down *accel.Problem
		have.Companions, down = d.companions.Judge(def, d.spaces.Root(have.UserSpace.Key), have.Version)
		if problem == nil && !s.missing {
			problem = down
		}
	}
	have.Serves = problem == nil && !s.missing
	return have, problem
}

// pendable reports whether loading another driver would resolve the problem.
func pendable(p *accel.Problem) bool {
	return p != nil && (p.Reason == accel.OtherModuleLoaded || p.Reason == accel.ParametersDiffer)
}

// sight is the live state of a driver, whoever chose it.
type sight struct {
	modules []accel.LoadedModule
	missing bool           // a module that is not optional is not live
	stuck   *accel.Problem // a module has been loading or unloading for too long
	devices *accel.Problem // from devices.Problem or SharedProblem
}

// serves reports whether everything works.
func (s sight) serves() bool { return !s.missing && s.stuck == nil && s.devices == nil }

// version is the driver's version, as its modules report it.
func (s sight) version() string {
	for _, m := range s.modules {
		if m.Version != "" {
			return m.Version
		}
	}
	return ""
}

// look reads the modules and devices of a driver.
func (d *Driver) look(def *accel.Definition, accs []accel.Accelerator) sight {
	var s sight
	died := kmod.Died(d.h)
	for _, want := range def.Driver.Modules {
		m, ok := kmod.Live(d.h, want.Name)
		if !ok {
			d.loader.settled(want.Name)
			s.missing = s.missing || !want.Optional
			continue
		}
		s.modules = append(s.modules, m)
		if m.State == kmod.StateLive {
			d.loader.settled(want.Name)
			continue
		}
		s.missing = true
		if s.stuck == nil && (died || d.loader.since(want.Name) > d.o.LoadTimeout) {
			s.stuck = accel.Problemf(accel.RebootRequired, "module %q is stuck in state %q", m.Name, m.State)
		}
	}
	if s.devices = devices.Problem(def, d.devices.Observe(def, accs), !s.missing); s.devices == nil {
		s.devices = d.devices.SharedProblem(def, !s.missing)
	}
	return s
}

// ours returns the loaded driver if acceld chose it: the noted current driver, the previous one, or any driver in the
// store, from which nobody else loads. It is nil for a foreign driver, and if nothing is loaded.
func (d *Driver) ours(def *accel.Definition, facts accel.Facts, c store.Choice,
	live []accel.LoadedModule,
) *store.Generation {
	for _, g := range []*store.Generation{c.Current, c.Previous} {
		if g.Live(live) {
			return g
		}
	}
	if len(live) == 0 {
		return nil
	}
	entries, err := d.store.List()
	if err != nil {
		d.log.Warn("cannot read the store", "error", err)
	}
	for _, e := range entries {
		if e.Problem != "" || e.Kind != def.Kind || e.KernelRelease != facts.Kernel.Release ||
			!store.SameKernel(e.KernelID, facts.Kernel) {
			continue
		}
		if g := e.Generation(def); g.Live(live) {
			for i, m := range g.Modules {
				g.Modules[i].Parameters = d.loader.liveParameters(m.Module, kmod.Normal(m.Name))
			}
			return g
		}
	}
	return nil
}

// difference says how the live modules differ from the chosen and the configured ones; nil if they do not.
func (d *Driver) difference(def *accel.Definition, facts accel.Facts, c store.Choice, s sight) *accel.Problem {
	for _, want := range def.Driver.Modules {
		for _, m := range s.modules {
			if m.Name != kmod.Normal(want.Name) || m.State != kmod.StateLive {
				continue
			}
			if problem := judgeModule(d.h, def, facts, want, m, c.Current); problem != nil {
				return problem
			}
		}
	}
	if !s.missing && def.Driver.Version != "" && s.version() == "" {
		return accel.Problemf(accel.OtherModuleLoaded, "the loaded modules of %q have no version, wanted is %q",
			def.Kind, def.Driver.Version)
	}
	return nil
}

// judgeModule compares one live module with the chosen and the configured one.
func judgeModule(h *host.Host, def *accel.Definition, facts accel.Facts, want accel.Module, m accel.LoadedModule,
	chosen *store.Generation,
) *accel.Problem {
	if v := def.Driver.Version; v != "" && m.Version != "" && m.Version != v {
		return accel.Problemf(accel.OtherModuleLoaded, "module %q is loaded in version %q, wanted is %q", m.Name,
			m.Version, v)
	}
	if b := def.Driver.Branch; b != "" && def.Driver.Version == "" && m.Version != "" && !accel.InBranch(m.Version, b) {
		return accel.Problemf(accel.OtherModuleLoaded, "module %q is loaded in version %q, wanted is one of branch %q",
			m.Name, m.Version, b)
	}
	if chosen != nil {
		for _, g := range chosen.Modules {
			if kmod.Normal(g.Name) == m.Name && !kmod.Same(m, g.BuildID, g.SrcVersion, g.Version) {
				return accel.Problemf(accel.OtherModuleLoaded,
					"module %q is loaded with build-id %q, the chosen one has %q", m.Name, m.BuildID, g.BuildID)
			}
		}
	}
	sentence, problem := kmod.Differing(h, def, facts, want)
	if sentence != "" {
		return accel.Problemf(accel.ParametersDiffer, "module %q: %s", m.Name, sentence)
	}
	return problem
}
