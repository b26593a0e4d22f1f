package runtime

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// BeforePurge records that a running container runtime has read configuration files, among those with the given keys,
// that a purge is about to restore. A runtime that never read them, because its restart was still outstanding, needs
// no record.
func (r *Runtime) BeforePurge(files []string) *accel.Problem {
	defer r.begin()()
	if n, waits := r.restart.noted(r.engine); !r.client.running(r.engine) || waits && !n.Back && n.Trying == nil {
		return nil
	}
	names := []string{r.engine.Config}
	if c, p := r.config.read(r.engine); p == nil {
		names = append(append(names, c.Files...), c.Top)
		if top, p := r.real(c.Top); p == nil {
			names = append(names, top)
		}
	}
	var dirs []string
	for _, name := range names {
		if key, err := r.ledger.Key(name); err == nil { // as in files
			dirs = append(dirs, path.Dir(key))
		}
	}
	back := engine.Change{Reload: engine.RowOf(r.engine.Name).Reload}
	for _, f := range files {
		if slices.ContainsFunc(dirs, func(dir string) bool { return len(dir) > 1 && strings.HasPrefix(f, dir+"/") }) {
			back.Files = append(back.Files, engine.File{Path: f})
		}
	}
	if len(back.Files) == 0 {
		return nil
	}
	back.Restarts = engine.Restarts(r.engine, back)
	return r.restart.noteChange(r.engine, back, true)
}

// AfterPurge makes the running container runtime read the restored files, as the policy for restarts allows;
// otherwise the problem is RuntimeRestartNeeded. It also does so for an earlier purge that was killed after
// BeforePurge.
func (r *Runtime) AfterPurge(ctx context.Context) *accel.Problem {
	r.applying.Lock()
	defer r.applying.Unlock()
	end := r.begin() // it looks for the runtime
	e := r.engine
	n, waits := r.restart.noted(e)
	end()
	if !waits || !n.Back {
		return nil
	}
	return r.restart.takeOver(ctx, e, engine.Change{})
}
