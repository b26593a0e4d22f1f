package driver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/kmod"
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
	var m accel.LoadedModule
	still := false
	deadline.Until(ctx, l.o.LoadTimeout, func() (done bool) {
		var ok bool
		m, ok = kmod.Live(l.h, name)
		still = !ok || m.State == kmod.StateLive
		return still || kmod.Died(l.h)
	})
	switch {
	case still:
		return nil
	case ctx.Err() != nil:
		return accel.Problemf(accel.LoadTimeout, "module %q is in state %q: %v", name, m.State, ctx.Err())
	}
	return accel.Problemf(accel.RebootRequired, "module %q is stuck in state %q", name, m.State)
}

// loader loads and unloads modules, records each change, and tracks modules that are being loaded or unloaded.
type loader struct {
	*Driver
	kernel Kernel

	mu     sync.Mutex
	coming map[string]time.Time // when a module was first seen neither live nor gone
}

// since returns how long a module has been neither live nor gone.
func (l *loader) since(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.coming[name]; !ok {
		l.coming[name] = time.Now()
	}
	return time.Since(l.coming[name])
}

// settled forgets that a module was being loaded or unloaded.
func (l *loader) settled(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.coming, name)
}

// unload removes a module, unless it is gone already, and drops the note of its load.
func (l *loader) unload(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.LoadTimeout)
	defer cancel()
	err := l.kernel.Unload(ctx, name)
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	l.forgetLoad(name)
	return nil
}

// liveOf returns the live modules of a kind, in the order in which to unload them.
func (l *loader) liveOf(def *accel.Definition) []accel.LoadedModule {
	var out []accel.LoadedModule
	for _, m := range slices.Backward(def.Driver.Modules) {
		if live, ok := kmod.Live(l.h, m.Name); ok {
			out = append(out, live)
		}
	}
	return out
}
