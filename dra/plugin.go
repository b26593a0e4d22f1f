package dra

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// Config says what a plugin serves and with what.
type Config struct {
	// Definition describes the kind.
	Definition *accel.Definition
	// Node is the name of the own node.
	Node string
	Host *host.Host
	// Ledger writes the CDI specs of claims.
	Ledger *ledger.Ledger
	// StateDir is where the records of prepared claims are kept, in "dra/<kind>", as the host sees it.
	StateDir string
	// KubeletRoot is the kubelet's --root-dir as the host sees it; "/var/lib/kubelet" when empty.
	KubeletRoot string
	// API is the way to the API server. Without one nothing is published and no claim can be prepared.
	API kube.API
	// Machine returns the newest snapshot: PCI functions and the driver's version are read from it.
	Machine func() accel.Machine
	// Edits returns what a container gets with an accelerator: what all of the kind share, and its own.
	Edits func(*accel.Definition, accel.Accelerator) (shared, own specs.ContainerEdits, problem *accel.Problem)
	// Elsewhere returns who holds devices of the kind in another way than by claims, by the device's id. Those are
	// given to no claim until they are released. Nil when there is no other way.
	Elsewhere func(context.Context) (map[string]string, error)
	// Alive fails when nobody watches the devices any more; their health is then not confirmed to the kubelet. May be
	// nil.
	Alive func() error
	// Log gets one record per transition. Nil is silence.
	Log *slog.Logger
	// OnChange is called after [Plugin.State] or [Plugin.Problem] changed, under no lock; it must not block. May be
	// nil.
	OnChange func()
	// OnClaims is called when a claim was prepared or taken back, under the lock of that claim; it must not block. May
	// be nil.
	OnClaims func()
}

// Plugin is the DRA plugin of one kind of accelerator. Its methods may be called from any goroutine.
type Plugin struct {
	cfg      Config
	driver   string
	timing   timing
	api      objects
	list     *inventory
	book     *book
	claims   keyed
	standing *standing
	retired  atomic.Bool
	written  sync.Map // of prepared claims by UID, the digest of the CDI spec that was written last
	// wake tells the publisher that what it publishes may have changed.
	wake chan struct{}
	// released is told when a claim was taken back.
	released chan struct{}
}

// timing holds every duration, so that tests can shorten them.
type timing struct {
	settle  time.Duration // gathers the changes of one moment
	retry   pace.Backoff  // after something failed
	unheard time.Duration // how long a registration may wait for the kubelet; doubles up to unheardMax
	// lost is how long the kubelet may be without a connection before its bookkeeping is not believed any more: 1.34.0
	// and 1.34.1 could lose an idle one for good (kubernetes/kubernetes#133920).
	lost       time.Duration
	unheardMax time.Duration
	request    time.Duration // deadline of one request to the API server
	confirm    time.Duration // between two messages of health; the kubelet believes one for 30 s (dra-health/v1)
	look       time.Duration // between looks at who holds devices in another way, while anybody does
	stop       time.Duration // for calls in flight when a socket is closed
}

func usual() timing {
	return timing{
		settle: 20 * time.Millisecond, retry: pace.Backoff{First: 100 * time.Millisecond, Max: time.Minute},
		unheard: 15 * time.Second, lost: 30 * time.Second, unheardMax: 5 * time.Minute,
		request: 10 * time.Second, confirm: 10 * time.Second, look: 10 * time.Second, stop: 500 * time.Millisecond,
	}
}

// New returns a plugin that serves nothing until [Plugin.Run] runs.
func New(cfg Config) *Plugin {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.KubeletRoot == "" {
		cfg.KubeletRoot = "/var/lib/kubelet"
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func() {}
	}
	if cfg.OnClaims == nil {
		cfg.OnClaims = func() {}
	}
	driver := DriverName(cfg.Definition)
	cfg.Log = cfg.Log.With("driver", driver)
	t := usual()
	return &Plugin{
		cfg: cfg, driver: driver, timing: t, api: objects{cfg.API}, list: newInventory(),
		book:     newBook(cfg.Host, records(cfg.StateDir, cfg.Definition), cfg.Log),
		standing: &standing{changed: cfg.OnChange},
		wake:     make(chan struct{}, 1), released: make(chan struct{}, 1),
	}
}

// String names the task.
func (p *Plugin) String() string { return "DRA plugin " + p.driver }

// Driver is the name of the driver.
func (p *Plugin) Driver() string { return p.driver }

// State is what is true about the kubelet and the API server. Allocatable is how many devices the slices offer that
// were read back; unknown while they are not as they should be.
func (p *Plugin) State() accel.PluginHave {
	have, _ := p.standing.get()
	return have
}

// Problem says why not every healthy device is offered; nil when all are or nothing is known against it. The reasons
// are KubeletAbsent, RegistrationFailed, APIUnreachable, APIForbidden, ClaimsUnsupported, NodeNotFound, DeviceHeld,
// ProbeUnanswered, and PermissionDenied, ReadOnly or NoSpace for sockets and records.
func (p *Plugin) Problem() *accel.Problem {
	_, problem := p.standing.get()
	return problem
}

// Update replaces the inventory. It never blocks. A device that is gone or not healthy is published with a taint.
func (p *Plugin) Update(accelerators []accel.Accelerator) {
	p.list.update(accelerators)
	p.poke()
}

// Retire makes the plugin offer nothing any more and refuse claims that it does not know; [Plugin.Run] returns as soon
// as the last one was taken back. Pods that are running keep their devices, and end as they would have.
func (p *Plugin) Retire() {
	p.retired.Store(true)
	p.poke()
}

// Run serves the kubelet and the API server until ctx ends, over any number of their restarts. What is published stays:
// the kubelet takes it away when nobody comes back. It returns a *accel.Problem when the directory of the records
// cannot be read or made, and nil otherwise. It may be called once.
func (p *Plugin) Run(ctx context.Context) error {
	problem := p.book.open()
	if problem == nil && !p.retired.Load() {
		problem = p.book.begin()
	}
	if problem != nil {
		p.standing.setRegistration(problem, nil)
		return problem
	}
	p.cfg.OnChange()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { p.register(ctx) })
	wg.Go(func() { p.publish(ctx) })
	wg.Go(func() { p.tidy(ctx) })
	wg.Go(func() { p.refresh(ctx) })
	for ctx.Err() == nil && !p.done() {
		select {
		case <-ctx.Done():
		case <-p.released:
			// the agent looks at every device then: once for pods that end together
			_ = pace.Sleep(ctx, p.timing.settle)
			p.cfg.OnChange()
		}
	}
	cancel()
	wg.Wait()
	if p.done() {
		p.book.end()
	}
	p.standing.setRegistration(nil, func(h *accel.PluginHave) { h.Registered = false })
	return nil
}

// done reports whether the plugin is retired, offers nothing and holds no claim.
func (p *Plugin) done() bool { return p.retired.Load() && p.standing.withdrawn() && p.book.empty() }

// poke wakes the publisher.
func (p *Plugin) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// release tells Run that there may be nothing left to do, and a device is free.
func (p *Plugin) release() {
	p.cfg.OnClaims()
	select {
	case p.released <- struct{}{}:
	default:
	}
}
