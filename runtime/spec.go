package runtime

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
)

// specDir is the volatile one of the two CDI directories, so that nothing stale is offered after a reboot.
const specDir = "/var/run/cdi"

// specDirs are the directories that runtimes read if nothing is configured, lowest precedence first.
func specDirs() []string { return []string{"/etc/cdi", specDir} }

// spec is a CDI spec as it should be on the host.
type spec struct {
	path    string
	bytes   []byte             // empty: the file must not exist, because a spec without devices is invalid
	devices []string           // fully qualified names
	nodes   []accel.DeviceNode // every node that is injected; numbers are zero if not known
}

// specPath returns the file of a kind's spec.
func specPath(def *accel.Definition) (string, *accel.Problem) {
	vendor, class := parser.ParseQualifier(def.Resource)
	if err := cmp.Or(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return "", accel.Problemf(accel.SpecInvalid, "cannot use resource %q as a CDI kind: %v", def.Resource, err)
	}
	return path.Join(specDir, cdi.GenerateSpecName(vendor, class)+".json"), nil
}

// specWriter renders the CDI specs of kinds and writes them to the host.
type specWriter struct {
	*files
	dirs []string // where others' specs may be; every exported method of the Runtime reads them again
}

// render returns the spec of a kind. Its devices are the accelerators that are present and have their nodes, including
// unhealthy ones: the kubelet does not offer those, and the gate stops them with their reason, whereas a device that
// is missing from the spec would be "unresolvable". A device with which a container gets nothing at all cannot be in a
// spec: see [accel.Accelerator.Bare]. program is the hook's path; empty without a hook.
func (w *specWriter) render(def *accel.Definition, accs []accel.Accelerator, want accel.Want, program string) (*spec,
	*accel.Problem,
) {
	file, p := specPath(def)
	if p != nil {
		return nil, p
	}
	s := &spec{path: file}
	shared, p := w.sharedEdits(def)
	if p != nil {
		return nil, p
	}
	raw := &specs.Spec{Kind: def.Resource, ContainerEdits: shared}
	for _, a := range accel.Flat(accs) {
		if a.Health.State == accel.Gone || len(a.Nodes) == 0 && len(def.NodesOf(a.Profile)) > 0 {
			continue
		}
		if a.InOtherUse() { // only the claim that has it gets it
			continue
		}
		d := specs.Device{Name: a.ID, ContainerEdits: w.own(def, a, program, shared)}
		if empty(d.ContainerEdits) {
			continue
		}
		raw.Devices = append(raw.Devices, d)
		s.devices = append(s.devices, def.CDIName(a.ID))
		s.nodes = append(s.nodes, a.Nodes...)
	}
	if len(raw.Devices) == 0 {
		return s, nil
	}
	for _, n := range w.sharedNodes(def) {
		s.nodes = append(s.nodes, accel.DeviceNode{Path: n})
	}
	if !want.CDI {
		return &spec{path: file, nodes: s.nodes}, nil // containers get the same nodes without CDI
	}
	version, err := specs.MinimumRequiredVersion(raw)
	if err != nil {
		return nil, accel.Problemf(accel.SpecInvalid, "cannot choose the version of %q: %v", file, err)
	}
	raw.Version = version
	s.bytes, err = json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return nil, accel.Problemf(accel.SpecInvalid, "cannot render %q: %v", file, err)
	}
	s.bytes = append(s.bytes, '\n')
	if err := validate(s.bytes); err != nil {
		return nil, accel.Problemf(accel.SpecInvalid, "cannot use the CDI spec of %q: %v", def.Kind, err)
	}
	return s, nil
}

