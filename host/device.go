package host

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// Devices are the devices of the machine, by address: their attributes in sysfs and their nodes below /dev.
type Devices struct {
	h        *Host
	confined bool
}

// Devices returns the machine's devices.
func (h *Host) Devices() Devices { return Devices{h: h} }

// Of returns the devices as a definition may see them: if it is confined, only what belongs to the function that is
// asked about, wherever links lead.
func (d Devices) Of(def *accel.Definition) Devices {
	d.confined = def.Confined
	return d
}

// Node is a device node that sysfs or a definition describes, whether or not it exists in /dev.
type Node struct {
	accel.DeviceNode
	// Mode is the mode that the driver requests. If the driver requests none, the kernel creates the node for root
	// alone (drivers/base/devtmpfs.c).
	Mode fs.FileMode
	// Made is true for a node of an accel.MadeNode, false for one from sysfs.
	Made bool
}

// Nodes finds the nodes of the device at address that sources describe, ordered by path. missing names
// what the mandatory sources did not find.
func (d Devices) Nodes(address string, sources []accel.NodeSource) (nodes []Node, missing []string) {
	return d.NodesAt(d.Dir(address), address, sources)
}

// NodesAt is [Devices.Nodes] for a part of the function. Relative names are relative to base: a directory, or a
// device node below /dev, which the glob "." selects.
func (d Devices) NodesAt(base, address string, sources []accel.NodeSource) (nodes []Node, missing []string) {
	for _, s := range sources {
		found, absent := d.sourceNodes(base, address, s)
		nodes = append(nodes, found...)
		if !s.Optional {
			missing = append(missing, absent...)
		}
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Path < nodes[j].Path })
	return slices.CompactFunc(nodes, func(a, b Node) bool { return a.Path == b.Path }), missing
}

