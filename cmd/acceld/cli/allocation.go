package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/dra"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// serving is what offers a kind to the kubelet, until done is closed.
type serving struct {
	stop    context.CancelFunc
	stopped func() bool
	done    chan struct{}
	// devices or claims is set.
	devices *deviceplugin.Kind
	claims  *dra.Plugin
}

// plugin starts what offers a kind to the kubelet; it ends with ctx. A kind has one owner: what served it before has
// ended when the new one begins, and devices that pods hold in the other way are not offered before those pods have ended.
func (a *running) plugin(ctx context.Context, def *accel.Definition) agent.Plugin {
	if def.AllocatedBy() == accel.AllocateByDRA {
		return a.serveClaims(ctx, def, false)
	}
	devices := a.serveDevices(ctx, def)
	if !dra.Served(a.host, a.config.StateDir, def) {
		return devices
	}
	return &draining{Plugin: devices, claims: a.serveClaims(a.ctx, def, true)}
}

// serve runs a plugin when the one that was in its slot before has ended.
func (a *running) serve(ctx context.Context, slot string, s *serving, run func(context.Context) error) {
	ctx, s.stop = context.WithCancel(ctx)
	s.stopped = func() bool { return ctx.Err() != nil }
	s.done = make(chan struct{})
	a.mu.Lock()
	before := a.plugins[slot]
	a.plugins[slot] = s
	a.mu.Unlock()
	a.holding.Poke()
	a.group.Go(func() {
		defer close(s.done)
		defer s.stop()
		if before != nil {
			before.stop()
			<-before.done
		}
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			a.log.Error("plugin ended", "plugin", slot, "error", err)
		}
	})
}

// Slots of plugins. A kind may have both while claims of before are held.
func devicesOf(def *accel.Definition) string { return "device plugin " + def.Kind }
func claimsOf(def *accel.Definition) string  { return "DRA plugin " + def.Kind }

// devicePlugin makes the device plugins of a kind.
func (a *running) devicePlugin(def *accel.Definition) *deviceplugin.Kind {
	// The directory is fixed in the kubelet and does not follow its --root-dir.
	dir, err := a.host.Path("/var/lib/kubelet/device-plugins")
	if err != nil {
		dir = filepath.Join(a.host.Root(), "/var/lib/kubelet/device-plugins")
	}
	resources, err := a.host.Path(filepath.Join(a.kubeletRoot(), "pod-resources/kubelet.sock"))
	if err != nil {
		resources = ""
	}
	return deviceplugin.NewKind(deviceplugin.Config{
		Resource: def.Offered(), Former: a.formerly(def), Dir: dir, PodResources: resources, CDI: a.config.CDI, Definition: def, Log: a.log, Bound: a.bound,
		Connections: a.sockets, OnChange: func(accel.PluginHave) { a.loop.Changed() },
	})
}

// formerly returns the names under which pods may hold devices of a kind from before, or partitions of them: those of its
// definition, and those that it had in this process.
func (a *running) formerly(def *accel.Definition) []string {
	names := def.FormerlyOffered()
	for _, profile := range profiles(def, a.loop.Machine().Have[def.Kind].Accelerators) {
		names = append(names, def.OfferedAs(profile))
		names = append(names, def.FormerlyOfferedAs(profile)...)
	}
	a.mu.Lock()
	before := a.plugins[devicesOf(def)]
	a.mu.Unlock()
	if before != nil && before.devices != nil {
		names = append(names, before.devices.Names()...)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == def.Offered() })
}

// profiles are those that partitions of a kind have or may have.
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

func (a *running) kubeletRoot() string {
	if root := a.loop.Machine().Facts.Kubelet.Root; root != "" {
		return root
	}
	return "/var/lib/kubelet" // the kubelet has not started for the first time yet
}

func (a *running) serveDevices(ctx context.Context, def *accel.Definition) *deviceplugin.Kind {
	p := a.devicePlugin(def)
	a.serve(ctx, devicesOf(def), &serving{devices: p}, p.Run)
	return p
}

