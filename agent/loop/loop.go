package loop

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// Probes read the machine. They are quick and change nothing.
type Probes struct {
	Facts func() accel.Facts
	// Read reads the attributes of a kind's devices on the bus, as Facts last found them, but for those that another
	// kind has. Accelerators returns the devices as they were last read. Enrich adds what the kind's probe program
	// reports, and Judge their health; both return the slice that they got. Reset reports whether somebody resets a
	// device. The loop fills in Health.Since.
	Read         func(def *accel.Definition, lost map[string]bool)
	Accelerators func(def *accel.Definition, lost map[string]bool) []accel.Accelerator
	Enrich       func(*accel.Definition, []accel.Accelerator) []accel.Accelerator
	Judge        func(*accel.Definition, []accel.Device, []accel.Accelerator) []accel.Accelerator
	Reset        func(id string) bool
	// Collect reads the metrics of one device. With an error, it still returns the metrics that could be read.
	Collect func(*accel.Definition, accel.Accelerator) (map[string]float64, error)
	// Program returns the status of a kind's probe program; nil if it has none.
	Program func(kind string) *accel.ProbeHave
	Driver  func(*accel.Definition, accel.Facts, []accel.Accelerator) (accel.DriverHave, *accel.Problem)
	Runtime func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem)
}

// Effects change the machine. Each may take a while. The loop runs at most one per kind at a time.
type Effects struct {
	Ensure func(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator) (accel.DriverHave, *accel.Problem)
	Prove  func(context.Context, *accel.Definition, []accel.Accelerator) (accel.Proof, *accel.Problem)
	// Prepare fetches or builds the desired driver without touching the one in use. Upgrade replaces the driver by the
	// one that Prepare returned.
	Prepare func(context.Context, *accel.Definition, accel.Facts) (accel.DriverRef, *accel.Problem)
	Upgrade func(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator, accel.DriverRef) (
		accel.DriverHave, *accel.Problem)
	// Holders returns who uses a kind's driver. It returns a problem if there may be more holders because a source
	// has not answered. AwaitHolder returns nil when one of the holders has ended, and otherwise waits until ctx
	// ends. Evictor returns what evicts in one upgrade while no device is given out: it calls look, which finds the
	// holders, and asks the API server to evict those of the pods among them that were there at its first call.
	Holders     func(context.Context, *accel.Definition, []accel.Accelerator) ([]accel.Holder, *accel.Problem)
	AwaitHolder func(context.Context, []accel.Holder) error
	Evictor     func() func(ctx context.Context, look func() []accel.Holder) *accel.Problem

	Apply    func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem)
	Withdraw func(*accel.Definition) *accel.Problem
	// Publish is called with every new machine, for the hook's gate and the API server.
	Publish func(accel.Machine)
	// Plugin starts the plugin that offers a kind to the kubelet: the device plugin or the DRA plugin, as the
	// definition says. It is nil on hosts that never have a kubelet.
	Plugin func(context.Context, *accel.Definition) Plugin
	// Redefine gives the plugin of a kind another definition, with the same names of resources.
	Redefine func(*accel.Definition)
	// Early reports whether a kind's plugin must start without waiting for the driver, because pods may hold devices
	// that only this plugin can unprepare. Nil means never.
	Early func(*accel.Definition) bool
	// Steps runs a definition's own steps.
	Steps func(
		context.Context, *accel.Definition, accel.Facts, []accel.Accelerator, accel.Published, accel.Moment,
	) *accel.Problem
}

// Plugin offers the devices of one kind to the kubelet.
type Plugin interface {
	Update([]accel.Accelerator)
	State() accel.PluginHave
	Problem() *accel.Problem
}

// Observer receives state changes and failures, for metrics.
type Observer interface {
	Observe(kind string, from, to accel.State, took time.Duration)
	ObserveFailure(kind string, step accel.Step, reason accel.Reason)
}

