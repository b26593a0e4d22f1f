package devices

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// findNodes fills in the nodes that match the definition's rows. The node of an optional row may never be created.
func (s *Devices) findNodes(v *Device, def *accel.Definition) {
	found, missing := s.h.Devices().Of(def).Nodes(v.ID, def.Nodes)
	if len(missing) > 0 {
		v.Missing = missing[0]
	}
	for _, n := range found {
		v.Nodes = append(v.Nodes, n.DeviceNode)
		if s.nodeThere(n.DeviceNode) {
			continue
		}
		if v.Missing == "" {
			v.Missing = n.Path
		}
		if !s.h.Exists(n.Path) {
			v.deleted = append(v.deleted, n)
		}
	}
}

// sharedNodes looks for the nodes that all devices of the kind share. Missing names the first missing one; deleted
// are those that can be created.
func (s *Devices) sharedNodes(def *accel.Definition) (missing string, deleted []host.Node) {
	made, unknown := s.h.Devices().MadeNodes(def.Driver.MakeNodes)
	for _, n := range made {
		if s.nodeThere(n.DeviceNode) {
			continue
		}
		unknown = append(unknown, n.Path)
		if !s.h.Exists(n.Path) {
			deleted = append(deleted, n)
		}
	}
	for _, name := range def.Container.Nodes {
		if !s.h.Exists(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		missing = unknown[0]
	}
	return missing, deleted
}

// SharedProblem says which shared node is missing although the driver is live; nil if none is.
func (s *Devices) SharedProblem(def *accel.Definition, live bool) *accel.Problem {
	if missing, _ := s.sharedNodes(def); live && missing != "" {
		return nodeMissing(fmt.Sprintf("the driver of %q is loaded and its device node", def.Kind), missing)
	}
	return nil
}

// nodeMissing says that a node is missing. If its numbers are not known, udev could not create it either.
func nodeMissing(whose, node string) *accel.Problem {
	p := accel.Problemf(accel.NodeMissing, "%s %q is missing", whose, node)
	if strings.Contains(node, host.UnnumberedMark) {
		return p.ToDo("Read the kernel log for messages of the driver (dmesg): it is loaded and has not set up the device.")
	}
	return p
}

// MakeNodes creates missing nodes whose numbers are known: those that the driver leaves to user space and, if again
// is true, those that somebody deleted, which neither devtmpfs nor udev recreates. Somebody else may create them at
// the same time.
func (s *Devices) MakeNodes(def *accel.Definition, accs []accel.Accelerator, again bool) {
	_, nodes := s.sharedNodes(def)
	for _, v := range s.Observe(def, accs) {
		nodes = append(nodes, v.deleted...)
	}
	for _, n := range nodes {
		if !n.Made && !again {
			continue
		}
		if err := s.ledger.Mknod(n.Path, n.Major, n.Minor, n.Mode); err != nil {
			s.log.Warn("cannot make a device node", "node", n.Path, "error", err)
		}
	}
}

// nodeThere reports whether the node is the device that sysfs names. On a copy of a machine, any file will do.
func (s *Devices) nodeThere(n accel.DeviceNode) bool {
	st, err := s.h.Stat(n.Path)
	if err != nil {
		return false
	}
	if st.Mode()&fs.ModeDevice == 0 {
		return !s.h.Live()
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || unix.Major(sys.Rdev) == n.Major && unix.Minor(sys.Rdev) == n.Minor
}

// NodeAt returns the device node at a path, without numbers if it is not a device.
func (s *Devices) NodeAt(name string) accel.DeviceNode {
	n := accel.DeviceNode{Path: name}
	st, err := s.h.Stat(name)
	if err != nil || st.Mode()&fs.ModeDevice == 0 {
		return n
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		n.Major, n.Minor = unix.Major(sys.Rdev), unix.Minor(sys.Rdev)
	}
	return n
}

// ForeignNodes are the nodes of a device that any driver made, such as drm/card0, the node of a disk or, with VFIO,
// that of its IOMMU group.
func (s *Devices) ForeignNodes(id string) []accel.DeviceNode {
	of := s.h.Devices()
	found, _ := of.Nodes(id, []accel.NodeSource{{Glob: "/sys/class/vfio/" + accel.GroupTemplate}})
	for _, class := range s.directories(of.Dir(id)) {
		for _, dir := range s.directories(class) {
			for _, at := range append(s.directories(dir), dir) {
				described, _ := of.NodesAt(at, id, []accel.NodeSource{{Glob: "."}})
				found = append(found, described...)
			}
		}
	}
	var out []accel.DeviceNode
	for _, n := range found {
		out = append(out, n.DeviceNode)
	}
	disks, _ := s.disks(id) // if they are not known, HostUse says why
	return append(out, disks...)
}

// directories returns the directories in dir, without links: those of sysfs lead to other devices.
func (s *Devices) directories(dir string) (out []string) {
	entries, _ := s.h.ReadDir(dir) // a device may vanish at any moment
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, path.Join(dir, e.Name()))
		}
	}
	return out
}
