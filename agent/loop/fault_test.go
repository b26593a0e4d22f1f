package loop

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

const (
	wellKind, illKind = "k-well", "k-ill"
	wellID, illID     = "0000:01:00.0", "0000:02:00.0"
)

// two are the worlds of two kinds behind one loop. The function sick panics when it is called for the kind illKind. If
// it is called for the whole host, it panics once late is set.
type two struct {
	well, ill *world
	sick      string
	late      atomic.Bool
	panics    atomic.Int32
}

// of returns the functions of one world, by name.
func (w *world) of() map[string]reflect.Value {
	e := w.effects()
	e.Publish, e.Early = func(accel.Machine) {}, func(*accel.Definition) bool { return false }
	all := map[string]reflect.Value{}
	for _, v := range []reflect.Value{reflect.ValueOf(w.probes()), reflect.ValueOf(e)} {
		for i := range v.NumField() {
			all[v.Type().Field(i).Name] = v.Field(i)
		}
	}
	return all
}

// join sets every function of x, which points to the loop's probes or effects, to the one of the world that a call is
// about.
func (w *two) join(x any) {
	well, ill := w.well.of(), w.ill.of()
	v := reflect.ValueOf(x).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
			about := about(name, args)
			if name == w.sick && (about || w.late.Load() && (name == "Facts" || name == "Publish")) {
				w.panics.Add(1)
				panic("an error in " + name)
			}
			switch {
			case name == "Facts":
				return []reflect.Value{reflect.ValueOf(w.facts())}
			case about:
				return ill[name].Call(modules(args, "ill"))
			}
			return well[name].Call(modules(args, "m"))
		}))
	}
}

// about reports whether a call is about the kind illKind, which alone has an upgrade.
func about(name string, args []reflect.Value) bool {
	for _, a := range args {
		switch x := a.Interface().(type) {
		case *accel.Definition:
			return x.Kind == illKind
		case string:
			return x == illKind || x == illID
		}
	}
	return name == "AwaitHolder" || name == "Evictor"
}

func (w *two) facts() accel.Facts {
	f, ill := w.well.facts(), w.ill.facts()
	f.PCI = append(f.PCI, ill.PCI...)
	for _, m := range ill.Modules {
		m.Name = "ill"
		f.Modules = append(f.Modules, m)
	}
	return f
}

// modules leaves in the facts among args those modules that belong to one world.
func modules(args []reflect.Value, name string) []reflect.Value {
	for i, a := range args {
		if f, ok := a.Interface().(accel.Facts); ok {
			f.Modules = slices.DeleteFunc(slices.Clone(f.Modules), func(m accel.LoadedModule) bool {
				return m.Name != name
			})
			args[i] = reflect.ValueOf(f)
		}
	}
	return args
}

// TestPanicOfOneKind: whichever function of the machine panics for one kind, or for the whole host, the other kind is
// ready and stays offered, and the panic is a reason. The list is that of the functions themselves.
func TestPanicOfOneKind(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[Probes](), reflect.TypeFor[Effects]()} {
		for i := range of.NumField() {
			name := of.Field(i).Name
			t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { panicOf(t, name) }) })
		}
	}
	// This one ends the loop itself, once. What it has started goes on.
	t.Run(theLog, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { panicOf(t, theLog) }) })
}

const theLog = "Log"

// Handle panics at a line that the loop logs outside of the work for one kind. It makes w a handler of the log.
func (w *two) Handle(_ context.Context, r slog.Record) error {
	if w.sick == theLog && r.Message == "definition changed" && w.panics.Add(1) == 1 {
		panic("an error in " + theLog)
	}
	return nil
}

// Enabled, WithAttrs and WithGroup implement slog.Handler.
func (w *two) Enabled(context.Context, slog.Level) bool { return true }
func (w *two) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *two) WithGroup(string) slog.Handler            { return w }

