package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/runtime"
)

// plugins offer kinds to the kubelet. The loop starts them; everything that needs the holders of devices reads them.
type plugins struct {
	*Setup
	ctx     context.Context //nolint:containedctx // the agent's own: claims outlive a kind's plugin
	group   *guard.Group
	machine func() accel.Machine
	// changed notifies the loop of news from a plugin; poke notifies the follower of holders.
	changed, poke func()
	alive         func() error
	connections   left
	runtime       *runtime.Runtime
	// documents reads and writes the objects of claims; nil without credentials.
	documents *kube.Documents
	// check lets devices that a claim has got pass their self-test; see dra.Config.
	check func(context.Context, *accel.Definition, []accel.Accelerator) *accel.Problem
	// give gives a device to the other use that a claim asks for; see dra.Config.
	give func(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string) (accel.Accelerator,
		*accel.Problem)
	// shape makes parts of devices for claims; see dra.Config.
	shape func(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string) (accel.Accelerator,
		*accel.Problem)
	// bound returns the containers of this node's pods that ask for a resource; see deviceplugin.Config.
	bound func(resource string) (all []deviceplugin.Bound, changed <-chan struct{}, known bool)

	mu     sync.Mutex
	bySlot map[string]*serving
	// askers are plugins that only ask the kubelet, by what they ask.
	askers map[string]*deviceplugin.Kind
}

// serving is a plugin that offers a kind to the kubelet until done is closed.
type serving struct {
	stop    context.CancelFunc
	stopped func() bool
	done    chan struct{}
	// Either devices or claims is set.
	devices *deviceplugin.Kind
	claims  *dra.Plugin
}

// devicesOf and claimsOf name the slots of a kind's plugins. A kind has both while pods hold claims that were
// prepared before the device plugin took over.
func devicesOf(def *accel.Definition) string { return "device plugin " + def.Kind }
func claimsOf(def *accel.Definition) string  { return "DRA plugin " + def.Kind }

// slot returns the plugin in a slot; nil if there never was one.
func (p *plugins) slot(name string) *serving {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bySlot[name]
}

// all returns the plugins that offer kinds to the kubelet, including stopped ones.
func (p *plugins) all() []*serving {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.bySlot))
}

// start starts the plugin that offers a kind to the kubelet; it ends with ctx. A kind has one owner: the new plugin
// begins only after the previous one has ended, and does not offer devices that pods got from the other type of
// plugin until those pods have ended.
func (p *plugins) start(ctx context.Context, def *accel.Definition) loop.Plugin {
	if def.AllocatedBy() == accel.AllocateByDRA {
		return p.startClaims(ctx, def, false)
	}
	devices := p.startDevices(ctx, def)
	if !p.early(def) {
		return devices
	}
	return &draining{Plugin: devices, claims: p.startClaims(p.ctx, def, true)}
}

// early reports whether claims of a kind are still prepared, which only its DRA plugin can unprepare.
func (p *plugins) early(def *accel.Definition) bool {
	return dra.Served(p.Host, p.Config.StateDir, def)
}

// serve runs a plugin after the previous one in its slot has ended.
func (p *plugins) serve(ctx context.Context, slot string, s *serving, run func(context.Context) error) {
	ctx, s.stop = context.WithCancel(ctx)
	s.stopped = func() bool { return ctx.Err() != nil }
	s.done = make(chan struct{})
	p.mu.Lock()
	before := p.bySlot[slot]
	if p.bySlot == nil {
		p.bySlot = map[string]*serving{}
	}
	p.bySlot[slot] = s
	p.mu.Unlock()
	p.poke()
	p.group.Go(func() {
		defer close(s.done)
		defer s.stop()
		if before != nil {
			before.stop()
			<-before.done
		}
		guard.Keep(ctx, slot, func(ctx context.Context) error {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				p.Log.Error("plugin ended", "plugin", slot, "error", err)
			}
			return nil
		})
	})
}

func (p *plugins) startDevices(ctx context.Context, def *accel.Definition) *deviceplugin.Kind {
	k := p.devicePlugin(def, p.formerly(def))
	p.serve(ctx, devicesOf(def), &serving{devices: k}, k.Run)
	return k
}

// redefine gives the plugins of a kind another definition of it, with the same names of resources. The kubelet keeps
// their streams.
func (p *plugins) redefine(def *accel.Definition) {
	if s := p.slot(devicesOf(def)); s != nil {
		s.devices.Redefine(def)
	}
	if s := p.slot(claimsOf(def)); s != nil {
		s.claims.Redefine(def)
	}
}

// devicePlugin creates the device plugins of a kind, which had other resource names before.
func (p *plugins) devicePlugin(def *accel.Definition, former []string) *deviceplugin.Kind {
	// The directory is fixed in the kubelet and does not follow its --root-dir.
	dir, err := p.Host.Path("/var/lib/kubelet/device-plugins")
	if err != nil {
		dir = filepath.Join(p.Host.Root(), "/var/lib/kubelet/device-plugins")
	}
	resources, err := p.Host.Path(filepath.Join(p.kubeletRoot(), "pod-resources/kubelet.sock"))
	if err != nil {
		resources = ""
	}
	return deviceplugin.NewKind(deviceplugin.Config{
		Resource: def.Offered(), Former: former, Dir: dir, PodResources: resources, CDI: p.Config.CDI,
		Definition: def, Log: p.Log, Bound: p.bound,
		Pods:        func() (host.Pods, error) { return p.Host.Processes().Pods(p.kubeletRoot()) },
		Connections: p.connections, Inherited: p.connections.Inherited, OnChange: p.changed,
	})
}