func (d Devices) sourceNodes(base, address string, s accel.NodeSource) (nodes []Node, missing []string) {
	if s.Make != nil {
		return d.madeNodes(base, address, []accel.MadeNode{*s.Make})
	}
	dir, pattern := base, accel.NodeText(s.Glob, address, d.group(base, address))
	if strings.Contains(pattern, accel.GroupTemplate) {
		return nil, []string{s.Glob + " (it is in no IOMMU group)"}
	}
	if path.IsAbs(pattern) {
		dir, pattern = "/sys", strings.TrimPrefix(pattern, "/sys/")
	}
	matches := []string{base}
	if pattern != "." {
		matches = d.h.Glob(dir, pattern)
	}
	for _, match := range matches {
		n, err := d.nodeOf(match)
		if err != nil || !d.gives(match, address) {
			continue
		}
		nodes = append(nodes, n)
		for _, sibling := range s.Siblings {
			name := accel.DeviceText(sibling, address, endNumber(match))
			n, err := d.sysfsNode(name)
			if err != nil || d.confined && d.subsystem(name) != d.subsystem(match) {
				missing = append(missing, name)
				continue
			}
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		missing = append(missing, accel.NodeText(s.Glob, address, d.group(base, address)))
	}
	return nodes, missing
}

// Group returns the number of the IOMMU group of the function at address; empty if it is in none.
func (d Devices) Group(address string) string {
	return d.group(d.Dir(address), address)
}

// group returns the number of the IOMMU group of a part of a function that is a function itself, as virtual functions
// are, or else of the function.
func (d Devices) group(base, address string) string {
	for _, dir := range []string{base, d.Dir(address)} {
		to, err := d.h.Readlink(path.Join(dir, "iommu_group"))
		if n, bad := strconv.ParseUint(path.Base(to), 10, 31); err == nil && bad == nil {
			return strconv.FormatUint(n, 10)
		}
		if d.h.Exists(path.Join(dir, "vendor")) {
			break // a function in no group: that of another one is not its own
		}
	}
	return ""
}

// endNumber returns the decimal number at the end of a name, or -1 if there is none.
func endNumber(name string) int {
	n, err := strconv.Atoi(name[len(strings.TrimRight(name, "0123456789")):])
	if err != nil {
		return -1
	}
	return n
}

// nodeOf returns the device node at a path: a node in /dev itself, or the one that a sysfs directory describes.
func (d Devices) nodeOf(name string) (Node, error) {
	if !strings.HasPrefix(name, "/dev/") {
		return d.sysfsNode(name)
	}
	info, err := d.h.Stat(name)
	if err != nil {
		return Node{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeDevice == 0 {
		return Node{}, fmt.Errorf("%q is no device node", name)
	}
	n := accel.DeviceNode{Path: name, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	return Node{DeviceNode: n, Mode: info.Mode().Perm()}, nil
}

// sysfsNode reads one device directory. "dev" holds "major:minor". "uevent" holds DEVNAME, the path below /dev, and
// DEVMODE if the driver requests a mode.
func (d Devices) sysfsNode(dir string) (Node, error) {
	dev, err := d.h.ReadAttribute(path.Join(dir, "dev"))
	if err != nil {
		return Node{}, err
	}
	major, minor, err := numbers(dev)
	if err != nil {
		return Node{}, err
	}
	text, err := d.h.ReadAttribute(path.Join(dir, "uevent"))
	if err != nil {
		return Node{}, err
	}
	name, _ := Line(text, "DEVNAME")
	n := accel.DeviceNode{Path: path.Join("/dev", name), Major: major, Minor: minor}
	if !strings.HasPrefix(n.Path, "/dev/") || !printable(name) {
		return Node{}, fmt.Errorf("no DEVNAME in %s/uevent", dir)
	}
	requested, _ := Line(text, "DEVMODE")
	mode, err := strconv.ParseUint(requested, 8, 32)
	if err != nil {
		mode = 0o600
	}
	return Node{DeviceNode: n, Mode: fs.FileMode(mode) & fs.ModePerm}, nil
}

// printable reports whether s can be part of a path.
func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == unicode.ReplacementChar
	})
}

// UnnumberedMark follows the name of a missing node whose numbers are not known.
const UnnumberedMark = " (no number: "

// MadeNodes resolves nodes that are not in sysfs and that all devices share. Rows whose module is not live are left
// out; missing names the rows whose numbers were not found.
func (d Devices) MadeNodes(rows []accel.MadeNode) (nodes []Node, missing []string) {
	return d.madeNodes("/sys", "", rows)
}

// madeNodes takes majors from /proc/devices and minors from an attribute of the function at address, or of its part at
// base.
func (d Devices) madeNodes(base, address string, rows []accel.MadeNode) (nodes []Node, missing []string) {
	var majors map[string]uint32
	for _, row := range rows {
		if row.Module != "" && !d.h.Exists(path.Join("/sys/module", strings.ReplaceAll(row.Module, "-", "_"))) {
			continue
		}
		if majors == nil {
			majors = d.characterMajors()
		}
		major, known := uint32(0), false
		why := "its driver has registered no " + strings.Join(row.Majors, " or ") + " in /proc/devices"
		for _, name := range row.Majors {
			if major, known = majors[name]; known {
				break
			}
		}
		minor := uint64(row.Minor)
		if row.MinorFrom != "" {
			text, _ := d.AttributeAt(base, address, row.MinorFrom) // on an error, text is no number
			var err error
			if minor, err = strconv.ParseUint(text, 10, 20); err != nil { // MINORBITS, include/linux/kdev_t.h
				known, why = false, "the device does not tell it"
			}
		}
		if !known {
			missing = append(missing, strings.ReplaceAll(row.Path, "{{.Number}}", "N")+UnnumberedMark+why+")")
			continue
		}
		mode, err := strconv.ParseUint(cmp.Or(row.Mode, "0666"), 8, 32)
		if err != nil {
			mode = 0o600 // the definition was not validated: root only
		}
		n := accel.DeviceNode{Path: accel.DeviceText(row.Path, address, int(minor)), Major: major, Minor: uint32(minor)}
		nodes = append(nodes, Node{n, fs.FileMode(mode) & fs.ModePerm, true})
	}
	return nodes, missing
}

// characterMajors reads the character devices, the first half of /proc/devices, and returns their majors by name.
func (d Devices) characterMajors() map[string]uint32 {
	out := map[string]uint32{}
	text, _ := d.h.ReadAttribute("/proc/devices") // without it, no major is known
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "Block devices") {
			break
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if major, err := strconv.ParseUint(fields[0], 10, 12); err == nil {
			if _, again := out[fields[1]]; !again { // a name may occur more than once: the first is the driver's
				out[fields[1]] = uint32(major)
			}
		}
	}
	return out
}
