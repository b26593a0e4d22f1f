package dra

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

const (
	// writeBurst and writeEvery limit the writes when somebody else keeps changing or deleting the slices.
	writeBurst = 40
	writeEvery = 5 * time.Second
)

// publisher keeps the node's slices in line with the inventory. Its fields belong to one goroutine.
type publisher struct {
	*Plugin
	reflector *kube.Reflector[Slice, *Slice]
	settled   map[string]Slice // what was written, with the resource version of what the API server made of it
	owner     kube.Owner
	writes    *rate.Limiter
	classed   map[string]classSpec // the wanted DeviceClasses that are done or that cannot be written
	partial   bool                 // it was logged that the API server drops fields
	mild      bool                 // the API server has refused taints that end pods
	leaving   map[string]bool      // the devices of which it was logged that pods do not wait for them any more
	refused   bool                 // the API server has refused attributes that are lists
	uncounted bool                 // the API server drops counters
}

// publish keeps the slices right until ctx ends: it writes the differences, first at once, then after each change.
func (p *Plugin) publish(ctx context.Context) error {
	b := &publisher{
		Plugin: p, settled: map[string]Slice{}, classed: map[string]classSpec{},
		writes: rate.NewLimiter(rate.Every(writeEvery), writeBurst),
		reflector: &kube.Reflector[Slice, *Slice]{
			API: p.cfg.API, Path: slicePath, Query: own(p.driver, p.cfg.Node), Retry: p.timing.remote, Changed: p.poke,
		},
	}
	return guard.Together(ctx, b.reflector.Run, func(ctx context.Context) error {
		b.follow(ctx)
		return nil
	})
}

// follow writes the differences until ctx ends.
func (b *publisher) follow(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		again, err := b.reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			failures++
			b.withhold(err)
			_ = pace.Sleep(ctx, b.timing.remote.After(failures))
			continue
		}
		failures = 0
		b.await(ctx, again)
	}
}

// await waits until what is published may have to change, at most for again; 0 means without a limit.
func (b *publisher) await(ctx context.Context, again time.Duration) {
	var late <-chan time.Time
	if again > 0 {
		late = time.After(again)
	}
	select {
	case <-ctx.Done():
	case <-late:
	case <-b.wake:
		_ = pace.Sleep(ctx, b.timing.settle)
		select {
		case <-b.wake: // what came in the meantime is read now
		default:
		}
	}
}

// withhold records err as the reason why the published state is unknown. A conflict with another writer is no such
// reason.
func (b *publisher) withhold(err error) {
	if errors.Is(err, errOvertaken) {
		return
	}
	problem := accel.AsProblem(err)
	change := func(h *accel.PluginHave) { h.Allocatable = accel.Answer[int]{} }
	if problem.Reason == accel.APIUnreachable {
		change = nil // what was published stays valid
	}
	if b.pluginState.setPublication(problem, change) {
		b.cfg.Log.Warn("slices are not published", "reason", problem.Reason, "problem", problem.Message)
	}
}

// identify reads the node, which owns the slices, unless the owner is known.
func (b *publisher) identify(ctx context.Context) error {
	if b.owner.UID != "" {
		return nil
	}
	uid, err := b.api.nodeUID(ctx, b.cfg.Node)
	if apierrors.IsNotFound(err) {
		return accel.Problemf(accel.NodeNotFound, "the cluster has no node %q", b.cfg.Node)
	}
	if err != nil {
		return problem("get node "+b.cfg.Node, err)
	}
	b.owner = kube.Owner{APIVersion: "v1", Kind: "Node", Name: b.cfg.Node, UID: uid, Controller: true}
	return nil
}

// reconcile writes the differences and records what is offered. It returns when to run again; 0 means with the next
// change.
func (b *publisher) reconcile(ctx context.Context) (time.Duration, error) {
	if err := b.identify(ctx); err != nil {
		return 0, err
	}
	there, synced := b.reflector.All()
	if err := b.reflector.Err(); err != nil {
		b.withhold(problem("follow the slices of "+b.driver, err))
		return 0, nil
	}
	if !synced {
		return 0, nil // a change follows
	}
	if !b.retired.Load() {
		if !b.list.load().reported || !b.State().Registered { // nobody could prepare a claim
			b.pluginState.setPublication(nil, func(h *accel.PluginHave) { h.Allocatable = accel.Answer[int]{} })
			return 0, nil
		}
		if err := b.askElsewhere(ctx); err != nil {
			b.withhold(accel.Problemf(accel.ProbeUnanswered,
				"cannot find out who holds devices of %q in another way: %v", b.cfg.Definition.Kind, err))
			return b.timing.look / 10, nil
		}
	}
	wanted := b.wanted(there)
	p := planFor(wanted, there, b.settled)
	if err := b.write(ctx, p); err != nil {
		return 0, err
	}
	if b.retired.Load() {
		b.withdrawn.Store(true)
		b.release()
		b.pluginState.setPublication(nil, func(h *accel.PluginHave) { h.Allocatable = accel.Known(0) })
		return 0, nil
	}
	there, _ = b.reflector.All() // with what was written
	if !p.empty() {
		b.cfg.Log.Info("slices published", "slices", len(wanted), "devices", b.usable(there), "generation",
			generation(there))
	}
	b.keepClasses(ctx)
	var again time.Duration
	var why *accel.Problem
	if held := len(b.list.load().elsewhere); held > 0 {
		why = accel.Problemf(accel.DeviceHeld, "%d devices are held by pods through the device plugin", held)
		again = b.timing.look
	}
	if _, refused := b.Plugin.refused.now(); refused > 0 && (again == 0 || refused < again) {
		again = refused
	}
	b.pluginState.setPublication(why, func(h *accel.PluginHave) { h.Allocatable = accel.Known(b.usable(there)) })
	return again, nil
}

