// Package deviceplugin offers one kind of accelerator to the kubelet: it is a device plugin (API v1beta1) whose
// registration cannot get stuck. It renders the accelerators that [Plugin.Update] reports, and answers every call of
// the kubelet from memory. It touches only sockets in the kubelet's directories, and reads the kubelet's checkpoint
// there. It may not inspect devices, and makes no health decisions.
package deviceplugin

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Config says what a plugin serves and where the kubelet is.
type Config struct {
	// Resource is the extended resource, such as "qemu.org/edu".
	Resource string
	// Dir is the directory of kubelet.sock as this process sees it, such as "/var/lib/kubelet/device-plugins". It
	// may not exist yet. Its path is fixed in the kubelet and does not follow the kubelet's --root-dir.
	Dir string
	// PodResources is the kubelet's PodResources socket as this process sees it, such as
	// "/var/lib/kubelet/pod-resources/kubelet.sock". If it is empty nothing can be checked: Allocatable stays
	// unknown and tombstones stay permanently.
	PodResources string
	// Pods returns the pods that have containers. If it is set, they hold what the kubelet's checkpoint in Dir says,
	// even if the kubelet does not list them.
	Pods func() (host.Pods, error)
	// Former are names that the resource had, or may have had, before. Devices that pods hold under them are not
	// offered.
	Former []string
	// CDI makes Allocate answer with the CDI names "<Definition.Resource>=<ID>". Otherwise it answers with device
	// nodes, environment and mounts.
	CDI bool
	// Definition describes the kind until [Plugin.Redefine]. Its Kind is part of the socket's name, its Resource is
	// the CDI kind, and its Sharing says how often each device is offered. Its Container edits are used if CDI is
	// false.
	Definition *accel.Definition
	// Profile is the profile of the partitions to serve; empty for whole devices.
	Profile string
	// Bound returns the containers, of pods bound to this node, that request a resource: pods in the order in which
	// devices were chosen for them, containers in the order in which the kubelet gives them theirs. Changed is
	// closed when the result changes; it is nil if it will never be known. Known is false while the containers are
	// not known. Bound is nil if only the kubelet chooses devices.
	Bound func(resource string) (all []Bound, changed <-chan struct{}, known bool)
	// Connections keeps the kubelet's connections when this process ends. Nil means that they end too.
	Connections Connections
	// Inherited returns the connections that the previous process kept for a resource; nil if none ever are.
	Inherited func(resource string) []net.Conn
	// Log gets one record per transition. If nil, nothing is logged.
	Log *slog.Logger
	// OnChange is called after each change of [Plugin.State] or [Plugin.Problem], from one goroutine and without
	// holding a lock. Changes during a call are reported by one more call. May be nil.
	OnChange func()
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// complete fills in the defaults.
func (c Config) complete() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Connections == nil {
		c.Connections = ending{}
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Plugin is the device plugin of one kind of accelerator. Its methods may be called from any goroutine.
type Plugin struct {
	cfg         Config
	timing      timing
	list        *inventory
	kubelet     *kubelet
	pluginState *pluginState
	chooser     *chooser
	watchdog    watchdog
}

// timing holds every duration, so that tests can shorten them.
type timing struct {
	// register is the deadline of one Register call; the kubelet itself gives up after 10 s
	// (plugin/v1beta1/client.go)
	register time.Duration
	open     time.Duration // from Register to the kubelet's ListAndWatch
	overlap  time.Duration // how long the previous process's connections stay beside a new registration
	ask      time.Duration // deadline of one call to PodResources
	askFirst time.Duration // from a new list to the first check; doubles up to askMax while the answer differs
	askMax   time.Duration
	zero     time.Duration // how long the kubelet may count none of the healthy devices
	differs  time.Duration // how long it may count other devices than the healthy ones
	resync   time.Duration // between checks when all is well
	silent   time.Duration // how long PodResources may fail to answer before it is a problem
	grace    time.Duration // how long a tombstone stays at least
	retry    time.Duration // after a failed registration; doubles up to retryMax
	retryMax time.Duration
	stop     time.Duration // how long calls in flight may take when a socket is closed
	poll     time.Duration // between looks at the directory if inotify is not available
}

func defaultTiming() timing {
	return timing{
		register: 12 * time.Second,
		open:     5 * time.Second,
		overlap:  callDeadline,
		ask:      2 * time.Second,
		askFirst: 3 * time.Millisecond,
		askMax:   250 * time.Millisecond,
		zero:     500 * time.Millisecond,
		differs:  10 * time.Second,
		resync:   30 * time.Second,
		silent:   2 * time.Minute,
		// After the same time the kubelet forgets a resource without a plugin (devicemanager/types.go,
		// endpointStopGracePeriod).
		grace:    5 * time.Minute,
		retry:    50 * time.Millisecond,
		retryMax: 10 * time.Second,
		stop:     500 * time.Millisecond,
		poll:     2 * time.Second,
	}
}

// New returns a plugin that serves nothing until [Plugin.Run] is called.
func New(cfg Config) *Plugin {
	cfg = cfg.complete()
	cfg.Log = cfg.Log.With("resource", cfg.Resource)
	t := defaultTiming()
	k := &kubelet{
		resource: cfg.Resource, former: cfg.Former, socket: cfg.PodResources, dir: cfg.Dir, pods: cfg.Pods,
		young: YoungKubelet,
	}
	return &Plugin{
		cfg:     cfg,
		timing:  t,
		list:    newInventory(cfg.Definition),
		kubelet: k,
		chooser: &chooser{
			resource: cfg.Resource, bound: cfg.Bound, holders: k.latest, log: cfg.Log, given: map[containerKey]bool{},
		},
		pluginState: &pluginState{changed: make(chan struct{}, 1)},
		watchdog:    watchdog{timing: t},
	}
}

// Names are the extended resource and its previous names.
func (p *Plugin) Names() []string { return append([]string{p.cfg.Resource}, p.cfg.Former...) }

// State is what is known about the kubelet's view. Allocatable is unknown from the end of a stream until the kubelet
// answers during the next one.
func (p *Plugin) State() accel.PluginHave {
	have, _ := p.pluginState.get()
	return have
}

// Problem says why the kubelet does not offer every healthy device. It is nil if it offers all or no obstacle is
// known. The reasons are KubeletAbsent, RegistrationFailed, AllocatableDiffers, ProbeUnanswered, PermissionDenied,
// ReadOnly or NoSpace for the socket, and DeviceHeld for devices that pods hold as they were offered before.
func (p *Plugin) Problem() *accel.Problem {
	_, problem := p.pluginState.get()
	if n := p.list.load().taken(); problem == nil && n > 0 {
		return accel.Problemf(accel.DeviceHeld, "%d devices are held by pods as they were offered before", n)
	}
	return problem
}

// Redefine makes the next [Plugin.Update] follow another definition of the same resource. The kubelet keeps its stream.
func (p *Plugin) Redefine(def *accel.Definition) { p.list.redefine(def) }

// Update replaces the inventory. It never blocks. The kubelet gets a new list only if the list changes. A device
// that is gone, or is no longer reported, stays as an unhealthy tombstone until no pod holds it.
func (p *Plugin) Update(accelerators []accel.Accelerator) {
	p.list.update(accelerators, p.cfg.Now())
}

// Holders returns which container holds which device or replica, by the kubelet's id (see [DeviceOf]), according to
// the kubelet's PodResources List and its checkpoint. It includes what is held under previous names of the resource.
// With an error it returns what is known, which may be nothing.
func (p *Plugin) Holders(ctx context.Context) (map[string]PodRef, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.ask)
	defer cancel()
	held, err := p.kubelet.holders(ctx)
	all := map[string]PodRef{}
	maps.Copy(all, held.before)
	maps.Copy(all, held.now)
	return all, err
}

// Run serves the kubelet until ctx ends, across any number of its restarts. It starts with the first Update, so that
// the kubelet never gets an empty list that means "not known yet". It returns only when ctx ends, always nil. Call
// it once.
func (p *Plugin) Run(ctx context.Context) error {
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx)) // until the last change is reported
	var wg guard.Group
	defer wg.Wait()
	defer cancel()
	name := "device plugin " + p.cfg.Resource
	dir := watchDirectory(beside, p.cfg.Dir, p.timing, p.cfg.Log)
	wg.Keep(beside, name+": kubelet's directory", dir.run)
	wg.Keep(beside, name+": reports", func(ctx context.Context) error {
		p.pluginState.report(ctx, p.cfg.OnChange)
		return nil
	})
	p.register(ctx, dir)
	p.kubelet.close()
	return nil
}