// Sync is what the API server has about this node.
type Sync struct {
	Labelled bool
	Problem  *accel.Problem
	// Handshakes are those between node and controller, by kind, all from one version of the node object.
	Handshakes map[string]Handshake
	// Maintenance says who else works on the node, from the same object. MaintenanceUnknown is true until the API
	// server has been asked for the first time.
	Maintenance        []accel.Maintenance
	MaintenanceUnknown bool
	// Drained is whether the controller has begun to drain the node for an upgrade.
	Drained bool
}

// Options of a [Loop].
type Options struct {
	Agent    accel.Agent
	Want     accel.Want
	Probes   Probes
	Effects  Effects
	Observer Observer
	Log      *slog.Logger
	// Work returns the work on drivers that is in progress; nil if nothing knows.
	Work func() []accel.Progress
	// Problems returns the parts of the agent that do not work; nil if nothing knows.
	Problems func() []accel.PartProblem
	// Note is told why the work for a kind fails by an error in acceld, as for "kind qemu-edu", and with nil when it
	// works; nil drops it.
	Note func(part string, err error)
	// KubeSync returns what the API server has; nil without credentials.
	KubeSync func() Sync
	// KubeletAuto makes Want.Kubernetes follow whether a kubelet is on the host.
	KubeletAuto bool
	// SampleEvery is how often metrics are read. Resync is how often the host is read even without an event.
	SampleEvery, Resync time.Duration
}

// Loop is the one writer of the machine value. See the package comment.
type Loop struct {
	o       Options
	wake    chan bool     // an event: the host may have changed; true if a failed step may succeed now
	changes chan struct{} // a plugin or the API server has news
	wants   chan accel.Want
	done    chan outcome // a step ended
	now     atomic.Pointer[newest]
	beat    atomic.Int64 // unix nanoseconds of the last pass
	ready   chan struct{}
	once    sync.Once
	kinds   map[string]*kind // owned by Run
	// rivals are the devices that several kinds recognise; owned by Run.
	rivals []accel.Rivalry
	// groups are the IOMMU groups that devices share; owned by Run.
	groups []accel.SharedGroup
	facts  accel.Facts // owned by Run
	known  bool        // facts have been read; owned by Run
	want   accel.Want  // owned by Run
}

// newest is the newest snapshot; replaced is closed when there is a newer one.
type newest struct {
	machine  accel.Machine
	replaced chan struct{}
}

// kind is what the loop keeps about one kind between passes. Every field that is not derived names its reader.
type kind struct {
	def  *accel.Definition
	have accel.Have
	// status is the last verdict. The next pass reads its state, since and took to record transitions.
	status accel.Status
	// running is the step in flight; no other step starts before it has ended.
	running accel.Step
	// sampling is true while a collection is in flight: collections of a hanging device must neither stop the loop
	// nor pile up.
	sampling bool
	// ended is the step that ended last; start reads it to limit how often the step runs.
	ended   accel.Step
	endedAt time.Time
	// proven maps a device to the driver identity with which it passed its check; observe reads it to set
	// Driver.Proven.
	proven map[string]string
	// skipped says, by device, why its check did not take place; such a device is in proven too.
	skipped map[string]string
	proof   string
	at      time.Time
	plugin  Plugin
	stop    context.CancelFunc
	// told is whether a plugin has been given the inventory since the kind was added; offer reads it.
	told bool
	// up is the driver that should replace the one in use; nil if none should.
	up *upgrading
	// report is the node's last upgrade report; observeReport reads it when the previous driver is not back.
	report accel.UpgradeReport
	// replaced is true when this agent has completed an upgrade; observeReport reads it: no report of an earlier agent
	// is open any more.
	replaced bool
	// next is the preflight result for other kernels; observe reads it to show it.
	next map[string]accel.Readiness
	// read is when the devices were last read; accelerators reads it.
	read time.Time
	// vanished maps a device to when it left the bus; observe reads it to end tombstones.
	vanished map[string]time.Time
	// stepped maps the definition's own steps that completed to the driver identity that they ran with; observe reads
	// it to set StepsLeft.
	stepped map[ownMoment]string
	// began is when the kind was added. arrived is when the log said where it is since then; transit and logHealth read
	// it.
	began, arrived time.Time
	// fault is the panic of the last pass over this kind, faults how many there were in a row, and again when it is
	// tried again; attempt reads them.
	fault  error
	faults int
	again  time.Time
}

