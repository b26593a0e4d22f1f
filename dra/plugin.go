package dra

import (
	"context"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// Config says what a plugin serves and with what.
type Config struct {
	// Definition describes the kind until [Plugin.Redefine].
	Definition *accel.Definition
	// Node is the name of the agent's own node.
	Node string
	Host *host.Host
	// Ledger writes the CDI specs of claims.
	Ledger *ledger.Ledger
	// StateDir is the state directory as the host sees it. The records of prepared claims are in its "dra/<kind>".
	StateDir string
	// KubeletRoot is the kubelet's --root-dir as the host sees it; "/var/lib/kubelet" if empty.
	KubeletRoot string
	// API is the API server's client. Without it nothing is published and no claim can be prepared.
	API kube.API
	// Machine returns the newest snapshot, from which the PCI functions and the driver's version are read.
	Machine func() accel.Machine
	// Edits returns what a container gets with an accelerator: the edits that the kind shares, and the device's own.
	Edits func(*accel.Definition, accel.Accelerator) (shared, own specs.ContainerEdits, problem *accel.Problem)
	// Check lets devices that a claim has got, and nobody uses yet, pass their self-test. It returns why one did not.
	Check func(context.Context, *accel.Definition, []accel.Accelerator) *accel.Problem
	// Give gives a device to the other use that a claim asks for, and returns it as it is then. Whoever has prepared
	// that claim no more loses it: see [Prepared].
	Give func(ctx context.Context, def *accel.Definition, a accel.Accelerator, claim, name string) (accel.Accelerator,
		*accel.Problem)
	// Shape makes the part of a device that a claim gets, or makes a device whole that a claim gets, and returns it as
	// it is then. Whether a claim needs a part, [NeededParts] says. It is called for kinds that are divided for claims.
	Shape func(ctx context.Context, def *accel.Definition, a accel.Accelerator, claim, name string) (accel.Accelerator,
		*accel.Problem)
	// Elsewhere returns who holds devices of the kind other than by claims, by accelerator id. No claim gets such a
	// device until it is released. Nil means that there is no other way to hold one.
	Elsewhere func(context.Context) (map[string]string, error)
	// Lists says that the cluster has the feature gate DRAListTypeAttributes: NUMA nodes are published as lists, unless
	// the API server refuses them.
	Lists bool
	// Alive returns an error if nothing monitors the devices any more; their health is then no longer confirmed to
	// the kubelet. May be nil.
	Alive func() error
	// Log gets one record per transition. If nil, nothing is logged.
	Log *slog.Logger
	// OnChange is called after [Plugin.State] or [Plugin.Problem] changed. No lock is held. It must not block. May
	// be nil.
	OnChange func()
	// OnClaims is called after a claim was written down or unprepared, while that claim's lock is held. It must not
	// block. May be nil.
	OnClaims func()
}

// Plugin is the DRA plugin of one kind of accelerator. Its methods may be called from any goroutine.
type Plugin struct {
	cfg         Config
	driver      string
	registry    string // the directory in which the kubelet discovers plugins
	directory   string // of the sockets that it then calls
	timing      timing
	api         objects
	list        *inventory
	book        *book
	claims      keyed
	pluginState *pluginState
	retired     atomic.Bool
	withdrawn   atomic.Bool // the slices of a retired plugin are deleted
	stranded    stranded
	refused     refused
	followed    atomic.Bool // the claims of the cluster are followed
	written     sync.Map    // the digest of the CDI spec that was last written for each prepared claim, by UID
	// wake tells the publisher that what it publishes may have changed.
	wake chan struct{}
	// released gets a value when a claim was unprepared or everything was withdrawn.
	released chan struct{}
}

// timing holds every duration, so that tests can shorten them.
type timing struct {
	settle  time.Duration // collects changes that come together
	retry   pace.Backoff  // after a failure at the kubelet
	remote  pace.Backoff  // after one at the API server, which all nodes share
	unheard time.Duration // how long to wait for the kubelet to take a registration; doubles up to unheardMax
	// lost is how long the kubelet may be without a connection before the plugin registers again, although the
	// kubelet lists it as registered: 1.34.0 and 1.34.1 could lose an idle connection permanently
	// (kubernetes/kubernetes#133920).
	lost       time.Duration
	unheardMax time.Duration
	request    time.Duration // deadline of one request to the API server
	confirm    time.Duration // between two health messages; the kubelet trusts one for 30 s (dra-health/v1)
	look       time.Duration // between checks of who holds devices in another way, while anyone does
	stop       time.Duration // how long calls in flight may take when a socket is closed
	// strand is how long pods wait for a sick device before they are sent elsewhere, strandReset the same for one that
	// acceld resets.
	strand, strandReset time.Duration
}

func usual() timing {
	return timing{
		settle: 20 * time.Millisecond, retry: pace.Backoff{First: 100 * time.Millisecond, Max: time.Minute},
		remote:  pace.Backoff{First: time.Second, Max: time.Minute},
		unheard: 15 * time.Second, lost: 30 * time.Second, unheardMax: 5 * time.Minute,
		request: 10 * time.Second, confirm: 10 * time.Second, look: 10 * time.Second, stop: 500 * time.Millisecond,
		strand: 30 * time.Second, strandReset: 2 * time.Minute,
	}
}

// New returns a plugin that serves nothing until [Plugin.Run] is called.
func New(cfg Config) *Plugin {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.KubeletRoot == "" {
		cfg.KubeletRoot = "/var/lib/kubelet"
	}
	if cfg.API == nil {
		cfg.API = anonymous{}
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
		cfg: cfg, driver: driver, registry: path.Join(cfg.KubeletRoot, "plugins_registry"),
		directory: path.Join(cfg.KubeletRoot, "plugins", driver), timing: t, api: objects{cfg.API, t.request},
		list:        newInventory(cfg.Definition),
		book:        newBook(cfg.Host, records(cfg.StateDir, cfg.Definition), cfg.Log),
		pluginState: &pluginState{changed: cfg.OnChange},
		wake:        make(chan struct{}, 1), released: make(chan struct{}, 1),
	}
}

// Driver returns the name of the driver.
func (p *Plugin) Driver() string { return p.driver }

// State is what is known about the kubelet and the API server. Allocatable is how many devices the published slices
// offer, as read back from the API server. It is unknown while the slices are not as they should be.
func (p *Plugin) State() accel.PluginHave {
	have, _ := p.pluginState.get()
	return have
}

// Problem says why not every healthy device is offered. It is nil if all are offered or no obstacle is known. The
// reasons are KubeletAbsent, RegistrationFailed, APIUnreachable, APIForbidden, ClaimsUnsupported, NodeNotFound,
// DeviceHeld, ProbeUnanswered, and PermissionDenied, ReadOnly or NoSpace for sockets and records.
func (p *Plugin) Problem() *accel.Problem {
	_, problem := p.pluginState.get()
	return problem
}

// Redefine replaces the definition by another one of the same resource. It never blocks. The kubelet keeps its
// connection, and claims stay prepared.
func (p *Plugin) Redefine(def *accel.Definition) {
	p.list.replace(func(v *version) { v.def = def })
	p.poke()
}

// Update replaces the inventory. It never blocks. A device that is gone or not healthy is published with a taint.
func (p *Plugin) Update(accelerators []accel.Accelerator) {
	p.list.update(accelerators)
	p.poke()
}

// Retire makes the plugin withdraw its offer and refuse claims that it has not prepared. [Plugin.Run] returns as
// soon as the last claim is unprepared. Running pods keep their devices and end normally.
func (p *Plugin) Retire() {
	p.retired.Store(true)
	p.poke()
}

// Run serves the kubelet and the API server until ctx ends, across any number of their restarts. The slices stay
// published: the kubelet removes them if no plugin comes back. Run returns a *accel.Problem if the directory of the
// records cannot be read or created, and nil otherwise. Call it once.
func (p *Plugin) Run(ctx context.Context) error {
	problem := p.book.open()
	if problem == nil && !p.retired.Load() {
		problem = p.book.begin()
	}
	if problem != nil {
		p.pluginState.setRegistration(problem, nil)
		return problem
	}
	p.cfg.OnChange()
	ctx, cancel := context.WithCancel(ctx)
	var wg guard.Group
	defer wg.Wait()
	defer cancel()
	keep := func(part string, run func(context.Context)) {
		wg.Keep(ctx, "DRA plugin "+p.driver+": "+part, func(ctx context.Context) error { run(ctx); return nil })
	}
	keep("registration", p.register)
	wg.Keep(ctx, "DRA plugin "+p.driver+": slices", p.publish)
	wg.Keep(ctx, "DRA plugin "+p.driver+": claims", newAhead(p).run)
	keep("records", p.tidy)
	keep("devices", p.refresh)
	for ctx.Err() == nil && !p.done() {
		select {
		case <-ctx.Done():
		case <-p.released:
			// OnChange makes the agent look at every device, so report pods that end together only once.
			_ = pace.Sleep(ctx, p.timing.settle)
			p.cfg.OnChange()
		}
	}
	cancel()
	wg.Wait()
	if p.done() {
		p.book.end()
	}
	p.pluginState.setRegistration(nil, func(h *accel.PluginHave) { h.Registered = false })
	return nil
}

// done reports whether the plugin is retired, offers nothing and holds no claim.
func (p *Plugin) done() bool { return p.retired.Load() && p.withdrawn.Load() && p.book.empty() }

// poke wakes the publisher.
func (p *Plugin) poke() { signal(p.wake) }

// release reports that a claim was released, and tells Run that there may be nothing left to do.
func (p *Plugin) release() {
	p.cfg.OnClaims()
	signal(p.released)
}

// signal puts a value into a channel that has room for one, unless it is there already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
