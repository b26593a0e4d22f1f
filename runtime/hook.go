package runtime

import (
	"encoding/json"
	"path"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
	"github.com/acceld/acceld/runtime/gate"
)

// jsonName is the hook's file name in a hooks.d directory. Hooks run in the order of these names.
const jsonName = "50-acceld.json"

// command is a hook as defined by the OCI runtime specification.
type command struct {
	Path    string   `json:"path"`
	Args    []string `json:"args"` // the first is the program's name
	Env     []string `json:"env"`
	Timeout int      `json:"timeout"` // seconds
}

// hookTime is how long the hook may take by itself, in seconds.
const hookTime = 5

// hookFile is a hooks.d file, schema 1.0.0 (oci-hooks(5)).
type hookFile struct {
	Version string  `json:"version"`
	Hook    command `json:"hook"`
	When    struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"when"`
	Stages []string `json:"stages"`
}

// hookCommand returns the command that checks the injected device id. With an empty id the program looks into the
// bundle. The environment is always set: without it a hook inherits its caller's, which an image could influence
// (CVE-2025-23266). Patience is how long the agent may take to hand over the device.
func hookCommand(program, id string, patience time.Duration) command {
	c := command{
		Path:    program,
		Args:    []string{programName, "createRuntime"},
		Env:     []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Timeout: hookTime + int(patience.Seconds()),
	}
	if id != "" {
		c.Args = append(c.Args, "--device", id)
	}
	return c
}

// renderJSON renders the hooks.d file. The patterns are anchored explicitly, because the schema does not anchor
// them. There is no "always", so that pods without our devices never pay for the hook, and no "commands", which
// fails a container that has none.
func renderJSON(program string) []byte {
	f := hookFile{Version: "1.0.0", Hook: hookCommand(program, "", gate.MaxHandover*time.Second), Stages: []string{"createRuntime"}}
	f.When.Annotations = map[string]string{`^acceld\.dev/devices$`: `^.+$`}
	b, _ := json.MarshalIndent(f, "", "  ") // texts and a number
	return append(b, '\n')
}

// hooks are the directories from which the container runtime reads hooks, and our file in them.
type hooks struct {
	*files
	client *client
	dirs   []string // lowest precedence first; every exported method of the Runtime reads them again
}

// locateJSON returns the hook's file in force or to be written, and whether it is right. The name is empty if no
// runtime reads such a file or none is wanted.
func (h *hooks) locateJSON(want accel.Want, program string) (file string, right bool) {
	current := h.currentJSON()
	switch {
	case !want.Hook:
		return "", current == ""
	case len(h.dirs) == 0:
		return "", true
	case current == "":
		return path.Join(h.writeOrder()[0], jsonName), false
	}
	return current, h.same(current, renderJSON(program), 0o644)
}

// currentJSON returns the hook's file in force; empty if there is none. A file of our name in a later directory masks
// those in earlier ones.
func (h *hooks) currentJSON() string {
	for _, dir := range slices.Backward(h.dirs) {
		if name := path.Join(dir, jsonName); h.host.Exists(name) {
			return name
		}
	}
	return ""
}

// writeOrder returns the directories to try for a new file. The highest existing one comes first, because CRI-O
// watches only directories that existed when it started. If none exists, it is the highest, which CRI-O creates when
// it starts.
func (h *hooks) writeOrder() []string {
	existing := slices.DeleteFunc(slices.Clone(h.dirs), func(dir string) bool { return !h.host.Exists(dir) })
	if len(existing) == 0 {
		return h.dirs[len(h.dirs)-1:]
	}
	slices.Reverse(existing)
	return existing
}

// installJSON writes the hook's file where the runtime reads it, or removes it if no hook is wanted.
func (h *hooks) installJSON(want accel.Want, program string) *accel.Problem {
	if !want.Hook {
		return h.removeJSON()
	}
	if len(h.dirs) == 0 {
		return nil
	}
	data := renderJSON(program)
	if current := h.currentJSON(); current != "" {
		return h.write(current, data, 0o644)
	}
	var p *accel.Problem
	for _, dir := range h.writeOrder() {
		if p = h.write(path.Join(dir, jsonName), data, 0o644); p == nil || !elsewhere(p) {
			return p
		}
	}
	return p
}

// removeJSON removes the hook's file from every directory that the runtime reads now or may have read when it was
// written.
func (h *hooks) removeJSON() *accel.Problem {
	for _, dir := range h.everyDir() {
		if p := h.remove(path.Join(dir, jsonName)); p != nil {
			return p
		}
	}
	return nil
}

func (h *hooks) everyDir() []string {
	dirs := slices.Clone(h.dirs)
	for _, row := range engine.Rows() {
		dirs = append(dirs, row.HookDirs...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// programInJSON returns the program that the hook's file in force names; empty if there is none.
func (h *hooks) programInJSON() string {
	var f hookFile
	if b, err := h.host.ReadFile(h.currentJSON()); err != nil || json.Unmarshal(b, &f) != nil {
		return ""
	}
	return f.Hook.Path
}

// PublishReadiness writes the data on which the hook decides: the accelerators of all kinds, and what the scheduler
// chose for containers. It writes only if the data changed. A device is ready if it is healthy, has its nodes (if its
// definition names any), and is not withheld. The agent publishes on every change of these, before Apply, and even if
// no hook is wanted: a hook that is already in a container's specification still reads it.
func (r *Runtime) PublishReadiness(defs map[string]*accel.Definition, kinds map[string][]accel.Accelerator,
	choices ...gate.Choice,
) *accel.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := gate.File{Devices: []gate.Device{}, Choices: choices}
	for kind, accs := range kinds {
		for _, a := range accel.Flat(accs) {
			nodeless := defs[kind] != nil && len(defs[kind].NodesOf(a.Profile)) == 0
			d := readiness(kind, a, nodeless)
			if defs[kind] != nil && defs[kind].Handover != nil && a.Parent == "" {
				d.Handover = max(1, int(defs[kind].Handover.Patience().Seconds()))
			}
			f.Devices = append(f.Devices, d)
		}
	}
	b, err := gate.Encode(f)
	if err != nil {
		return accel.Problemf(accel.InternalError, "cannot render %q: %v", gate.Path, err)
	}
	return r.write(gate.Path, b, 0o644)
}

func readiness(kind string, a accel.Accelerator, nodeless bool) gate.Device {
	reason, message := a.Refusal()
	d := gate.Device{ID: a.ID, Kind: kind, Reason: string(reason), Message: message}
	if !a.Present() {
		return d
	}
	for _, n := range a.Nodes {
		d.Nodes = append(d.Nodes, gate.Node{Path: n.Path, Major: n.Major, Minor: n.Minor})
	}
	d.Ready = a.Offered() && (nodeless || len(a.Nodes) > 0)
	if d.Reason == "" && !d.Ready {
		d.Reason, d.Message = string(accel.NodeMissing), "no driver has made its device node"
	}
	return d
}