// outcome is the end of a step.
type outcome struct {
	kind    string
	step    accel.Step
	merge   func(*kind)
	problem *accel.Problem
}

// New returns a loop that has not observed anything yet.
func New(o Options) *Loop {
	l := &Loop{
		o: o, want: o.Want, kinds: map[string]*kind{}, ready: make(chan struct{}),
		wake: make(chan bool, 256), changes: make(chan struct{}, 1), wants: make(chan accel.Want, 1),
		done: make(chan outcome, 16),
	}
	for name, def := range o.Want.Kinds {
		l.kinds[name] = newKind(def, time.Now())
	}
	l.beat.Store(time.Now().UnixNano())
	l.store(l.snapshot(time.Time{}))
	return l
}

// String names the task.
func (l *Loop) String() string { return "machine loop" }

// Ready is closed after the first pass.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Machine returns the newest snapshot.
func (l *Loop) Machine() accel.Machine { return l.now.Load().machine }

// Follow returns the newest snapshot and a channel that is closed when there is a newer one.
func (l *Loop) Follow() (m accel.Machine, replaced <-chan struct{}) {
	n := l.now.Load()
	return n.machine, n.replaced
}

// Beat returns when the loop last completed a pass or found nothing to do. The watchdog and /livez read it.
func (l *Loop) Beat() time.Time { return time.Unix(0, l.beat.Load()) }

// Wake notifies the loop that something on the host may have changed. With helps, the loop also retries steps that
// failed permanently, because a file that they read has changed. Wake never blocks: if the queue is full, a pass is
// due anyway.
func (l *Loop) Wake(helps bool) {
	select {
	case l.wake <- helps:
	default:
	}
}

// Changed notifies the loop that a device's health, a plugin or the API server has news that does not require reading
// the host or its devices.
func (l *Loop) Changed() {
	select {
	case l.changes <- struct{}{}:
	default:
	}
}

// settle is how long events are collected before the host is read once for all of them: one hot-plug causes a dozen.
const settle = 10 * time.Millisecond

// pulse is the longest time that the loop waits. It must be well below the watchdog's interval.
const pulse = 5 * time.Second

// Run observes, decides and starts steps until ctx ends. It returns after the steps in flight have ended. After a panic
// the plugins go on: the kubelet must not lose the devices because of it.
func (l *Loop) Run(ctx context.Context) error {
	sample, resync := time.NewTicker(l.o.SampleEvery), time.NewTicker(l.o.Resync)
	defer sample.Stop()
	defer resync.Stop()
	outer := ctx
	ctx, end := context.WithCancel(outer)
	var steps guard.Group
	defer steps.Wait()
	defer func() {
		if outer.Err() != nil {
			l.stopPlugins()
		}
	}()
	defer end()
	l.forget()
	w := &worker{Loop: l, ctx: ctx, plugins: outer, steps: &steps}
	w.readFacts()
	for look := deep; ; {
		if look != nothing {
			w.pass(look)
			l.once.Do(func() { close(l.ready) })
		}
		l.beat.Store(time.Now().UnixNano())
		wait := l.untilRetry()
		timer := time.NewTimer(wait)
		look = deep
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case helps := <-l.wake:
			helps = l.gather(ctx) || helps
			before := fingerprint(l.facts)
			w.readFacts()
			if helps || fingerprint(l.facts) != before {
				l.forgive()
			}
		case <-l.changes:
			look = verdicts
		case want := <-l.wants:
			l.reconfigure(want)
			w.readFacts() // the kinds may be on other buses
		case r := <-l.done:
			if r.step == accel.StepNone {
				look = shallow // a sample changed nothing on the host
			}
			l.finish(r)
		case <-sample.C:
			w.collect()
			look = nothing // its outcome triggers a pass
		case <-resync.C:
			w.readFacts()
		case <-timer.C:
			if wait == pulse {
				look = nothing // it only proves that the loop is alive
			}
		}
		timer.Stop()
		if ctx.Err() != nil { // observe no shutdown: the plugins are gone, the devices are not
			return nil
		}
	}
}

