package runtime

import (
	"context"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// Report is the state of the container runtime's configuration.
type Report struct {
	Engine accel.ContainerEngine `json:"engine"`
	// Config is what its files say; nil if they cannot be used.
	Config *engine.Config `json:"config,omitempty"`
	// Offers is true if devices reach containers with the files as they are.
	Offers bool `json:"offers"`
	// Through says what is known about the program between the kubelet and the runtime; empty if there is none.
	Through string `json:"through,omitempty"`
	// Newer are files that changed after the runtime started. What they say may not be in force yet.
	Newer []string `json:"newer,omitempty"`
	// Change is what an apply would change or has changed.
	Change engine.Change `json:"change"`
	// Diff shows the change to people.
	Diff string `json:"diff,omitempty"`
	// Hooks are sentences about hooks that the runtime does not read, or with which it will not start.
	Hooks []string `json:"hooks,omitempty"`
}

// CheckConfig reports the configuration of the container runtime, whether devices reach containers with it, and what
// ApplyConfig would change. It changes nothing. The problem is the one that ApplyConfig would return.
func (r *Runtime) CheckConfig() (Report, *accel.Problem) {
	defer r.begin()()
	rep, p := r.config.report(r.engine)
	if rep.Config != nil {
		rep.Hooks = r.hooks.problems(r.engine)
	}
	return rep, p
}

// configuration is the container runtime's configuration: it reports and changes it.
type configuration struct {
	*files
	client *client
	// read is [engine.Read] of the host's files.
	read    func(accel.ContainerEngine) (*engine.Config, *accel.Problem)
	restart *restarter
	said    []string // the directories of specs that a running CRI-O says that it reads; nil if it does not say
}

func (conf *configuration) report(e accel.ContainerEngine) (Report, *accel.Problem) {
	rep := Report{Engine: e}
	c, p := conf.read(e)
	if p != nil {
		return rep, p
	}
	rep.Config, rep.Offers = c, c.Offers(specDir)
	rep.Newer = conf.newer(e, c)
	// CRI-O read what it says when it started. A reload makes it read other directories, and say the same (cri-o/cri-o,
	// pkg/config/reload.go).
	if engine.Reads(conf.said, specDir) && len(rep.Newer) == 0 {
		rep.Offers = true
		return rep, conf.restart.waiting(e)
	}
	rep.Change, p = c.Plan(conf.host, e, specDir, conf.restart.edit)
	rep.Diff = rep.Change.Diff()
	switch {
	case p != nil:
	case len(rep.Change.Files) == 0:
		p = conf.restart.waiting(e)
	case rep.Change.Restarts && conf.client.running(e) && conf.restart.policy == RestartNever:
		p = accel.Problemf(accel.RuntimeMissingCDI,
			"%s does not read CDI specs in %q; writing %q would, and %s restarts it as soon as that is there, which "+
				"`runtime.restart: never` does not allow", e.Name, specDir, rep.Change.Files[0].Path, e.Layout)
	}
	if e.Through != "" {
		rep.Through, p = conf.client.passesOn(e, p)
	}
	return rep, p
}

// unread is the problem of a report without one whose runtime is not known to read the specs; nil if it is.
func (rep Report) unread() *accel.Problem {
	switch {
	case rep.Offers:
		return nil
	case rep.Config != nil && rep.Config.Unknown != "":
		return accel.Problemf(accel.RuntimeMissingCDI, "it is not known whether %s reads CDI specs: %s", rep.Engine.Name,
			rep.Config.Unknown)
	}
	return accel.Problemf(accel.RuntimeMissingCDI, "%s does not read CDI specs in %q", rep.Engine.Name, specDir)
}

// newer returns the files that changed after the daemon started.
func (conf *configuration) newer(e accel.ContainerEngine, c *engine.Config) []string {
	var all []string
	for _, name := range c.Files {
		if st, err := conf.host.Stat(name); err == nil && !e.Started.IsZero() &&
			st.ModTime().After(e.Started.Add(time.Second)) {
			all = append(all, name) // the kernel reports the start in hundredths of a second, and the boot clock drifts
		}
	}
	return all
}

// ApplyConfig makes the container runtime give devices to containers. It makes the smallest change that the policies
// allow, and none if devices already reach containers. What it writes is valid by the runtime's own rules and, if
// its own program can be asked, also for that program. If the runtime is not running, that is all.
//
// A running runtime must take over the change: by a reload if that is enough, otherwise by a restart if the policy
// allows one. If it does not, the problem is RuntimeRestartNeeded. If the runtime does not come back within 30
// seconds with the pods that it had, every file gets its previous bytes, the runtime is restarted once more (or
// reloaded, if the policy allows no restart), and the problem is RuntimeDown. The same change is then not tried again
// before the next boot unless a person asks for it: a node must not lose its runtime every few minutes.
//
// A RuntimeRestartNeeded comes with the change that waits; the next call does not write it again.
func (r *Runtime) ApplyConfig(ctx context.Context) (Report, *accel.Problem) {
	r.applying.Lock() // not r.mu: a Check in the loop must not wait for this
	defer r.applying.Unlock()
	rep, p := r.change(ctx)
	waits := p != nil && p.Reason == accel.RuntimeRestartNeeded
	if p != nil && !waits || !waits && len(rep.Change.Files) == 0 {
		return rep, p
	}
	if p := r.restart.takeOver(ctx, rep.Engine, rep.Change); p != nil {
		return rep, p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, p := r.config.read(r.engine)
	if p == nil {
		rep.Config, rep.Offers = c, c.Offers(specDir)
	}
	return rep, p
}

// planned returns the container runtime and what report plans for it.
func (r *Runtime) planned() (accel.ContainerEngine, Report, *accel.Problem) {
	defer r.begin()()
	rep, p := r.config.report(r.engine)
	return r.engine, rep, p
}

// change writes the change that report plans. If the change itself restarts the runtime, the policy for restarts says
// when.
func (r *Runtime) change(ctx context.Context) (Report, *accel.Problem) {
	e, rep, p := r.planned()
	if p == nil && rep.Change.Restarts && r.client.running(e) && r.restart.policy == RestartIdle {
		before, err := r.client.pods(ctx, e)
		if err != nil || !r.restart.idle(ctx, e, before) {
			return rep, accel.Problemf(accel.RuntimeMissingCDI,
				"%s does not read CDI specs yet: the change restarts it, and it is creating pods, so acceld tries again later",
				e.Name)
		}
	}
	defer r.begin()()
	return r.config.apply(ctx, r.engine)
}

// apply writes the change that report plans, unless it was given up or the runtime's own program refuses it.
func (conf *configuration) apply(ctx context.Context, e accel.ContainerEngine) (Report, *accel.Problem) {
	rep, p := conf.report(e)
	if p != nil || len(rep.Change.Files) == 0 {
		return rep, p
	}
	if p := conf.restart.gaveUp(rep.Change); p != nil {
		return rep, p
	}
	if p := conf.prove(ctx, e, rep.Change); p != nil {
		return rep, p
	}
	return rep, conf.change(e, rep.Change)
}

// change writes all files of a change or none: if one write fails, the files written before it get their previous
// bytes. If the runtime is running, change first notes that it needs a restart. A crash on any line then causes an
// unneeded restart rather than a forgotten one.
func (conf *configuration) change(e accel.ContainerEngine, c engine.Change) *accel.Problem {
	if conf.client.running(e) {
		if p := conf.restart.noteChange(e, c, false); p != nil {
			return p
		}
	}
	for i, f := range c.Files {
		name, p := conf.real(f.Path)
		if p == nil {
			p = conf.write(name, f.After, conf.mode(name))
		}
		if p != nil {
			if back := conf.revert(engine.Change{Files: c.Files[:i]}); back != nil {
				return back
			}
			conf.restart.forget()
			return p
		}
	}
	return nil
}
