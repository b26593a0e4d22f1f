package runtime

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// Reread makes the running container runtime read its configuration again after files were given back, as the policy
// allows: RuntimeRestartNeeded where it does not. Nothing happens when none of the files is the runtime's, or it does not
// run.
func (r *Runtime) Reread(ctx context.Context, files []string) *accel.Problem {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.begin()
	r.mu.Unlock()
	dirs := []string{path.Dir(r.engine.Config)}
	if c, p := engine.Read(r.host, r.engine); p == nil {
		dirs = append(dirs, path.Dir(c.Top))
		if top, p := r.real(c.Top); p == nil {
			dirs = append(dirs, path.Dir(top))
		}
	}
	c := engine.Change{Reload: r.engine.Name == "cri-o"}
	for _, f := range files {
		if slices.ContainsFunc(dirs, func(dir string) bool { return len(dir) > 1 && strings.HasPrefix(f, dir+"/") }) {
			c.Files = append(c.Files, engine.File{Path: f})
		}
	}
	if !r.running() || len(c.Files) == 0 {
		return nil
	}
	if p := r.noteRestart(c); p != nil {
		return p
	}
	return r.takeOver(ctx, engine.Change{})
}