func panicOf(t *testing.T, sick string) {
	w := &two{well: served(accel.UpgradePolicy{}), ill: served(accel.UpgradePolicy{}), sick: sick}
	w.ill.pci = []accel.PCIDevice{{Address: illID, Vendor: "f00d", Device: "0002"}}
	w.ill.holders = []accel.Holder{{PID: 42, PodUID: "u", Namespace: "team", Pod: "train", Device: illID}}
	w.ill.free = make(chan struct{})
	define := func(kind, device string) *accel.Definition {
		d := &accel.Definition{Kind: kind, Match: []accel.Match{{Vendor: "f00d", Device: device}}}
		d.Driver.Upgrade.Holders, d.Check = accel.HoldersEvict, &accel.Check{File: "result", Want: "1"}
		d.Steps = map[accel.Published]accel.StateSteps{
			accel.DriverContainer: {Before: []accel.CustomStep{{Name: "one"}}},
		}
		return d
	}
	want := accel.Want{Kubernetes: true, Labels: true, Kinds: map[string]*accel.Definition{
		wellKind: define(wellKind, "0001"), illKind: define(illKind, "0002"),
	}}
	var mu sync.Mutex
	var reasons []string
	note := func(part string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			reasons = append(reasons, part+": "+err.Error())
		}
	}
	var offered func() error
	o := Options{
		Agent: accel.Agent{Started: time.Now()}, Want: want, Observer: w.well, Log: slog.New(w),
		SampleEvery: 15 * time.Second, Resync: 5 * time.Minute,
		KubeSync: func() Sync { return Sync{Labelled: true} },
		Note:     note,
	}
	w.join(&o.Probes)
	w.join(&o.Effects)
	plugin := o.Effects.Plugin
	o.Effects.Plugin = func(ctx context.Context, def *accel.Definition) Plugin {
		if def.Kind == wellKind {
			offered = ctx.Err
		}
		return plugin(ctx, def)
	}
	l := New(o)
	w.well.changed, w.ill.changed = l.Changed, l.Changed
	ctx, cancel := context.WithCancel(t.Context())
	ctx = guard.Report(ctx, note)
	done := make(chan struct{})
	go func() { defer close(done); guard.Keep(ctx, "machine loop", l.Run) }()
	defer func() { cancel(); <-done }()
	look := func(at string) {
		t.Helper()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		m := l.Machine()
		if s := m.Status[wellKind]; s.State != accel.Ready || offered == nil || offered() != nil {
			t.Errorf("%s: the other kind is %q: %s", at, s.State, s.Sentence)
		}
		if old := time.Since(m.Taken); old > time.Minute {
			t.Errorf("%s: the last pass was %v ago", at, old)
		}
		if f := m.Status[illKind].Blocked; f != nil {
			note(illKind, &f.Problem)
		}
		if u := m.Have[illKind].Driver.Upgrade; u != nil && u.Failure != nil {
			note(illKind, &u.Failure.Problem)
		}
	}
	look("at first")
	w.late.Store(true)
	w.ill.set(func() { w.ill.wanted = "2" })
	l.Wake(false)
	look("with an upgrade")
	w.ill.set(func() { w.ill.holders = nil })
	close(w.ill.free)
	look("without a holder")
	next := want
	next.Kinds = map[string]*accel.Definition{wellKind: want.Kinds[wellKind], illKind: define(illKind, "0002")}
	next.Kinds[illKind].Driver.Upgrade.Timeout = "1h"
	l.Configure(next)
	look("with another definition")
	next.Kinds = map[string]*accel.Definition{wellKind: want.Kinds[wellKind]}
	l.Configure(next)
	look("without the kind")
	if w.panics.Load() == 0 {
		t.Error("it was not called")
	}
	if text := fmt.Sprint(reasons); !strings.Contains(text, "panic: an error in "+sick) {
		t.Errorf("no reason says it: %.300q", text)
	}
}
