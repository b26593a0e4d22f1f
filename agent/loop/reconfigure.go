package loop

import (
	"cmp"
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// Configure hands over the new desired state from the configuration. If several arrive before the loop takes one, the
// last one applies. It never blocks.
func (l *Loop) Configure(want accel.Want) {
	for {
		select {
		case l.wants <- want:
			return
		default:
		}
		select {
		case <-l.wants:
		default:
		}
	}
}

// reconfigure takes over a new configuration: new kinds and changed definitions. The next pass dismisses removed
// kinds. The progress of a kind is checked again, not undone.
func (l *Loop) reconfigure(want accel.Want) {
	if l.o.KubeletAuto {
		want.Kubernetes = l.want.Kubernetes
	}
	if reflect.DeepEqual(l.want, want) {
		return
	}
	l.want = want
	for name, k := range l.kinds {
		if def, wanted := want.Kinds[name]; wanted && !reflect.DeepEqual(def, k.def) {
			switch {
			case k.stop == nil:
			case offeredAs(k.def) == offeredAs(def):
				l.o.try("kind "+name+": definition", func() { l.o.Effects.Redefine(def) })
			default:
				k.stop()
				k.stop, k.plugin, k.have.Plugin = nil, nil, accel.PluginHave{}
			}
			k.def = def
			l.o.Log.Info("definition changed", "kind", name)
		}
	}
	for name, def := range want.Kinds {
		if l.kinds[name] == nil {
			l.kinds[name] = newKind(def, time.Now())
			l.o.Log.Info("kind added", "kind", name)
		}
	}
	l.forgive()
}

// offeredAs are the names under which the kubelet and the scheduler know a kind. While they stay, its plugin stays: a
// new one would make the devices unhealthy for a moment, and the kubelet refuses the pods of that moment permanently.
func offeredAs(def *accel.Definition) string {
	partitions := cmp.Or(def.Partitions, &accel.Partitions{})
	names := []string{string(def.AllocatedBy()), def.Resource, def.Offered(), partitions.Rename}
	for _, p := range partitions.Profiles {
		names = append(names, def.OfferedAs(accel.PartitionWord(p.Name)))
	}
	return strings.Join(names, " ")
}

// dismissUnwanted stops serving the kinds that are not configured any more. Their drivers stay as they are. A step in
// flight ends first; its end triggers a pass.
func (w *worker) dismissUnwanted() {
	for name, k := range w.kinds {
		if w.want.Kinds[name] == nil && k.running == accel.StepNone {
			w.dismiss(name, k)
		}
	}
}

func (w *worker) dismiss(name string, k *kind) {
	if k.up != nil {
		k.up.stop()
	}
	if k.stop != nil {
		k.stop()
	}
	delete(w.kinds, name)
	w.o.Log.Info("kind removed", "kind", name)
	def := k.def
	w.steps.Keep(w.ctx, "kind "+name+": withdrawal", func(context.Context) error {
		if problem := w.o.Effects.Withdraw(def); problem != nil {
			w.o.Log.Warn("cannot withdraw a kind", "kind", name, "reason", problem.Reason, "message", problem.Message)
		}
		return nil
	})
}

func newKind(def *accel.Definition, now time.Time) *kind {
	return &kind{
		def: def, proven: map[string]string{}, skipped: map[string]string{}, vanished: map[string]time.Time{},
		stepped: map[ownMoment]string{}, began: now,
		status: accel.Status{State: accel.Absent, Since: now},
	}
}