// gather drains the events that closely follow the first one, and reports whether one of them helps.
func (l *Loop) gather(ctx context.Context) bool {
	timer := time.NewTimer(settle)
	defer timer.Stop()
	helps := false
	for {
		select {
		case h := <-l.wake:
			helps = helps || h
		case <-timer.C:
			return helps
		case <-ctx.Done():
			return helps
		}
	}
}

// fingerprint is equal for two readings of a host if no device, binding or module changed. A step that loads and
// unloads a module causes events but does not change the fingerprint, so its failure does not trigger its own retry.
func fingerprint(f accel.Facts) string {
	var b strings.Builder
	for _, d := range f.All() {
		b.WriteString(d.Address + d.Vendor + d.Device + d.Driver + ";")
	}
	for _, m := range f.Modules {
		b.WriteString(m.Name + m.BuildID + m.SrcVersion + m.State + ";")
	}
	return b.String() + f.Kernel.Headers
}

// depth is how much of the host a pass reads.
type depth int

const (
	nothing depth = iota
	// verdicts judges the devices as last read, and reads the plugin's state and what the API server reported.
	verdicts
	// shallow also reads the devices' own attributes.
	shallow
	// deep also reads modules and files.
	deep
)

// pass observes every kind, records transitions, publishes the machine and starts the steps that are due.
func (w *worker) pass(look depth) {
	if w.o.KubeletAuto {
		w.want.Kubernetes = w.facts.Kubelet.Present
	}
	w.dismissUnwanted()
	observeMaintenance(&w.facts, w.o.KubeSync)
	if look == deep {
		w.findRivals()
	}
	now := time.Now()
	for _, k := range w.kinds {
		if now.After(k.again) {
			k.fault = nil
		}
		w.attempt(k, func() { w.observe(k, now, look) })
	}
	w.judge(now)
	for _, name := range slices.Sorted(maps.Keys(w.kinds)) {
		k := w.kinds[name]
		w.attempt(k, func() {
			w.startEarly(k)
			w.start(k)
		})
		w.conclude(k, now)
	}
}

// judge derives every status from the machine, records transitions and publishes.
func (l *Loop) judge(now time.Time) {
	m := l.snapshot(now)
	for name, k := range l.kinds {
		l.attempt(k, func() {
			next := Next(m, name)
			next.Since, next.Took = k.status.Since, k.status.Took
			if next.State != k.status.State {
				l.transit(m, name, k, &next, now)
			}
			k.status, m.Status[name] = next, next
			arrive(l.o, k, now)
		})
	}
	before := l.Machine()
	l.store(m)
	l.logHealth(before, m)
	if l.o.Effects.Publish != nil {
		l.o.try("publication", func() { l.o.Effects.Publish(m) })
	}
}

// snapshot returns a machine with what the loop holds now. It copies everything, so nobody can change it later.
func (l *Loop) snapshot(now time.Time) accel.Machine {
	m := accel.Machine{
		Taken: now, Agent: l.o.Agent, Facts: l.facts, Want: l.want,
		Have: map[string]accel.Have{}, Status: map[string]accel.Status{},
	}
	if l.o.Problems != nil {
		m.Agent.Problems = l.o.Problems()
	}
	for name, k := range l.kinds {
		h := k.have
		h.Accelerators, h.Work = k.inventory(), nil
		if l.o.Work != nil {
			h.Work = slices.DeleteFunc(l.o.Work(), func(p accel.Progress) bool { return p.Kind != name })
		}
		m.Have[name] = h
		m.Status[name] = k.status
	}
	return m
}

func (l *Loop) store(m accel.Machine) {
	before := l.now.Swap(&newest{m, make(chan struct{})})
	if before != nil {
		close(before.replaced)
	}
}

func (l *Loop) stopPlugins() {
	for _, k := range l.kinds {
		if k.stop != nil {
			k.stop()
			k.stop, k.plugin = nil, nil
		}
	}
}
