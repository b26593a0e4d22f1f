package driver

import (
	"io/fs"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// device is what is true now about one accelerator and its driver.
type device struct {
	id      string
	bound   string // the PCI driver
	kept    string // the PCI driver that alone may bind it, by driver_override
	nodes   []accel.DeviceNode
	missing string      // what is not there: a node's path or the pattern that nothing matches; empty when all are
	deleted []host.Node // nodes that the kernel has and /dev has not
}

func functionDir(id string) string { return path.Join("/sys/bus/pci/devices", id) }

// observe reads the driver and the nodes of the accelerators that are present. What the caller knows of them may be
// older than a load.
func (d *Driver) observe(def *accel.Definition, accs []accel.Accelerator) []device {
	var out []device
	for _, a := range accs {
		if !a.Present() || !d.h.Exists(functionDir(a.ID)) {
			continue
		}
		v := device{id: a.ID}
		if link, err := d.h.Readlink(path.Join(functionDir(a.ID), "driver")); err == nil {
			v.bound = path.Base(link)
		}
		if o, err := d.h.ReadString(path.Join(functionDir(a.ID), "driver_override")); err == nil && o != "(null)" {
			v.kept = o
		}
		d.findNodes(&v, def.Nodes)
		out = append(out, v)
	}
	return out
}

// findNodes fills in the nodes that the rows of the definition find. A node of an optional row may be made by nobody.
func (d *Driver) findNodes(v *device, sources []accel.NodeSource) {
	found, missing := d.h.DeviceNodes(v.id, sources)
	if len(missing) > 0 {
		v.missing = missing[0]
	}
	for _, n := range found {
		v.nodes = append(v.nodes, n.DeviceNode)
		if d.nodeThere(n.DeviceNode) {
			continue
		}
		if v.missing == "" {
			v.missing = n.Path
		}
		if !d.h.Exists(n.Path) {
			v.deleted = append(v.deleted, n)
		}
	}
}

// sharedNodes looks for the nodes that all devices of the kind share: missing names the first that is not there,
// deleted are those that can be made.
func (d *Driver) sharedNodes(def *accel.Definition) (missing string, deleted []host.Node) {
	made, unknown := d.h.MadeNodes("", def.Driver.MakeNodes)
	for _, n := range made {
		if d.nodeThere(n.DeviceNode) {
			continue
		}
		unknown = append(unknown, n.Path)
		if !d.h.Exists(n.Path) {
			deleted = append(deleted, n)
		}
	}
	for _, name := range def.Container.Nodes {
		if !d.h.Exists(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		missing = unknown[0]
	}
	return missing, deleted
}

// sharedProblem says which shared node is not there when the driver is; nil when all are.
func (d *Driver) sharedProblem(def *accel.Definition, live bool) *accel.Problem {
	if missing, _ := d.sharedNodes(def); live && missing != "" {
		return accel.Problemf(accel.NodeMissing, "the driver of %q is loaded and its device node %q is missing", def.Kind, missing)
	}
	return nil
}

// makeNodes makes the nodes that are not there and whose numbers are known: those that the driver leaves to others to
// make and, when again is true, those that somebody deleted, which neither devtmpfs nor udev makes again. Somebody else
// may be as quick.
func (d *Driver) makeNodes(def *accel.Definition, accs []accel.Accelerator, again bool) {
	_, nodes := d.sharedNodes(def)
	for _, v := range d.observe(def, accs) {
		nodes = append(nodes, v.deleted...)
	}
	for _, n := range nodes {
		if !n.Made && !again {
			continue
		}
		if err := d.ledger.Mknod(n.Path, n.Major, n.Minor, n.Mode); err != nil {
			d.log.Warn("cannot make a device node", "node", n.Path, "error", err)
		}
	}
}

// nodeThere reports whether the node is the device that sysfs says. On a copy of a machine any file will do.
func (d *Driver) nodeThere(n accel.DeviceNode) bool {
	st, err := d.h.Stat(n.Path)
	if err != nil {
		return false
	}
	if st.Mode()&fs.ModeDevice == 0 {
		return !d.h.Live()
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || unix.Major(sys.Rdev) == n.Major && unix.Minor(sys.Rdev) == n.Minor
}

// deviceProblem says why the devices are not all driven by def's driver: nil when they are. When the modules are live,
// an unbound device is one that was refused.
func deviceProblem(def *accel.Definition, devices []device, live bool) *accel.Problem {
	for _, v := range devices {
		if v.bound != "" && v.bound != def.Driver.Binds {
			return accel.Problemf(accel.ConflictDriver, "device %q is bound to driver %q, not to %q", v.id, v.bound, def.Driver.Binds)
		}
		if v.bound == "" && v.kept != "" && v.kept != def.Driver.Binds {
			return accel.Problemf(accel.ConflictDriver, "device %q is kept for driver %q by driver_override", v.id, v.kept)
		}
	}
	if !live {
		return nil
	}
	for _, v := range devices {
		if v.bound == "" {
			return accel.Problemf(accel.ProbeFailed, "driver %q is loaded and device %q is not bound to it", def.Driver.Binds, v.id)
		}
	}
	for _, v := range devices {
		if v.missing != "" {
			return accel.Problemf(accel.NodeMissing, "device %q is bound to %q and its device node %q is missing", v.id, v.bound, v.missing)
		}
	}
	return nil
}

// nodeAt returns the device node at a path; without numbers when it is not a device.
func (d *Driver) nodeAt(name string) accel.DeviceNode {
	n := accel.DeviceNode{Path: name}
	st, err := d.h.Stat(name)
	if err != nil || st.Mode()&fs.ModeDevice == 0 {
		return n
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		n.Major, n.Minor = unix.Major(sys.Rdev), unix.Minor(sys.Rdev)
	}
	return n
}
