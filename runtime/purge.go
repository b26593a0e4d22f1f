package runtime

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// BeforePurge notes that a running container runtime has read files of its configuration, among those at the paths,
// that a purge is about to give back. A runtime that never read them, because its restart was still outstanding, needs
// none.
func (r *Runtime) BeforePurge(files []string) *accel.Problem {
	r.begin()
	defer r.mu.Unlock()
	if n, waits := r.noted(); !r.running() || waits && !n.Back {
		return nil
	}
	dirs := []string{path.Dir(r.engine.Config)}
	if c, p := engine.Read(r.host, r.engine); p == nil {
		dirs = append(dirs, path.Dir(c.Top))
		if top, p := r.real(c.Top); p == nil {
			dirs = append(dirs, path.Dir(top))
		}
	}
	back := engine.Change{Reload: r.engine.Name == "cri-o"}
	for _, f := range files {
		if slices.ContainsFunc(dirs, func(dir string) bool { return len(dir) > 1 && strings.HasPrefix(f, dir+"/") }) {
			back.Files = append(back.Files, engine.File{Path: f})
		}
	}
	if len(back.Files) == 0 {
		return nil
	}
	return r.noteRestartFor(back, true)
}

// AfterPurge makes the running container runtime read the files that were given back, as the policy for restarts
// allows: RuntimeRestartNeeded where it does not. It also finishes what a purge that was killed had noted.
func (r *Runtime) AfterPurge(ctx context.Context) *accel.Problem {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.begin()
	r.mu.Unlock() // it only looks for the runtime
	if n, waits := r.noted(); !waits || !n.Back {
		return nil
	}
	return r.takeOver(ctx, engine.Change{})
}
