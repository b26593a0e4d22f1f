package source

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

func installedRow() row {
	return row{typ: accel.SourceInstalled, always: true, late: 1, ask: func(x *Sources, _ context.Context,
		def *accel.Definition, facts accel.Facts, _ accel.Source, o Options,
	) Answer {
		return x.askInstalled(def, facts, o)
	}}
}

// askInstalled finds a driver below /lib/modules, through the index of depmod.
func (x *Sources) askInstalled(def *accel.Definition, facts accel.Facts, o Options) Answer {
	where, problem := kmod.Installed(x.h, def, kmod.NewIndex(x.h, facts.Kernel.Release))
	if problem != nil {
		return Answer{Unavailable, nil, problem}
	}
	p, problem := kmod.MakePlan(x.target(def, facts, accel.SourceInstalled, store.Entry{}), where)
	if problem != nil {
		return Answer{Refused, nil, problem}
	}
	if v := def.Driver.Version; v != "" && p.Version() != v {
		p.Close()
		return Answer{Unavailable, nil, accel.Problemf(accel.NoDriverSource, "installed is version %q, wanted is %q",
			p.Version(), v)}
	}
	if o.Retry {
		problem = x.attempts.Forgive(p.ID)
	}
	if problem == nil {
		problem = x.attempts.Quarantined(p.ID)
	}
	if problem != nil {
		p.Close()
		return Answer{Refused, nil, problem}
	}
	return Answer{Verdict: Satisfied, Plan: p}
}
