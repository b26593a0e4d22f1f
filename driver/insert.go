package driver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// insertAll loads the modules that are not live yet. It returns the names of those it loaded, in order, and the
// kernel's log lines. Before the module that may bind devices, it calls take.
func (l *loader) insertAll(ctx context.Context, def *accel.Definition, facts accel.Facts, p *kmod.Plan,
	take func() *accel.Problem,
) (loaded, log []string, problem *accel.Problem) {
	at := l.tell.Begin(accel.Progress{Kind: def.Kind, Stage: accel.StageLoad, Total: int64(len(p.Modules))})
	defer func() { at.End(problem) }()
	binds := binder(def, p)
	for i, m := range p.Modules {
		at.At(i, m.Name)
		if i == binds {
			if problem := take(); problem != nil {
				return loaded, log, problem
			}
		}
		if live, ok := kmod.Live(l.h, m.Name); ok && live.State == kmod.StateLive {
			if problem := other(m, live, "module %q is loaded"); problem != nil {
				return loaded, log, problem
			}
			continue
		}
		did, lines, problem := l.insert(ctx, facts, m)
		log = append(log, lines...)
		if did {
			loaded = append(loaded, m.Name)
		}
		if problem == nil {
			continue
		}
		if m.Optional && problem.Reason != accel.LoadTimeout && problem.Reason != accel.RebootRequired {
			l.log.Warn("an optional module is left out", "module", m.Name, "problem", problem)
			continue
		}
		return loaded, log, problem
	}
	at.At(len(p.Modules), "")
	return loaded, log, nil
}

// binder returns the index of the first module of a plan that may bind devices: the one named like the PCI driver, or
// the first of the definition's own. What comes before it can fail without anybody else noticing.
func binder(def *accel.Definition, p *kmod.Plan) int {
	i := slices.IndexFunc(p.Modules, func(m kmod.Planned) bool { return m.Name == kmod.Normal(def.Driver.Binds) })
	if i < 0 {
		i = slices.IndexFunc(p.Modules, func(m kmod.Planned) bool { return !m.Prior })
	}
	return max(0, i)
}

// insert loads one module. It reports whether this call made the module live, and what the kernel logged meanwhile.
// The module is in the ledger from before the call, and stays there unless this call is known not to have loaded it.
func (l *loader) insert(ctx context.Context, facts accel.Facts, m kmod.Planned) (did bool, log []string,
	problem *accel.Problem,
) {
	if problem := l.noteLoad(m); problem != nil {
		return false, nil, problem
	}
	did, log, problem = l.finit(ctx, facts, m)
	// After these two problems the module may still become live.
	if !did && (problem == nil || problem.Reason != accel.LoadTimeout && problem.Reason != accel.RebootRequired) {
		l.forgetLoad(m.Name)
	}
	return did, log, problem
}

// finit calls the kernel to load a module.
func (l *loader) finit(ctx context.Context, facts accel.Facts, m kmod.Planned) (did bool, log []string,
	problem *accel.Problem,
) {
	tail, err := l.h.Kernel().Tail()
	if err == nil {
		defer tail.Close()
	}
	limited, cancel := context.WithTimeout(ctx, l.o.LoadTimeout)
	defer cancel()
	loadErr := l.kernel.Load(limited, m.Content, kmod.JoinParameters(m.Parameters))
	if err == nil {
		log = tail.Lines()
	}
	c := kmod.Circumstances{
		Module: m.Name, Signed: m.Signature != nil, Lockdown: facts.Kernel.Lockdown,
		ModulesDisabled: facts.Kernel.ModulesDisabled, Log: log,
	}
	if text, err := l.h.ReadAttribute("/proc/sys/kernel/modules_disabled"); err == nil {
		c.ModulesDisabled = text == "1"
	}
	if loadErr == nil {
		return true, log, nil
	}
	return false, log, l.refused(ctx, m, loadErr, c)
}

