package driver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// awaitStill waits until no module of the definition is being loaded or unloaded.
func (l *loader) awaitStill(ctx context.Context, def *accel.Definition) *accel.Problem {
	for _, m := range def.Driver.Modules {
		if problem := l.awaitModule(ctx, m.Name); problem != nil {
			return problem
		}
	}
	return nil
}

// awaitModule waits until a module is live or gone. It polls, because sysfs announces neither.
func (l *loader) awaitModule(ctx context.Context, name string) *accel.Problem {
	state := ""
	arrived := until(ctx, l.timeout, func() bool {
		m, ok := kmod.Live(l.h, name)
		state = m.State
		return !ok || state == kmod.StateLive || kmod.Taint(l.h)&kmod.TaintDied != 0
	})
	if m, ok := kmod.Live(l.h, name); arrived && (!ok || m.State == kmod.StateLive) {
		return nil
	}
	if ctx.Err() != nil {
		return accel.Problemf(accel.LoadTimeout, "module %q is in state %q: %v", name, state, ctx.Err())
	}
	return accel.Problemf(accel.RebootRequired, "module %q is stuck in state %q", name, state)
}

// until polls done at growing intervals, 1 ms to 100 ms, until done returns true, limit passes or ctx ends.
func until(ctx context.Context, limit time.Duration, done func() bool) bool {
	over := time.NewTimer(limit)
	defer over.Stop()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if done() {
			return true
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-over.C:
			next.Stop()
			return done()
		case <-ctx.Done():
			next.Stop()
			return false
		}
	}
}

// loader loads and unloads modules, records each change, and tracks modules that are being loaded or unloaded.
type loader struct {
	h        *host.Host
	log      *slog.Logger
	ledger   *ledger.Ledger
	kernel   Kernel
	store    *store.Store
	attempts *store.Attempts
	devices  *devices.Devices
	tell     progress.Teller
	now      func() time.Time
	timeout  time.Duration // of one call into the kernel

	mu     sync.Mutex
	coming map[string]time.Time // when a module was first seen neither live nor gone
}

// since returns how long a module has been neither live nor gone.
func (l *loader) since(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.coming[name]; !ok {
		l.coming[name] = l.now()
	}
	return l.now().Sub(l.coming[name])
}

// settled forgets that a module was being loaded or unloaded.
func (l *loader) settled(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.coming, name)
}

// liveOf returns the live modules of a kind.
func (l *loader) liveOf(def *accel.Definition) []accel.LoadedModule {
	var out []accel.LoadedModule
	for _, m := range slices.Backward(def.Driver.Modules) {
		if live, ok := kmod.Live(l.h, m.Name); ok {
			out = append(out, live)
		}
	}
	return out
}
