package driver

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// verdict is how a source answers.
type verdict string

const (
	satisfied   verdict = "satisfied"
	unavailable verdict = "unavailable" // the only one that falls through to the next source
	refused     verdict = "refused"
	failed      verdict = "failed"
	waiting     verdict = "waiting" // it will be there by itself
)

// answer is what one source says about one kind.
type answer struct {
	verdict verdict
	plan    *kmod.Plan // when satisfied
	problem *accel.Problem
}

// source is one place that drivers come from.
type source struct {
	name string
	kind accel.SourceType
	ask  func(context.Context) answer
}

// EnsureOptions change how [Driver.EnsureWith] works.
type EnsureOptions struct {
	// NoBuild leaves out the sources that need a compiler or a network.
	NoBuild bool
	// Retry forgets that earlier loads of the driver ended uncleanly.
	Retry bool
	// Fresh asks the configured sources before the host and the store, which have what served until now.
	Fresh bool
}

// Result is the outcome of [Driver.Early] for one kind.
type Result struct {
	Have    accel.DriverHave
	Problem *accel.Problem
}

// Ensure makes the driver of one kind present: modules live, devices bound, nodes there. It does nothing when that is
// so. A problem lists in Tried what each source answered.
func (d *Driver) Ensure(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	return d.EnsureWith(ctx, def, facts, accs, EnsureOptions{})
}

// Early is Ensure for every kind that has accelerators, without compilers and network: what runs before the kubelet.
func (d *Driver) Early(ctx context.Context, defs []*accel.Definition, facts accel.Facts, accs map[string][]accel.Accelerator) map[string]Result {
	out := map[string]Result{}
	for _, def := range defs {
		if accel.CountPresent(accs[def.Kind]) == 0 {
			continue
		}
		have, problem := d.EnsureWith(ctx, def, facts, accs[def.Kind], EnsureOptions{NoBuild: true})
		out[def.Kind] = Result{Have: have, Problem: problem}
	}
	return out
}

// EnsureWith is Ensure with options. An upgrade that was interrupted goes on, or back, first. When nothing is loaded, a
// driver that served before is preferred to one that would have to be built or fetched, and to one that fails: what was
// good serves, and the wanted one comes by [Driver.Upgrade].
//
// Devices of drivers that the definition allows to take them from are taken over when a driver was found and judged
// good, and given back when it does not come up.
func (d *Driver) EnsureWith(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, o EnsureOptions) (accel.DriverHave, *accel.Problem) {
	have, problem := d.ensure(ctx, def, facts, accs, o)
	problem = d.devices.BlameFirmware(def, facts, accs, problem)
	if !have.Right && (problem == nil || problem.Reason != accel.AlreadyRunning) {
		d.settleTaken(ctx, def, accs)
	}
	return have, problem
}

func (d *Driver) ensure(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, o EnsureOptions) (accel.DriverHave, *accel.Problem) {
	interrupted, problem := d.recover(ctx, def, facts, accs)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	have, problem := d.Probe(def, facts, accs)
	if have.Right {
		return have, nil
	}
	if problem != nil && (problem.Reason == accel.ProbeFailed || problem.Reason == accel.NodeMissing) {
		have, problem = d.rebind(ctx, def, facts, accs)
		if have.Right {
			return have, nil
		}
	}
	if problem = d.contested(def, accs, problem); problem != nil {
		problem.Tried = append(problem.Tried, sentence("loaded", refused, problem))
		return have, problem
	}
	if c := d.store.Choice(def.Kind, facts.Kernel); c.Current != nil {
		have, problem := d.ensureGood(ctx, def, facts, accs, o, c, interrupted)
		if have.Right || c.Rejected != nil && c.Rejected.Stuck != nil || problem != nil && problem.Reason == accel.RebootRequired {
			return have, problem
		}
	}
	p, tried, problem := d.acquire(ctx, def, facts, o)
	if problem != nil {
		return have, problem
	}
	defer p.Close()
	have, problem = d.load(ctx, def, facts, accs, p)
	if problem != nil {
		problem.Tried = slices.Concat(tried, []string{sentence(string(p.Source), failed, problem)})
		return have, problem
	}
	d.log.Debug("driver sources", "kind", def.Kind, "tried", tried, "took", p.Source)
	return have, nil
}