// wanted returns the slices as they should be, without their owner. There are those at the API server.
func (b *publisher) wanted(there map[string]*Slice) []Slice {
	if b.retired.Load() {
		return nil
	}
	view := b.view()
	view.Mild, view.Uncounted = b.mild, b.uncounted
	view.Refused, _ = b.Plugin.refused.now()
	view.Followed = b.followed.Load()
	view.Lists = b.cfg.Lists && !b.refused
	view.Last = func(device string) map[string]Attribute { return attributesOf(device, there) }
	if held, known := b.book.held(); known {
		view.Leaving = b.stranded.leaving(b.list.load(), held, b.timing, time.Now())
	}
	for name := range view.Leaving {
		if !b.leaving[name] {
			b.cfg.Log.Warn("pods that wait for a sick device are sent elsewhere", "device", name)
		}
	}
	b.leaving = view.Leaving
	return Slices(view)
}

// view returns what the devices are rendered from now.
func (p *Plugin) view() View {
	m, v := p.cfg.Machine(), p.list.load()
	return View{
		Node: p.cfg.Node, Definition: v.def, Accelerators: v.list(), Devices: m.Facts.All(),
		Network: m.Facts.Network, Nodes: m.Facts.Inventory.Nodes,
		DriverVersion: m.Have[v.def.Kind].Driver.Version,
	}
}

// attributesOf returns the attributes of a device in slices; nil if it is in none.
func attributesOf(device string, there map[string]*Slice) map[string]Attribute {
	for _, s := range there {
		for _, d := range s.Spec.Devices {
			if d.Name == device {
				return d.Attributes
			}
		}
	}
	return nil
}

// askElsewhere asks who holds devices in another way, until nobody does: no new device is given out in that way.
func (b *publisher) askElsewhere(ctx context.Context) error {
	if now := b.list.load().elsewhere; b.cfg.Elsewhere == nil || now != nil && len(now) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.timing.request)
	defer cancel()
	held, err := b.cfg.Elsewhere(ctx)
	if err != nil {
		return err
	}
	b.list.hold(held)
	return nil
}

// write carries out a plan.
func (b *publisher) write(ctx context.Context, p plan) error {
	for _, s := range p.remove {
		name := s.Metadata.Name
		if err := b.one(ctx, "delete slice "+name, func() error { return b.api.remove(ctx, name) }); err != nil {
			return err
		}
		b.reflector.Drop(&s)
		delete(b.settled, name)
	}
	if len(p.create) > 0 {
		// Slices may be missing because the node was deleted and registered again: the garbage collector deletes what
		// belongs to the former node's UID.
		b.owner = kube.Owner{}
		if err := b.identify(ctx); err != nil {
			return err
		}
		for i := range p.create {
			p.create[i].Metadata.OwnerReferences = []kube.Owner{b.owner}
		}
	}
	for i, s := range slices.Concat(p.update, p.create) {
		verb := "update"
		if i >= len(p.update) {
			verb = "create"
		}
		var made Slice
		var answer error
		err := b.one(ctx, verb+" slice "+s.Metadata.Name, func() error {
			made, answer = b.api.write(ctx, s)
			return answer
		})
		if apierrors.IsInvalid(answer) && hasLists(s) {
			b.refused = true
			b.cfg.Log.Warn("the API server refuses attributes that are lists; single values are published until the agent "+
				"restarts", "slice", s.Metadata.Name, "error", answer)
			return errOvertaken // the next try is with single values
		}
		if (apierrors.IsInvalid(answer) || apierrors.IsForbidden(answer)) && evicts(s) {
			b.mild = true
			b.cfg.Log.Warn("the API server refuses taints that end pods; pods keep sick devices until the agent restarts",
				"slice", s.Metadata.Name, "error", answer)
			return errOvertaken // a sick device must not be offered on because of that
		}
		if err != nil {
			return err
		}
		b.keep(s, made)
	}
	return nil
}

// evicts reports whether a slice has a taint that ends pods.
func evicts(s Slice) bool {
	return slices.ContainsFunc(s.Spec.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Taints, func(t Taint) bool { return t.Effect == noExecute })
	})
}

// errOvertaken says that somebody else wrote at the same time. The reflector will show the result.
var errOvertaken = errors.New("somebody else was faster")

// one makes one write within the rate limit. Its error is errOvertaken or a *accel.Problem.
func (b *publisher) one(ctx context.Context, what string, do func() error) error {
	if err := b.writes.Wait(ctx); err != nil {
		return accel.Problemf(accel.APIUnreachable, "cannot %s: %v", what, err)
	}
	err := do()
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return errOvertaken
	}
	return problem(what, err)
}

// keep records what the API server made of a slice.
func (b *publisher) keep(reported, made Slice) {
	name := reported.Metadata.Name
	b.reflector.Put(&made)
	delete(b.settled, name)
	if equal(reported.Spec, made.Spec) {
		return
	}
	if len(reported.Spec.SharedCounters) > 0 && len(made.Spec.SharedCounters) == 0 {
		b.uncounted = true
		b.poke()
	}
	reported.Metadata.ResourceVersion = made.Metadata.ResourceVersion
	b.settled[name] = reported
	if !b.partial {
		b.partial = true
		b.cfg.Log.Warn(
			"the API server leaves out what it does not know of a slice; features of its version are missing", "slice",
			name)
	}
}