// serveClaims starts the DRA plugin of a kind. One that is retired takes back the claims of before and offers nothing.
func (a *running) serveClaims(ctx context.Context, def *accel.Definition, retired bool) *dra.Plugin {
	node, err := nodeName(a.config)
	if err != nil {
		node = a.loop.Machine().Agent.Node
	}
	c := dra.Config{
		Definition: def, Node: node, Host: a.host, Ledger: a.ledger, StateDir: a.config.StateDir, KubeletRoot: a.kubeletRoot(),
		Machine: a.loop.Machine, Alive: a.alive, Log: a.log, OnChange: a.loop.Changed, OnClaims: a.holding.Poke,
		Edits: func(def *accel.Definition, x accel.Accelerator) (shared, own specs.ContainerEdits, problem *accel.Problem) {
			return a.runtime.Edits(def, x, a.loop.Machine().Want)
		},
	}
	if a.documents != nil {
		c.API = a.documents
	}
	a.mu.Lock()
	before := a.plugins[devicesOf(def)]
	a.mu.Unlock()
	if !retired {
		c.Elsewhere = a.heldDevices(def, before)
		for _, resource := range append(a.formerly(def), def.Offered()) {
			a.sockets.End(resource) // it is not offered that way any more
		}
	}
	p := dra.New(c)
	if retired {
		p.Retire()
	}
	a.serve(ctx, claimsOf(def), &serving{claims: p}, func(ctx context.Context) error {
		if before != nil && !retired { // until it has ended it may still give a device out
			select {
			case <-before.done:
			case <-ctx.Done():
			}
		}
		return p.Run(ctx)
	})
	return p
}

// heldDevices asks the kubelet which devices pods hold through the device plugin that ran before, in this process or in
// one before it.
func (a *running) heldDevices(def *accel.Definition, before *serving) func(context.Context) (map[string]string, error) {
	var devices *deviceplugin.Kind
	if before != nil {
		devices = before.devices
	} else {
		devices = a.devicePlugin(def)
	}
	return func(ctx context.Context) (map[string]string, error) {
		refs, err := devices.Holders(ctx)
		if err != nil {
			return nil, err
		}
		held := map[string]string{}
		for id, r := range refs {
			held[deviceplugin.DeviceOf(id)] = fmt.Sprintf("pod %s/%s through the device plugin", r.Namespace, r.Pod)
		}
		return held, nil
	}
}

// withdraw takes a kind from the container runtime. One that is not served any more may still have claims to take back.
func (a *running) withdraw(def *accel.Definition) *accel.Problem {
	a.mu.Lock()
	now := a.plugins[claimsOf(def)]
	a.mu.Unlock()
	if now != nil && now.stopped() && dra.Served(a.host, a.config.StateDir, def) {
		a.serveClaims(a.ctx, def, true)
	}
	return a.runtime.Remove(def)
}

// draining is a device plugin that does not offer the devices which pods hold by claims of before.
type draining struct {
	agent.Plugin
	claims interface {
		Update([]accel.Accelerator)
		Held() (ids []string, known bool)
	}
}

// Update hands the devices to both: the claims' plugin gives them to containers that start again.
func (d *draining) Update(accs []accel.Accelerator) {
	d.claims.Update(accs)
	held, known := d.claims.Held()
	offer := slices.Clone(accs)
	for i, x := range offer {
		if x.Offered() && (!known || slices.Contains(held, x.ID)) {
			offer[i].Withheld = &accel.Withheld{By: accel.ByPod, Reason: accel.DeviceHeld, Message: "held by a pod's claim"}
		}
	}
	d.Plugin.Update(offer)
}

// Problem says that devices are held, when nothing worse is the case.
func (d *draining) Problem() *accel.Problem {
	if p := d.Plugin.Problem(); p != nil {
		return p
	}
	if held, _ := d.claims.Held(); len(held) > 0 {
		return accel.Problemf(accel.DeviceHeld, "%d devices are held by claims of pods", len(held))
	}
	return nil
}
