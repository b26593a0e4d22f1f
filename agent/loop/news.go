package loop

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/acceld/acceld/accel"
)

// The log has one line for each change. At the start of the agent everything changes: each kind passes through all of
// its states, and each device gets its health with its driver. That is one line for each kind, when it has arrived.

// transit records the transitions from the last state to the new one, one allowed transition at a time.
func (l *Loop) transit(m accel.Machine, name string, k *kind, next *accel.Status, now time.Time) {
	took := maps.Clone(k.status.Took)
	if took == nil {
		took = map[accel.State]time.Duration{}
	}
	level := slog.LevelDebug
	if !k.arrived.IsZero() {
		level = slog.LevelInfo
	}
	from, since := k.status.State, k.status.Since
	for _, to := range route(m, from, next.State) {
		spent := now.Sub(since)
		took[from] = spent
		if l.o.Observer != nil {
			l.o.Observer.Observe(name, from, to, spent)
		}
		l.o.Log.Log(context.Background(), level, "state changed", "kind", name, "from", from, "to", to,
			"took", spent.Round(time.Microsecond))
		from, since = to, now
	}
	next.Since, next.Took = now, took
}

// arrive logs where a kind is after the start, once: when it is ready or cannot go on, else a while after the start. A
// kind without a device gets no line.
func arrive(o Options, k *kind, now time.Time) {
	s, since := k.status, now.Sub(k.began)
	if !k.arrived.IsZero() || !accel.Arrived(s, since) {
		return
	}
	k.arrived = now
	accs := accel.Current(k.inventory())
	if s.State == accel.Absent && len(accs) == 0 && s.Blocked == nil {
		return
	}
	facts := []any{"kind", k.def.Kind, "state", s.State, "devices", accel.Tally{}.Add(accs, nil).String()}
	if d := k.have.Driver; d.Serves {
		facts = append(facts, "driver", d.Version, "source", d.Source)
	}
	facts = append(facts, "took", max(since, 0).Round(time.Millisecond))
	level := slog.LevelInfo
	if f := s.Blocked; f != nil {
		level = slog.LevelWarn
		facts = append(facts, "reason", f.Reason, "message", f.Message)
	}
	o.Log.Log(context.Background(), level, "accelerators found", facts...)
	for _, a := range accs {
		if a.Health.State != accel.Healthy && (a.Parent == "" || !inherits(k, a)) {
			o.Log.Info("health changed", "kind", k.def.Kind, "device", a.ID, "from", "", "to", a.Health.State,
				"reason", a.Health.Reason, "message", a.Health.Message)
		}
	}
}

// inherits reports whether a partition is only as its device is.
func inherits(k *kind, p accel.Accelerator) bool {
	for _, a := range k.have.Accelerators {
		if a.ID == p.Parent {
			return a.Health.State == p.Health.State && a.Health.Reason == p.Health.Reason
		}
	}
	return false
}

// logHealth logs changes of health. A partition that only follows its device gets no line.
func (l *Loop) logHealth(before, now accel.Machine) {
	for _, c := range accel.Diff(before, now) {
		h, is := c.(accel.HealthChange)
		if !is || h.Inherited || h.From == nil || h.To == nil {
			continue
		}
		if k := l.kinds[h.Kind]; k == nil || k.arrived.IsZero() || k.arrived.Equal(now.Taken) {
			continue // the line about the kind says it, or will
		}
		l.o.Log.Info("health changed", "kind", h.Kind, "device", h.Device, "from", h.From.State, "to", h.To.State,
			"reason", h.To.Reason, "message", h.To.Message)
	}
}
