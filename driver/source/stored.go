package source

import (
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// stored finds a driver in the store. It needs neither the driver's source nor a network.
func (q *search) stored() Answer {
	entries, err := q.store.Find(q.def, q.facts.Kernel)
	if err != nil {
		return failed(accel.ProblemOf(err, "cannot read the store"))
	}
	if len(entries) == 0 {
		return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource, "the store has none for kernel %q",
			q.facts.Kernel.Release)}
	}
	var last Answer
	for _, e := range entries {
		if p := q.quarantined(e.Key); p != nil {
			if p.Reason != accel.Quarantined { // a retry cannot forget the earlier loads
				return failed(p)
			}
			if last.Verdict != Unavailable {
				last = failed(p)
			}
			continue // the last good driver may still serve
		}
		a := q.use(e)
		if a.Verdict != Unavailable {
			return a
		}
		last = a // the definition has gained a module since; another entry may have it
	}
	return last
}

// quarantined returns why a driver must not be loaded again, nil if it may be. A retry forgets the earlier loads.
func (q *search) quarantined(id string) *accel.Problem {
	if q.Retry {
		if p := q.attempts.Forgive(id); p != nil {
			return p
		}
	}
	return q.attempts.Quarantined(id)
}

// use judges who signed an entry, checks its files and makes a plan.
func (q *search) use(e store.Entry) Answer {
	if p := q.store.Trusted(q.def, e.Manifest); p != nil {
		return Answer{Verdict: Unavailable, Problem: p} // the source that it came from may have one by another signer
	}
	var where []kmod.Located
	for _, m := range q.def.Driver.Modules {
		s, ok := e.Module(m.Name)
		if !ok {
			if !m.Optional {
				return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource,
					"entry %q of the store has no module %q", e.Key, m.Name)}
			}
			continue
		}
		if p := q.store.Check(e, s); p != nil {
			return Answer{Verdict: Refused, Problem: p}
		}
		where = append(where, kmod.Located{Module: m, Path: path.Join(e.Path, s.File)})
	}
	return q.plan(accel.SourceStore, e, where)
}

// plan judges the modules of a source.
func (q *search) plan(source accel.SourceType, e store.Entry, where []kmod.Located) Answer {
	p, problem := kmod.MakePlan(q.target(source, e), where)
	if problem != nil {
		return Answer{Verdict: Refused, Problem: problem}
	}
	return Answer{Verdict: Satisfied, Plan: p}
}