// ensureGood makes a driver present on a kernel that had one already: the wanted one when it is at hand, was not
// rejected, and the last upgrade was not ended by the machine; else the one that served last.
func (d *Driver) ensureGood(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, o EnsureOptions, c store.Choice, interrupted bool) (accel.DriverHave, *accel.Problem) {
	var first *accel.Problem
	if !interrupted && (c.Rejected == nil || c.Rejected.Wish != store.Wish(def, facts)) {
		quick := o
		quick.NoBuild = true
		p, _, problem := d.acquire(ctx, def, facts, quick)
		if problem == nil {
			have, problem := d.take(ctx, def, facts, accs, c, p)
			p.Close()
			if problem == nil || have.Right {
				return have, problem
			}
			first = problem
			if c = d.store.Choice(def.Kind, facts.Kernel); c.Rejected != nil && c.Rejected.Stuck != nil {
				return have, problem // both were just tried
			}
		} else {
			first = problem
		}
	}
	a := d.planOf(def, facts, c.Current)
	if a.verdict != satisfied {
		a.problem.Tried = append(a.problem.Tried, sentence("the last good driver", a.verdict, a.problem))
		return accel.DriverHave{}, stuck(c, a.problem)
	}
	defer a.plan.Close()
	have, problem := d.load(ctx, def, facts, accs, a.plan)
	if problem != nil {
		return have, stuck(c, problem)
	}
	if c = d.store.Choice(def.Kind, facts.Kernel); c.Rejected != nil && c.Rejected.Stuck != nil {
		c.Rejected.Stuck = nil
		if err := d.store.Choose(def.Kind, facts.Kernel, c); err != nil {
			d.log.Warn("cannot note the driver", "kind", def.Kind, "error", err)
		}
	}
	if first != nil {
		d.log.Info("the last good driver serves", "kind", def.Kind, "version", have.Version, "reason", first.Reason, "message", first.Message)
	}
	return have, nil
}

// stuck says that no driver serves after an upgrade because both failed.
func stuck(c store.Choice, problem *accel.Problem) *accel.Problem {
	if c.Rejected == nil || c.Rejected.Stuck == nil {
		return problem
	}
	return accel.Problemf(accel.RollbackFailed, "%s failed (%s) and %s does not come back: %s",
		accel.DriverRef{Version: c.Rejected.Version, Key: c.Rejected.ID}, c.Rejected.Problem.Message, c.Current.Ref(), problem.Message)
}

// take loads a plan where a driver served before: the same one simply, another one as an upgrade from nothing, which
// can be taken back.
func (d *Driver) take(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, c store.Choice, p *kmod.Plan) (accel.DriverHave, *accel.Problem) {
	if store.GenerationOf(p, def).Same(c.Current) {
		return d.load(ctx, def, facts, accs, p)
	}
	to, problem := d.store.Keep(def, facts, p)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	return d.replace(ctx, def, facts, accs, c.Current, to)
}

// acquire asks the sources in order for a driver and returns it judged good, open and ready to be loaded. Nothing is
// changed but the store. The problem lists in Tried what each source answered, as does tried with a plan.
func (d *Driver) acquire(ctx context.Context, def *accel.Definition, facts accel.Facts, o EnsureOptions) (p *kmod.Plan, tried []string, problem *accel.Problem) {
	tried = []string{"loaded: unavailable: the modules are not loaded"}
	last := accel.Problemf(accel.NoDriverSource, "no source has a driver of %q for kernel %q", def.Kind, facts.Kernel.Release)
	sources := d.sources(def, facts, o)
	if o.Fresh {
		slices.SortStableFunc(sources, func(a, b source) int {
			return cmp.Compare(lateness(a.kind), lateness(b.kind))
		})
	}
	for _, s := range sources {
		a := s.ask(ctx)
		switch a.verdict {
		case satisfied:
			return a.plan, tried, nil
		case unavailable:
			if ctx.Err() != nil { // it was called off: the next one would be too
				return nil, tried, a.problem
			}
			tried = append(tried, sentence(s.name, unavailable, a.problem))
			last = telling(last, a.problem)
		default:
			a.problem.Tried = slices.Concat(tried, []string{sentence(s.name, a.verdict, a.problem)})
			return nil, tried, a.problem
		}
	}
	final := accel.Problemf(last.Reason, "%s", last.Message)
	final.Tried = tried
	return nil, tried, final
}

// lateness puts what the host has already behind what the configured sources have now.
func lateness(t accel.SourceType) int {
	return slices.Index([]accel.SourceType{accel.SourceInstalled, accel.SourceStore}, t)
}

// telling chooses the reason of a driver that no source has: the later one, unless the earlier one is about access,
// which a person must see, or about something that may come by itself where the later one is for good.
func telling(before, after *accel.Problem) *accel.Problem {
	switch {
	case after.Reason == accel.NoDriverSource:
		return before
	case before.Reason == accel.RegistryDenied && after.Reason != accel.RegistryDenied:
		return before
	case before.Reason != accel.NoDriverSource && !before.Reason.Doc().Permanent && after.Reason.Doc().Permanent:
		return before
	}
	return after
}

func sentence(source string, v verdict, p *accel.Problem) string {
	return fmt.Sprintf("%s: %s: %s", source, v, p.Message)
}