// asker returns a kind's device plugin to ask the kubelet who holds devices. If this process has started none, it
// returns one that serves nothing: pods may hold devices since an earlier process.
func (p *plugins) asker(def *accel.Definition) *deviceplugin.Kind {
	if s := p.slot(devicesOf(def)); s != nil {
		return s.devices
	}
	former := p.formerly(def)
	key := fmt.Sprint(p.kubeletRoot(), def.Offered(), former)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.askers == nil {
		p.askers = map[string]*deviceplugin.Kind{}
	}
	if p.askers[key] == nil {
		p.askers[key] = p.devicePlugin(def, former) // it connects when it is asked
	}
	return p.askers[key]
}

// formerly returns the resource names under which pods may still hold devices of a kind, or partitions of them:
// former names from its definition, and names that this process offered before.
func (p *plugins) formerly(def *accel.Definition) []string {
	names := resourceNames(def, p.machine().Have[def.Kind].Accelerators)
	if before := p.slot(devicesOf(def)); before != nil && before.devices != nil {
		names = append(names, before.devices.Names()...)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == def.Offered() })
}

// resourceNames returns all resource names of a kind and of its partitions, including former ones.
func resourceNames(def *accel.Definition, accs []accel.Accelerator) []string {
	names := append(def.FormerlyOffered(), def.Offered())
	if def.VFIO != nil { // pods may have devices that are no longer set aside
		names = append(names, def.OfferedAs(accel.AsideProfile))
	}
	for _, profile := range profiles(def, accs) {
		names = append(names, def.OfferedAs(profile))
		names = append(names, def.FormerlyOfferedAs(profile)...)
	}
	return names
}

// profiles returns the partition profiles that a kind has or may have.
func profiles(def *accel.Definition, accs []accel.Accelerator) []string {
	var all []string
	for _, u := range accel.Flat(accs) {
		if u.Profile != "" {
			all = append(all, u.Profile)
		}
	}
	if def.Partitions != nil {
		for _, p := range def.Partitions.Profiles {
			all = append(all, accel.PartitionWord(p.Name))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (p *plugins) kubeletRoot() string {
	if root := p.machine().Facts.Kubelet.Root; root != "" {
		return root
	}
	return kubeletDir // the kubelet has not started for the first time yet
}

// startClaims starts the DRA plugin of a kind. A retired plugin offers nothing and only unprepares the claims that
// are still prepared.
func (p *plugins) startClaims(ctx context.Context, def *accel.Definition, retired bool) *dra.Plugin {
	node, err := nodeName(p.Config)
	if err != nil {
		node = p.machine().Agent.Node
	}
	c := dra.Config{
		Definition: def, Node: node, Host: p.Host, Ledger: p.Ledger, StateDir: p.Config.StateDir,
		KubeletRoot: p.kubeletRoot(),
		Machine:     p.machine, Alive: p.alive, Log: p.Log, OnChange: p.changed, OnClaims: p.poke,
		Check: p.check, Give: p.give, Shape: p.shape, Lists: p.Config.ListAttributes,
		Edits: func(def *accel.Definition, x accel.Accelerator) (shared, own specs.ContainerEdits,
			problem *accel.Problem,
		) {
			return p.runtime.Edits(def, x, p.machine().Want)
		},
	}
	if p.documents != nil {
		c.API = p.documents
	}
	before := p.slot(devicesOf(def))
	if !retired {
		c.Elsewhere = p.heldDevices(def)
		for _, resource := range append(p.formerly(def), def.Offered()) {
			p.connections.End(resource) // the device plugin does not offer it any more
		}
	}
	claims := dra.New(c)
	if retired {
		claims.Retire()
	}
	p.serve(ctx, claimsOf(def), &serving{claims: claims}, func(ctx context.Context) error {
		if before != nil && !retired { // until it has ended, it may still allocate a device
			select {
			case <-before.done:
			case <-ctx.Done():
			}
		}
		return claims.Run(ctx)
	})
	return claims
}

// heldDevices returns a function that asks the kubelet which devices pods hold through the previous device plugin, of
// this process or of an earlier one.
func (p *plugins) heldDevices(def *accel.Definition) func(context.Context) (map[string]string, error) {
	devices := p.asker(def)
	return func(ctx context.Context) (map[string]string, error) {
		refs, err := devices.Holders(ctx)
		if err != nil {
			return nil, err
		}
		held := map[string]string{}
		for id, r := range refs {
			held[deviceplugin.DeviceOf(id)] = fmt.Sprintf("pod %s through the device plugin", r)
		}
		return held, nil
	}
}

// withdraw removes a kind from the container runtime. A kind whose plugin has stopped may still have claims to
// unprepare, so withdraw starts a retired DRA plugin for them.
func (p *plugins) withdraw(def *accel.Definition) *accel.Problem {
	if now := p.slot(claimsOf(def)); now != nil && now.stopped() && p.early(def) {
		p.startClaims(p.ctx, def, true)
	}
	return p.runtime.Remove(def)
}
