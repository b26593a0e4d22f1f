package loop

import (
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// attempt does a part of a pass for one kind. A panic ends the work for that kind alone, which keeps its last status
// until it is tried again.
func (l *Loop) attempt(k *kind, part func()) {
	if k.fault == nil {
		k.fault = guard.Try(func() error { part(); return nil })
	}
}

// readFacts reads the facts of the host. If that panics, the kinds go on with the last ones.
func (w *worker) readFacts() {
	err := guard.Try(func() error { w.facts = w.o.Probes.Facts(); return nil })
	if err != nil && !w.known {
		panic(err) // no device would be a lie
	}
	w.known = true
	w.o.note("facts of the host", err)
}

// try does a part of the work that is not for one kind, or not in a pass.
func (o *Options) try(part string, do func()) {
	o.note(part, guard.Try(func() error { do(); return nil }))
}

// note tells why a part of the work has failed; nil if it has not.
func (o *Options) note(part string, err error) {
	if o.Note != nil {
		o.Note(part, err)
	}
}

// conclude reports whether the pass over a kind has failed, and decides when it is tried again.
func (l *Loop) conclude(k *kind, now time.Time) {
	switch {
	case k.fault == nil:
		k.faults = 0
	case now.After(k.again):
		k.faults++
		k.again = now.Add(pace.Backoff{First: time.Second, Max: time.Minute}.After(k.faults))
	}
	l.o.note("kind "+k.def.Kind, k.fault)
}

// forget drops what an earlier call of Run had in progress: it has ended.
func (l *Loop) forget() {
	for len(l.done) > 0 {
		<-l.done
	}
	for _, k := range l.kinds {
		k.running, k.sampling = accel.StepNone, false
		if k.up != nil {
			k.up.stop()
			k.up = nil
		}
	}
}