// own renders the edits of one accelerator, with the gate as a hook if program is set. A device needs edits of its own
// to be in a spec. One that has none gets those of its kind once more, which changes nothing in the container.
func (w *specWriter) own(def *accel.Definition, a accel.Accelerator, program string,
	shared specs.ContainerEdits,
) specs.ContainerEdits {
	e, permissions := specs.ContainerEdits{Env: a.Env}, accel.Permissions(def.NodesOf(a.Profile))
	for _, n := range a.Nodes {
		e.DeviceNodes = append(e.DeviceNodes, w.node(n.Path, permissions))
	}
	for _, n := range a.Beside {
		e.DeviceNodes = append(e.DeviceNodes, w.node(n, "rw"))
	}
	if program != "" {
		var patience time.Duration
		if def.Handover != nil && a.Parent == "" {
			patience = def.Handover.Patience()
		}
		h := hookCommand(program, a.ID, patience)
		timeout := h.Timeout
		e.Hooks = []*specs.Hook{{
			HookName: cdi.CreateRuntimeHook, Path: h.Path, Args: h.Args, Env: h.Env, Timeout: &timeout,
		}}
	}
	if empty(e) {
		e = shared
		e.Env = slices.Clip(e.Env) // a caller may append
	}
	return e
}

// empty reports whether edits, as this package renders them, change nothing.
func empty(e specs.ContainerEdits) bool {
	return len(e.Env)+len(e.DeviceNodes)+len(e.Mounts)+len(e.Hooks) == 0
}

