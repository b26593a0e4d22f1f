package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// defaultHookDir is where CRI-O and podman look if nothing is configured.
const defaultHookDir = "/usr/share/containers/oci/hooks.d"

// readHookDirs returns the directories from which the container runtime reads hooks, lowest precedence first. There
// are none if it reads no hooks. Configuration files that cannot be used, and those after them, are ignored: the
// runtime itself would not start with them.
func (r *Runtime) readHookDirs() []string {
	if r.engine.Name != "cri-o" && r.engine.Name != "podman" {
		return nil
	}
	if b, err := r.crioConfig(); err == nil {
		if dirs, ok := crioHookDirs(b); ok {
			return dirs
		}
	}
	c, p := engine.Read(r.host, r.engine)
	if p != nil && c == nil {
		return []string{defaultHookDir}
	}
	dirs := []string{}
	for _, d := range c.HookDirs {
		if path.IsAbs(d) {
			dirs = append(dirs, path.Clean(d))
		}
	}
	return dirs
}

// crioHookDirs reads the directories from CRI-O's complete configuration. It returns false if none are set.
func crioHookDirs(data []byte) ([]string, bool) {
	var c struct {
		Crio struct {
			Runtime struct {
				HooksDir []string `toml:"hooks_dir"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	if toml.Unmarshal(data, &c) != nil || c.Crio.Runtime.HooksDir == nil {
		return nil, false
	}
	var dirs []string
	for _, d := range c.Crio.Runtime.HooksDir {
		if path.IsAbs(d) {
			dirs = append(dirs, path.Clean(d))
		}
	}
	return dirs, true
}

// hookProblems returns sentences about hooks. CRI-O reads the directories that existed when it started. A broken
// file in them is skipped while CRI-O runs, and makes its next start fail; podman fails every container with one.
func (r *Runtime) hookProblems() []string {
	var all []string
	for _, dir := range r.hookDirs {
		if p := r.hookUnread(dir); p != nil {
			all = append(all, p.Message)
		}
		entries, err := r.host.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if path.Ext(e.Name()) != ".json" {
				continue
			}
			name := path.Join(dir, e.Name())
			b, err := r.host.ReadFile(name)
			if err == nil {
				err = validHook(b)
			}
			if err != nil {
				all = append(all, fmt.Sprintf("%s will not start again while %q is there: %v", r.engine.Name, name,
					err))
			}
		}
	}
	return all
}

// hookUnread is the problem of a directory created after CRI-O started: CRI-O watches only the one that existed
// before.
func (r *Runtime) hookUnread(dir string) *accel.Problem {
	if made := r.host.Born(dir); r.engine.Name != "cri-o" || !r.running() ||
		!made.After(r.engine.Started.Add(time.Second)) {
		return nil
	}
	return accel.Problemf(accel.HooksUnread,
		"%q was made after %s started, which does not read it until it is restarted", dir, unitOf(r.engine))
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

// crioConfig asks a running CRI-O for its configuration, which includes the command line and further files.
func (r *Runtime) crioConfig() ([]byte, error) { return r.get("/config") }
