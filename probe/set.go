package probe

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// setting is how long a program may take to set something.
const setting = 30 * time.Second

// sets are the requests of one program to set something.
type sets struct {
	asking sync.Mutex // one request at a time
	mu     sync.Mutex
	asked  accel.ProbeSet
	answer chan accel.ProbeSet // nil while nothing was asked
}

// Settings returns what the program of a kind has reported last about the settings of a device; the caller must not
// change it. Known is false while it has not reported, or has fallen silent. Why then says why it does not report, if
// that is known.
func (k *Supervisor) Settings(kind, id string) (all map[string]accel.ProbeSetting, known bool, why string) {
	p := k.known(kind)
	if p == nil {
		return nil, false, ""
	}
	return p.book.settingsOf(id)
}

func (b *book) settingsOf(id string) (all map[string]accel.ProbeSetting, known bool, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, told := b.devices[id]
	switch {
	case told && b.fresh && b.problem == nil && !b.stale():
		return d.Settings, true, ""
	case b.problem != nil:
		return nil, false, b.problem.Message
	case b.stuck != "" || b.tried:
		return nil, false, b.stuck + b.quiet
	}
	return nil, false, ""
}

// Set asks the program of a kind to set something on a device, and returns its answer.
func (k *Supervisor) Set(ctx context.Context, kind string, r accel.ProbeSet) accel.ProbeSet {
	p := k.known(kind)
	if p == nil {
		r.Problem = "no program runs"
		return r
	}
	return p.set(ctx, r)
}

// set asks the program.
func (p *program) set(ctx context.Context, r accel.ProbeSet) accel.ProbeSet {
	s := &p.sets
	s.asking.Lock()
	defer s.asking.Unlock()
	answer := make(chan accel.ProbeSet, 1)
	s.ask(r, answer)
	defer s.ask(accel.ProbeSet{}, nil)
	limit, late := time.NewTimer(setting), time.NewTimer(handing)
	defer limit.Stop()
	defer late.Stop()
	select {
	case p.asks <- accel.ProbeRequest{Set: &r}:
	case <-late.C:
		r.Problem = "no program runs"
		return r
	case <-ctx.Done():
		r.Problem = ctx.Err().Error()
		return r
	}
	select {
	case r = <-answer:
	case <-limit.C:
		r.Problem = "the program has not answered"
	case <-ctx.Done():
		r.Problem = ctx.Err().Error()
	}
	return r
}

func (s *sets) ask(r accel.ProbeSet, answer chan accel.ProbeSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.answer = r, answer
}

// answered passes on the answer to the request, unless it is about something else: then an earlier request was meant.
func (s *sets) answered(a accel.ProbeSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer == nil || a.Device != s.asked.Device || a.Setting != s.asked.Setting || a.Value != s.asked.Value {
		return
	}
	a.Problem = clean(a.Problem)
	if a.Unsupported && a.Problem == "" {
		a.Problem = "the device does not support it"
	}
	s.answer <- a
	s.answer = nil
}

// maxSettings is how many settings of a device are accepted.
const maxSettings = 32

// settings returns the reported settings of a device that have a name and texts of settings.
func settings(all map[string]accel.ProbeSetting) map[string]accel.ProbeSetting {
	out := map[string]accel.ProbeSetting{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		fits := accel.SettingName(name) && len(out) < maxSettings
		for _, text := range []string{s.Value, s.Pending, s.Min, s.Max} {
			fits = fits && (text == "" || accel.SettingText(text))
		}
		if fits {
			out[name] = s
		}
	}
	return out
}