// sharedNodes returns the device nodes that every container of the kind gets, including the optional ones that
// exist.
func (w *specWriter) sharedNodes(def *accel.Definition) []string {
	nodes := slices.Clone(def.Container.Nodes)
	for _, n := range def.Container.OptionalNodes {
		if w.host.Exists(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// sharedEdits renders what every container of the kind gets.
func (w *specWriter) sharedEdits(def *accel.Definition) (specs.ContainerEdits, *accel.Problem) {
	e := specs.ContainerEdits{Env: def.Container.Env}
	for _, n := range w.sharedNodes(def) {
		e.DeviceNodes = append(e.DeviceNodes, w.node(n, accel.Permissions(def.Nodes)))
	}
	for _, m := range def.Container.Mounts {
		if m.Optional && !w.host.Exists(m.HostPath) {
			continue
		}
		options := slices.Clone(m.Options)
		if len(options) == 0 {
			options = readOnlyOptions()
		}
		if !slices.Contains(options, "bind") && !slices.Contains(options, "rbind") {
			options = append(options, "rbind") // runc recognizes a bind mount without a type only by this option
		}
		e.Mounts = append(e.Mounts, &specs.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, Options: options,
		})
	}
	libraries, p := w.libraries(def)
	e.Mounts = append(e.Mounts, libraries...)
	return e, p
}

// readOnlyOptions are the options of a mount without any.
func readOnlyOptions() []string { return []string{"ro", "nosuid", "nodev"} }

// node renders a device node. Type and numbers are left out, so that the runtime reads them from the host's node
// when it injects: if the driver is gone, the container fails instead of getting a dead node. The mode is the host's
// own and always written: without it CRI-O 1.34 turned a host's 0600 into 0666.
func (w *specWriter) node(name, permissions string) *specs.DeviceNode {
	mode := fs.FileMode(0o660)
	if st, err := w.host.Stat(name); err == nil {
		mode = st.Mode().Perm()
	}
	return &specs.DeviceNode{Path: name, Permissions: permissions, FileMode: &mode}
}

// validate checks a spec as runtimes do: strictly, with every rule of the library's loader, and also with the rules
// that otherwise apply only when a container starts.
func validate(data []byte) error {
	raw, err := cdi.ParseSpec(data)
	if err != nil {
		return err
	}
	if err := specs.ValidateVersion(raw); err != nil {
		return err
	}
	if err := validateEdits(raw.ContainerEdits); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, d := range raw.Devices {
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return fmt.Errorf("device %q: %w", d.Name, err)
		}
		if seen[d.Name] {
			return fmt.Errorf("device %q is there twice", d.Name)
		}
		seen[d.Name] = true
		if err := validateEdits(d.ContainerEdits); err != nil {
			return fmt.Errorf("device %q: %w", d.Name, err)
		}
	}
	return nil
}

func validateEdits(e specs.ContainerEdits) error {
	if err := (&cdi.ContainerEdits{ContainerEdits: &e}).Validate(); err != nil {
		return err
	}
	for _, n := range e.DeviceNodes {
		if !path.IsAbs(n.Path) {
			return fmt.Errorf("device node %q is not an absolute path", n.Path)
		}
	}
	for _, m := range e.Mounts {
		if !path.IsAbs(m.HostPath) || !path.IsAbs(m.ContainerPath) {
			return fmt.Errorf("mount of %q at %q: not absolute paths", m.HostPath, m.ContainerPath)
		}
	}
	return nil
}

// right reports whether the host has exactly this spec and no other file defines its devices.
func (w *specWriter) right(s *spec) (bool, *accel.Problem) {
	if len(s.bytes) == 0 {
		return !w.host.Exists(s.path), nil
	}
	if p := w.conflict(s); p != nil {
		return false, p
	}
	return w.same(s.path, s.bytes, 0o644), nil
}

// appliedTo returns the IDs of the devices whose device nodes in the file are those in s. A container that starts
// before the file is written gets the environment, mounts and hooks of the previous configuration with them.
func (w *specWriter) appliedTo(s *spec) (ids []string) {
	var want, have specs.Spec
	data, err := w.host.ReadFile(s.path)
	if err != nil || json.Unmarshal(data, &have) != nil || json.Unmarshal(s.bytes, &want) != nil {
		return nil
	}
	same := func(a, b specs.ContainerEdits) bool { return reflect.DeepEqual(a.DeviceNodes, b.DeviceNodes) }
	if want.Kind != have.Kind || !same(want.ContainerEdits, have.ContainerEdits) {
		return nil
	}
	for _, d := range want.Devices {
		if slices.ContainsFunc(have.Devices, func(other specs.Device) bool {
			return d.Name == other.Name && same(d.ContainerEdits, other.ContainerEdits)
		}) {
			ids = append(ids, d.Name)
		}
	}
	return ids
}

// publish writes the spec to the host, or removes it if it is empty.
func (w *specWriter) publish(s *spec) *accel.Problem {
	if len(s.bytes) == 0 {
		return w.remove(s.path)
	}
	if p := w.conflict(s); p != nil {
		return p
	}
	return w.write(s.path, s.bytes, 0o644)
}

// conflict looks for another file that defines one of our devices. A file that no runtime can read is ignored: it
// defines nothing.
func (w *specWriter) conflict(s *spec) *accel.Problem {
	vendor, _, _ := strings.Cut(s.devices[0], "/")
	for _, other := range w.mentioning(vendor) {
		if other.path == s.path {
			continue
		}
		for _, d := range other.Devices {
			if q := other.Kind + "=" + d.Name; slices.Contains(s.devices, q) {
				return accel.Problemf(accel.SpecConflict, "cannot offer device %q in %q: %q defines it too", q, s.path,
					other.path)
			}
		}
	}
	return nil
}

// foundSpec is a CDI spec that runtimes would load.
type foundSpec struct {
	path string
	*specs.Spec
}

// mentioning returns the specs in the CDI directories that contain the text, in order of precedence. Specs without it
// are not parsed: a vendor's own spec can have thousands of lines.
func (w *specWriter) mentioning(text string) []foundSpec {
	var found []foundSpec
	for _, dir := range w.dirs {
		entries, err := w.host.ReadDir(dir)
		if err != nil {
			continue // usually the directory does not exist
		}
		for _, e := range entries {
			ext := path.Ext(e.Name())
			if e.IsDir() || (ext != ".json" && ext != ".yaml") {
				continue
			}
			b, err := w.host.ReadFile(path.Join(dir, e.Name()))
			if err != nil || !bytes.Contains(b, []byte(text)) {
				continue
			}
			if raw, err := cdi.ParseSpec(b); err == nil && raw != nil {
				found = append(found, foundSpec{path.Join(dir, e.Name()), raw})
			}
		}
	}
	return found
}

// programs returns our programs that specs on the host name, sorted. acceld still serves the kinds of those specs.
func (w *specWriter) programs() []string {
	var programs []string
	for _, s := range w.mentioning(programName) {
		programs = append(programs, programsIn(s.ContainerEdits)...)
		for _, d := range s.Devices {
			programs = append(programs, programsIn(d.ContainerEdits)...)
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

func programsIn(e specs.ContainerEdits) (programs []string) {
	for _, h := range e.Hooks {
		if h != nil && ours(h.Path) {
			programs = append(programs, h.Path)
		}
	}
	return programs
}
