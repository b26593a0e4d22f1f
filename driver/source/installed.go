package source

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// installed finds a driver below /lib/modules, through the index of depmod.
func (q *search) installed() Answer {
	where, problem := kmod.Installed(q.h, q.def, kmod.NewIndex(q.h, q.facts.Kernel.Release))
	if problem != nil {
		return Answer{Verdict: Unavailable, Problem: problem}
	}
	a := q.plan(accel.SourceInstalled, store.Entry{}, where)
	if a.Verdict != Satisfied {
		if a.Problem.Reason == accel.SignatureInvalid {
			a.Verdict = Unavailable // every other source is held to the same
		}
		return a
	}
	if v := q.def.Driver.Version; v != "" && a.Plan.Version() != v {
		a.Plan.Close()
		return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource, "installed is version %q, wanted is %q",
			a.Plan.Version(), v)}
	}
	if problem := q.quarantined(a.Plan.ID); problem != nil {
		a.Plan.Close()
		return failed(problem)
	}
	return a
}
