package driver

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
)

// verdict is how a source answers.
type verdict string

const (
	satisfied   verdict = "satisfied"
	unavailable verdict = "unavailable" // the only one that falls through to the next source
	refused     verdict = "refused"
	failed      verdict = "failed"
)

// answer is what one source says about one kind.
type answer struct {
	verdict verdict
	plan    *plan // when satisfied
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

// EnsureWith is Ensure with options.
func (d *Driver) EnsureWith(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, o EnsureOptions) (accel.DriverHave, *accel.Problem) {
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
	if problem != nil && (problem.Reason != accel.ConflictDriver || !d.anyFree(def, accs)) {
		problem.Tried = append(problem.Tried, sentence("loaded", refused, problem))
		return have, problem
	}
	tried := []string{"loaded: unavailable: the modules are not loaded"}
	last := accel.Problemf(accel.NoDriverSource, "no source has a driver of %q for kernel %q", def.Kind, facts.Kernel.Release)
	for _, s := range d.sources(def, facts, o) {
		a := s.ask(ctx)
		switch a.verdict {
		case satisfied:
			have, problem := d.load(ctx, def, facts, accs, a.plan)
			a.plan.close()
			if problem != nil {
				problem.Tried = slices.Concat(tried, []string{sentence(s.name, failed, problem)})
			} else {
				d.log.Debug("driver sources", "kind", def.Kind, "tried", tried, "took", s.name)
			}
			return have, problem
		case unavailable:
			tried = append(tried, sentence(s.name, unavailable, a.problem))
			if a.problem.Reason != accel.NoDriverSource {
				last = a.problem
			}
		default:
			a.problem.Tried = slices.Concat(tried, []string{sentence(s.name, a.verdict, a.problem)})
			return have, a.problem
		}
	}
	final := accel.Problemf(last.Reason, "%s", last.Message)
	final.Tried = tried
	return have, final
}

func sentence(source string, v verdict, p *accel.Problem) string {
	return fmt.Sprintf("%s: %s: %s", source, v, p.Message)
}

// anyFree reports whether a device is left for the driver: loading it helps then, whoever has the others.
func (d *Driver) anyFree(def *accel.Definition, accs []accel.Accelerator) bool {
	return slices.ContainsFunc(d.observe(def, accs), func(v device) bool {
		return v.bound == "" && (v.kept == "" || v.kept == def.Driver.Binds)
	})
}

// sources lists where the driver of def may come from, in order. What is ready always precedes what must be built.
func (d *Driver) sources(def *accel.Definition, facts accel.Facts, o EnsureOptions) []source {
	out := []source{
		{string(accel.SourceStore), accel.SourceStore, func(context.Context) answer { return d.askStore(def, facts, o) }},
		{string(accel.SourceInstalled), accel.SourceInstalled, func(context.Context) answer { return d.askInstalled(def, facts, o) }},
	}
	for _, s := range def.Driver.Sources {
		switch s.Type {
		case accel.SourceBuild:
			ask := func(ctx context.Context) answer { return d.askBuild(ctx, def, facts, s, o) }
			if o.NoBuild {
				ask = func(context.Context) answer {
					return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "nothing is built at this time")}
				}
			}
			out = append(out, source{"build from " + s.Path, s.Type, ask})
		case accel.SourceLoaded, accel.SourceStore, accel.SourceInstalled: // they always come first
		default:
			out = append(out, source{string(s.Type), s.Type, func(context.Context) answer {
				return answer{refused, nil, accel.Problemf(accel.DefinitionInvalid, "driver.sources of %q has type %q, which is not known", def.Kind, s.Type)}
			}})
		}
	}
	return out
}

// askStore finds a driver in the store. It needs neither its source nor a network.
func (d *Driver) askStore(def *accel.Definition, facts accel.Facts, o EnsureOptions) answer {
	entries, err := d.find(def, facts.Kernel)
	if err != nil {
		return answer{failed, nil, problemOf(err, "cannot read the store")}
	}
	if len(entries) == 0 {
		return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "the store has none for kernel %q", facts.Kernel.Release)}
	}
	var quarantined *accel.Problem
	for _, e := range entries {
		if o.Retry {
			if p := d.forgive(e.Key); p != nil {
				return answer{failed, nil, p}
			}
		}
		if quarantined = d.quarantined(e.Key); quarantined != nil {
			continue // the last one that was good may serve
		}
		return d.useEntry(def, facts, e)
	}
	return answer{refused, nil, quarantined}
}

// useEntry checks an entry's files and plans it.
func (d *Driver) useEntry(def *accel.Definition, facts accel.Facts, e Entry) answer {
	var where []located
	for _, m := range def.Driver.Modules {
		s, ok := e.module(m.Name)
		if !ok {
			if !m.Optional {
				return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "entry %q of the store has no module %q", e.Key, m.Name)}
			}
			continue
		}
		if p := d.checkDigest(e, s); p != nil {
			return answer{refused, nil, p}
		}
		where = append(where, located{m, path.Join(e.Path, s.File)})
	}
	p, problem := d.makePlan(def, facts, accel.SourceStore, e.Key, where)
	if problem != nil {
		return answer{refused, nil, problem}
	}
	return answer{verdict: satisfied, plan: p}
}

// askInstalled finds a driver below /lib/modules, as depmod ordered it.
func (d *Driver) askInstalled(def *accel.Definition, facts accel.Facts, o EnsureOptions) answer {
	x := d.modulesOf(facts.Kernel.Release)
	var where []located
	for _, m := range def.Driver.Modules {
		file, ok := x.file(m.Name)
		if !ok && !m.Optional {
			return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "module %q is not in %q", m.Name, x.dir)}
		}
		if ok {
			where = append(where, located{m, file})
		}
	}
	p, problem := d.makePlan(def, facts, accel.SourceInstalled, "", where)
	if problem != nil {
		return answer{refused, nil, problem}
	}
	if v := def.Driver.Version; v != "" && p.version() != v {
		p.close()
		return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "installed is version %q, wanted is %q", p.version(), v)}
	}
	if o.Retry {
		problem = d.forgive(p.id)
	}
	if problem == nil {
		problem = d.quarantined(p.id)
	}
	if problem != nil {
		p.close()
		return answer{refused, nil, problem}
	}
	return answer{verdict: satisfied, plan: p}
}

// askBuild compiles the driver, unless the store has exactly what would come out.
func (d *Driver) askBuild(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source, o EnsureOptions) answer {
	e, a := d.build(ctx, def, facts, s)
	if a.verdict != satisfied {
		return a
	}
	if o.Retry {
		if p := d.forgive(e.Key); p != nil {
			return answer{failed, nil, p}
		}
	}
	if p := d.quarantined(e.Key); p != nil {
		return answer{refused, nil, p}
	}
	a = d.useEntry(def, facts, e)
	if a.verdict == satisfied {
		a.plan.source = accel.SourceBuild
	}
	return a
}

// rebind mends devices under a driver that is live: it asks the kernel to try again those that no driver has, for what
// refused them may have been mended since, and makes the nodes that are missing.
func (d *Driver) rebind(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	release, problem := d.lock(ctx)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	defer release()
	d.makeNodes(def, accs, true)
	for _, v := range d.observe(def, accs) {
		if v.bound != "" {
			continue
		}
		err := d.within(ctx, "bind "+v.id, func() error { return d.h.WriteAttribute("/sys/bus/pci/drivers_probe", v.id) })
		if err != nil {
			d.log.Warn("cannot ask for a probe", "device", v.id, "error", err)
		}
	}
	return d.awaitDevices(ctx, def, facts, accs)
}