// refused turns the failure to load a module into a typed problem; nil if somebody else loaded it at the same moment.
func (l *loader) refused(ctx context.Context, m kmod.Planned, err error, c kmod.Circumstances) *accel.Problem {
	late, died := errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrDied)
	var errno syscall.Errno
	switch {
	case (late || died) && kmod.Died(l.h): // a thread that crashed may not exit, and then the helper is late
		return accel.Problemf(accel.RebootRequired, "the initialisation of module %q crashed in the kernel%s", m.Name,
			c.Quote())
	case late:
		return accel.Problemf(accel.LoadTimeout, "the initialisation of module %q did not end within %v%s", m.Name,
			l.o.LoadTimeout, c.Quote())
	case ctx.Err() != nil:
		return accel.Problemf(accel.LoadTimeout, "the load of module %q was called off: %v", m.Name, ctx.Err())
	case died:
		return accel.Problemf(accel.LoadFailed, "cannot load module %q: %v%s", m.Name, err, c.Quote())
	case errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.EBUSY):
		return l.raced(ctx, m)
	case errors.As(err, &errno):
		return kmod.LoadProblem(errno, c)
	}
	return accel.ProblemOf(err, "cannot load module %q", m.Name)
}

// raced handles a module that somebody else was loading at the same moment.
func (l *loader) raced(ctx context.Context, m kmod.Planned) *accel.Problem {
	if problem := l.awaitModule(ctx, m.Name); problem != nil {
		return problem
	}
	live, ok := kmod.Live(l.h, m.Name)
	if !ok {
		return accel.Problemf(accel.LoadFailed, "module %q was loaded by somebody else and failed", m.Name)
	}
	return other(m, live, "somebody else loaded module %q")
}

// other returns a problem, which begins as said, if the live module is not the planned one.
func other(m kmod.Planned, live accel.LoadedModule, said string) *accel.Problem {
	if m.Prior || kmod.Same(live, m.BuildID, m.SrcVersion, m.Image.Version) {
		return nil
	}
	return accel.Problemf(accel.OtherModuleLoaded, said+" with build-id %q, the one in %q has %q", m.Name,
		live.BuildID, m.Path, m.BuildID)
}

// abandon unloads what a transaction loaded and closes its attempt, unless the kernel still works on it. A module whose
// driver has bound the device of another kind meanwhile stays.
func (l *loader) abandon(ctx context.Context, accs []accel.Accelerator, p *kmod.Plan, loaded []string,
	problem *accel.Problem,
) {
	calledOff := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.LoadTimeout) // also if the caller gives up
	defer cancel()
	for _, name := range slices.Backward(loaded) {
		if others := l.devices.Others([]string{name}, accs); len(others) > 0 {
			l.log.Info("a module stays loaded for other devices", "module", name, "devices", others)
			continue
		}
		if err := l.unload(ctx, name); err != nil {
			l.log.Warn("cannot unload a module again", "module", name, "error", err)
		}
	}
	if problem.Reason == accel.LoadTimeout || problem.Reason == accel.RebootRequired {
		if !calledOff { // otherwise the next attempt finds out what became of the module
			l.attempts.Hung(p.ID)
		}
		return
	}
	l.attempts.Close(p.ID, false)
}

// loadedNote is the text of a NoteModule. It identifies the module file, to distinguish it from a module of the same
// name that somebody else loads later.
type loadedNote struct {
	BuildID    string `json:"buildID,omitempty"`
	SrcVersion string `json:"srcVersion,omitempty"`
	Version    string `json:"version,omitempty"`
}

// noteLoad records that a module is about to be loaded.
func (l *loader) noteLoad(m kmod.Planned) *accel.Problem {
	text, err := json.Marshal(loadedNote{BuildID: m.BuildID, SrcVersion: m.SrcVersion, Version: m.Image.Version})
	if err == nil {
		err = l.ledger.Note(NoteModule, m.Name, string(text))
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot load module %q", m.Name)
	}
	return nil
}

// forgetLoad removes the note of a module that was not loaded, or no longer is.
func (l *loader) forgetLoad(name string) {
	if err := l.ledger.Forget(NoteModule, name); err != nil {
		l.log.Warn("a module that is not loaded is still on record", "module", name, "error", err)
	}
}