// sources lists where the driver of def may come from, in order. What is ready always precedes what must be built.
func (d *Driver) sources(def *accel.Definition, facts accel.Facts, o EnsureOptions) []source {
	out := []source{
		{string(accel.SourceStore), accel.SourceStore, func(context.Context) answer { return d.askStore(def, facts, o) }},
		{string(accel.SourceInstalled), accel.SourceInstalled, func(context.Context) answer { return d.askInstalled(def, facts, o) }},
	}
	for _, s := range def.Driver.Sources {
		switch s.Type {
		case accel.SourceLoaded, accel.SourceStore, accel.SourceInstalled, accel.SourceOCI, accel.SourceBuild, accel.SourceBundle:
		default:
			out = append(out, source{string(s.Type), s.Type, func(context.Context) answer {
				return answer{refused, nil, accel.Problemf(accel.DefinitionInvalid, "driver.sources of %q has type %q, which is not known", def.Kind, s.Type)}
			}})
		}
	}
	for _, kind := range []accel.SourceType{accel.SourceOCI, accel.SourceBuild, accel.SourceBundle} {
		for _, s := range def.Driver.Sources {
			if s.Type == kind {
				out = append(out, d.configured(def, facts, s, o))
			}
		}
	}
	return out
}

// configured is a source of the definition.
func (d *Driver) configured(def *accel.Definition, facts accel.Facts, s accel.Source, o EnsureOptions) source {
	out := source{name: "bundle " + s.Path, kind: s.Type}
	switch s.Type {
	case accel.SourceOCI:
		out.name = "oci " + s.Image
		out.ask = func(ctx context.Context) answer { return d.askOCI(ctx, def, facts, s, o) }
	case accel.SourceBuild:
		out.name = "build from " + s.Path
		out.ask = func(ctx context.Context) answer { return d.askBuild(ctx, def, facts, s, o) }
	default:
		out.ask = func(ctx context.Context) answer { return d.askBundle(ctx, def, facts, s, o) }
	}
	if o.NoBuild && s.Type != accel.SourceBundle {
		out.ask = func(context.Context) answer {
			return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "nothing is built or fetched at this time")}
		}
	}
	return out
}

// askStore finds a driver in the store. It needs neither its source nor a network.
func (d *Driver) askStore(def *accel.Definition, facts accel.Facts, o EnsureOptions) answer {
	entries, err := d.store.Find(def, facts.Kernel)
	if err != nil {
		return answer{failed, nil, accel.ProblemOf(err, "cannot read the store")}
	}
	if len(entries) == 0 {
		return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "the store has none for kernel %q", facts.Kernel.Release)}
	}
	var quarantined *accel.Problem
	for _, e := range entries {
		if o.Retry {
			if p := d.attempts.Forgive(e.Key); p != nil {
				return answer{failed, nil, p}
			}
		}
		if quarantined = d.attempts.Quarantined(e.Key); quarantined != nil {
			continue // the last one that was good may serve
		}
		return d.useEntry(def, facts, e)
	}
	return answer{refused, nil, quarantined}
}

// useEntry checks an entry's files and plans it.
func (d *Driver) useEntry(def *accel.Definition, facts accel.Facts, e store.Entry) answer {
	var where []kmod.Located
	for _, m := range def.Driver.Modules {
		s, ok := e.Module(m.Name)
		if !ok {
			if !m.Optional {
				return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "entry %q of the store has no module %q", e.Key, m.Name)}
			}
			continue
		}
		if p := d.store.Check(e, s); p != nil {
			return answer{refused, nil, p}
		}
		where = append(where, kmod.Located{Module: m, Path: path.Join(e.Path, s.File)})
	}
	p, problem := kmod.MakePlan(d.targetOf(def, facts, accel.SourceStore, e.Key), where)
	if problem != nil {
		return answer{refused, nil, problem}
	}
	return answer{verdict: satisfied, plan: p}
}

// askInstalled finds a driver below /lib/modules, as depmod ordered it.
func (d *Driver) askInstalled(def *accel.Definition, facts accel.Facts, o EnsureOptions) answer {
	where, problem := kmod.Installed(d.h, def, kmod.NewIndex(d.h, facts.Kernel.Release))
	if problem != nil {
		return answer{unavailable, nil, problem}
	}
	p, problem := kmod.MakePlan(d.targetOf(def, facts, accel.SourceInstalled, ""), where)
	if problem != nil {
		return answer{refused, nil, problem}
	}
	if v := def.Driver.Version; v != "" && p.Version() != v {
		p.Close()
		return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "installed is version %q, wanted is %q", p.Version(), v)}
	}
	if o.Retry {
		problem = d.attempts.Forgive(p.ID)
	}
	if problem == nil {
		problem = d.attempts.Quarantined(p.ID)
	}
	if problem != nil {
		p.Close()
		return answer{refused, nil, problem}
	}
	return answer{verdict: satisfied, plan: p}
}

// rebind mends devices under a driver that is live: it asks the kernel to try again those that no driver has, for what
// refused them may have been mended since, and makes the nodes that are missing.
func (d *Driver) rebind(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	defer release()
	d.devices.MakeNodes(def, accs, true)
	for _, v := range d.devices.Observe(def, accs) {
		if v.Bound != "" {
			continue
		}
		err := d.operations.Do(ctx, "bind "+v.ID, func() error { return d.attribute(driversProbe, v.ID) })
		if err != nil {
			d.log.Warn("cannot ask for a probe", "device", v.ID, "error", err)
		}
	}
	return d.awaitDevices(ctx, def, facts, accs)
}
