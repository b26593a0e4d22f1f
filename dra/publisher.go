package dra

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
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
	moved     chan struct{}    // the reflector has changed
	there     map[string]Slice // as the reflector had them at the last look, plus what was written since
	settled   map[string]Slice // what was written, with the resource version of what the API server made of it
	owner     kube.Owner
	writes    *rate.Limiter
	classed   map[string]classSpec // the wanted DeviceClasses that are done or that cannot be written
	partial   bool                 // it was logged that the API server drops fields
}

// publish keeps the slices right until ctx ends: it writes the differences, first at once, then after each change.
func (p *Plugin) publish(ctx context.Context) {
	b := &publisher{
		Plugin: p, moved: make(chan struct{}, 1), settled: map[string]Slice{}, classed: map[string]classSpec{},
		writes: rate.NewLimiter(rate.Every(writeEvery), writeBurst),
	}
	b.reflector = &kube.Reflector[Slice, *Slice]{
		API: p.api, Path: apiRoot + "resourceslices", Query: own(p.driver, p.cfg.Node), Retry: p.timing.retry,
		Changed: func() {
			select {
			case b.moved <- struct{}{}:
			default:
			}
		},
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { _ = b.reflector.Run(ctx) }) // it ends only with ctx
	due := time.NewTimer(0)
	defer due.Stop()
	pending := true
	schedule := func(d time.Duration) {
		if !pending {
			pending = true
			due.Reset(d)
		}
	}
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
			schedule(b.timing.settle)
		case <-b.moved:
			schedule(b.timing.settle)
		case <-due.C:
			pending = false
			again, err := b.reconcile(ctx)
			if err != nil && ctx.Err() == nil {
				failures++
				b.withhold(err)
				again = b.timing.settle
				_ = pace.Sleep(ctx, b.timing.retry.After(failures))
			} else {
				failures = 0
			}
			if again > 0 {
				schedule(again)
			}
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
	uid, err := limited(ctx, b.timing.request, func(ctx context.Context) (string, error) {
		return b.api.nodeUID(ctx, b.cfg.Node)
	})
	if apierrors.IsNotFound(err) {
		return accel.Problemf(accel.NodeNotFound, "the cluster has no node %q", b.cfg.Node)
	}
	if err != nil {
		return problem("get node "+b.cfg.Node, err)
	}
	b.owner = kube.Owner{APIVersion: "v1", Kind: "Node", Name: b.cfg.Node, UID: uid, Controller: true}
	return nil
}

// look copies the slices from the reflector. It returns false while the reflector is not synced; a change follows.
func (b *publisher) look() bool {
	all, synced := b.reflector.All()
	if err := b.reflector.Err(); err != nil {
		b.withhold(problem("follow the slices of "+b.driver, err))
		return false
	}
	b.there = make(map[string]Slice, len(all))
	for name, s := range all {
		b.there[name] = *s
	}
	return synced
}

// reconcile writes the differences and records what is offered. It returns when to run again; 0 means with the next
// change.
func (b *publisher) reconcile(ctx context.Context) (time.Duration, error) {
	if err := b.identify(ctx); err != nil {
		return 0, err
	}
	if !b.look() {
		return 0, nil
	}
	if !b.retired.Load() {
		if !b.list.load().reported || !b.pluginState.registered() { // nobody could prepare a claim
			b.pluginState.setPublication(nil, func(h *accel.PluginHave) { h.Allocatable = accel.Answer[int]{} })
			return 0, nil
		}
		if err := b.askElsewhere(ctx); err != nil {
			b.withhold(accel.Problemf(accel.ProbeUnanswered,
				"cannot find out who holds devices of %q in another way: %v", b.cfg.Definition.Kind, err))
			return b.timing.look / 10, nil
		}
	}
	wanted := b.wanted()
	p := planFor(wanted, b.there, b.settled)
	if err := b.write(ctx, p); err != nil {
		return 0, err
	}
	again := time.Duration(0)
	if b.retired.Load() {
		b.pluginState.withdraw()
		b.release()
		b.pluginState.setPublication(nil, func(h *accel.PluginHave) { h.Allocatable = accel.Known(0) })
		return 0, nil
	}
	if !p.empty() {
		b.cfg.Log.Info("slices published", "slices", len(wanted), "devices", usable(wanted), "generation",
			generation(b.there))
	}
	b.keepClasses(ctx)
	held := len(b.list.load().elsewhere)
	var why *accel.Problem
	if held > 0 {
		why = accel.Problemf(accel.DeviceHeld, "%d devices are held by pods through the device plugin", held)
		again = b.timing.look
	}
	b.pluginState.setPublication(why, func(h *accel.PluginHave) {
		h.Allocatable = accel.Known(usable(slices.Collect(maps.Values(b.there))))
	})
	return again, nil
}

// wanted returns the slices as they should be, without their owner.
func (b *publisher) wanted() []Slice {
	if b.retired.Load() {
		return nil
	}
	m := b.cfg.Machine()
	return Slices(View{
		Driver: b.driver, Node: b.cfg.Node, Definition: b.cfg.Definition, Accelerators: b.list.load().list(),
		PCI: m.Facts.PCI, DriverVersion: m.Have[b.cfg.Definition.Kind].Driver.Version,
	})
}

// askElsewhere asks who holds devices in another way, until nobody does: no new device is given out in that way.
func (b *publisher) askElsewhere(ctx context.Context) error {
	if now := b.list.load().elsewhere; b.cfg.Elsewhere == nil || now != nil && len(now) == 0 {
		return nil
	}
	held, err := limited(ctx, b.timing.request, b.cfg.Elsewhere)
	if err != nil {
		return err
	}
	if held == nil {
		held = map[string]string{}
	}
	b.list.hold(held)
	return nil
}

// write carries out a plan.
func (b *publisher) write(ctx context.Context, p plan) error {
	for _, s := range p.remove {
		name := s.Metadata.Name
		if err := b.one(ctx, "delete slice "+name, func(ctx context.Context) error {
			return b.api.remove(ctx, name)
		}); err != nil {
			return err
		}
		b.reflector.Drop(&s)
		delete(b.there, name)
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
	for _, w := range []struct {
		verb   string
		slices []Slice
		do     func(context.Context, Slice) (Slice, error)
	}{{"update", p.update, b.api.update}, {"create", p.create, b.api.create}} {
		for _, s := range w.slices {
			err := b.one(ctx, w.verb+" slice "+s.Metadata.Name, func(ctx context.Context) error {
				made, err := w.do(ctx, s)
				if err == nil {
					b.keep(s, made)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// errOvertaken says that somebody else wrote at the same time. The reflector will show the result.
var errOvertaken = errors.New("somebody else was faster")

// one makes one write within the request timeout and the rate limit. Its error is errOvertaken or a *accel.Problem.
func (b *publisher) one(ctx context.Context, what string, do func(context.Context) error) error {
	if err := b.writes.Wait(ctx); err != nil {
		return accel.Problemf(accel.APIUnreachable, "cannot %s: %v", what, err)
	}
	_, err := limited(ctx, b.timing.request, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
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
	b.there[name] = made
	b.reflector.Put(&made)
	delete(b.settled, name)
	if equal(reported.Spec, made.Spec) {
		return
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

// generation returns the highest generation of the slices.
func generation(all map[string]Slice) int64 {
	var n int64
	for _, s := range all {
		n = max(n, s.Spec.Pool.Generation)
	}
	return n
}

// limited calls do with a deadline.
func limited[T any](ctx context.Context, d time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return do(ctx)
}
