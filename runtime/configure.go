package runtime

import (
	"context"
	"io/fs"
	"slices"
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
	r.begin()
	defer r.mu.Unlock()
	return r.report()
}

func (r *Runtime) report() (Report, *accel.Problem) {
	rep := Report{Engine: r.engine}
	c, p := engine.Read(r.host, r.engine)
	if p != nil {
		return rep, p
	}
	rep.Config, rep.Offers = c, c.Offers(specDir)
	rep.Newer = r.newer(c)
	rep.Hooks = r.hookProblems()
	rep.Change, p = engine.Plan(r.host, r.engine, specDir, r.edit)
	rep.Diff = rep.Change.Diff()
	if p == nil && len(rep.Change.Files) == 0 {
		p = r.waiting(r.engine)
	}
	return rep, p
}

// newer returns the files that changed after the daemon started.
func (r *Runtime) newer(c *engine.Config) []string {
	var all []string
	for _, name := range c.Files {
		if st, err := r.host.Stat(name); err == nil && !r.engine.Started.IsZero() &&
			st.ModTime().After(r.engine.Started.Add(time.Second)) {
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
	rep, p := r.applyFiles(ctx)
	waits := p != nil && p.Reason == accel.RuntimeRestartNeeded
	if p != nil && !waits || !waits && len(rep.Change.Files) == 0 {
		return rep, p
	}
	if p := r.takeOver(ctx, rep.Change); p != nil {
		return rep, p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, p := engine.Read(r.host, r.engine)
	if p == nil {
		rep.Config, rep.Offers = c, c.Offers(specDir)
	}
	return rep, p
}

// applyFiles is the part of ApplyConfig that writes.
func (r *Runtime) applyFiles(ctx context.Context) (Report, *accel.Problem) {
	r.begin()
	defer r.mu.Unlock()
	rep, p := r.report()
	if p != nil || len(rep.Change.Files) == 0 {
		return rep, p
	}
	if p := r.gaveUp(rep.Change); p != nil {
		return rep, p
	}
	if p := r.provenByProgram(ctx, rep.Change); p != nil {
		return rep, p
	}
	return rep, r.change(rep.Change)
}

// change writes all files of a change or none: if one write fails, the files written before it get their previous
// bytes. If the runtime is running, change first notes that it needs a restart. A crash on any line then causes an
// unneeded restart rather than a forgotten one.
func (r *Runtime) change(c engine.Change) *accel.Problem {
	if r.running() {
		if p := r.noteRestart(c); p != nil {
			return p
		}
	}
	for i, f := range c.Files {
		name, p := r.real(f.Path)
		if p == nil {
			p = r.write(name, f.After, r.mode(name))
		}
		if p != nil {
			if back := r.revert(engine.Change{Files: c.Files[:i]}); back != nil {
				return back
			}
			r.forgetRestart()
			return p
		}
	}
	return nil
}

// revert gives the files of a change their previous bytes, the last file first.
func (r *Runtime) revert(c engine.Change) *accel.Problem {
	for _, f := range slices.Backward(c.Files) {
		name, p := r.real(f.Path)
		switch {
		case p != nil:
		case f.New:
			p = r.remove(name)
		default:
			p = r.write(name, f.Before, r.mode(name))
		}
		if p != nil {
			return p
		}
	}
	return nil
}

// real follows a link at the end of name: the file is changed, and the administrator's link stays.
func (r *Runtime) real(name string) (string, *accel.Problem) {
	if text, _ := r.host.Readlink(name); text == "" { // no link, or it does not exist
		return name, nil
	}
	file, err := r.host.Follow(name)
	if err != nil {
		return "", r.problem("resolve", name, err)
	}
	return file, nil
}

// mode returns the mode of the file, or the usual one for a new file.
func (r *Runtime) mode(name string) fs.FileMode {
	if st, err := r.host.Stat(name); err == nil {
		return st.Mode().Perm()
	}
	return 0o644
}

// running reports whether there is a daemon whose configuration in force can differ from its files.
func (r *Runtime) running() bool { return r.live() && r.engine.PID > 0 && r.engine.Name != "podman" }
