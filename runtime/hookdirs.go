package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// readHookDirs returns the directories from which the container runtime reads hooks, lowest precedence first. There are
// none if it reads no hooks. Configuration files that cannot be used, and those after them, are ignored: the runtime
// itself would not start with them. What a running CRI-O says includes its command line and further files; it is nil if
// it does not say.
func readHookDirs(e accel.ContainerEngine, said []string, c *engine.Config) []string {
	row := engine.RowOf(e.Name)
	if len(row.HookDirs) == 0 {
		return nil
	}
	set := said
	if set == nil {
		if c == nil {
			return row.HookDirs[:1]
		}
		set = c.HookDirs
	}
	dirs := []string{}
	for _, d := range set {
		if path.IsAbs(d) {
			dirs = append(dirs, path.Clean(d))
		}
	}
	return dirs
}

// problems returns sentences about hooks. CRI-O reads the directories that existed when it started. A broken file in
// them is skipped while CRI-O runs, and makes its next start fail; podman fails every container with one.
func (h *hooks) problems(e accel.ContainerEngine) []string {
	var all []string
	for _, dir := range h.dirs {
		if p := h.unread(e, dir); p != nil {
			all = append(all, p.Message)
		}
		entries, err := h.host.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if path.Ext(entry.Name()) != ".json" {
				continue
			}
			name := path.Join(dir, entry.Name())
			b, err := h.host.ReadFile(name)
			if err == nil {
				err = validHook(b)
			}
			if err != nil {
				all = append(all, fmt.Sprintf("%s will not start again while %q is there: %v", e.Name, name, err))
			}
		}
	}
	return all
}

// unread is the problem of a directory created after CRI-O started: CRI-O watches only the one that existed before.
// podman, which has no daemon, always reads it.
func (h *hooks) unread(e accel.ContainerEngine, dir string) *accel.Problem {
	if !h.client.running(e) || !h.host.Born(dir).After(e.Started.Add(time.Second)) {
		return nil
	}
	return accel.Problemf(accel.HooksUnread,
		"%q was made after %s started, which does not read it until it is restarted", dir, unitOf(e))
}

// validHook checks a hooks.d file as the loader does at start.
func validHook(data []byte) error {
	var h struct {
		Version string         `json:"version"`
		Hook    map[string]any `json:"hook"`
		Stages  []string       `json:"stages"`
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	switch h.Version {
	case "1.0.0":
		if len(h.Stages) == 0 {
			return errors.New("it has no stages")
		}
	case "0.1.0", "":
	default:
		return fmt.Errorf("version %q is not known", h.Version)
	}
	return nil
}
