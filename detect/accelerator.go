package detect

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Accelerators returns those of devices that def recognises, ordered by ID. Nodes are empty unless the device is bound
// to its driver. Health.State is empty if it is unknown. Health.Since is always zero: the caller
// knows when the health changed. Metrics are left to [Collect].
func Accelerators(h *host.Host, def *accel.Definition, devices []accel.Device) []accel.Accelerator {
	return accelerators(h, def, devices, devices)
}

// accelerators is [Accelerators] for some devices of all.
func accelerators(h *host.Host, def *accel.Definition, devices, all []accel.Device) []accel.Accelerator {
	var list []accel.Accelerator
	for _, d := range devices {
		if !def.Recognises(d) {
			continue
		}
		a := accel.Accelerator{ID: d.Address, NUMANode: d.NUMANode, Bound: d.Driver, Switched: d.Switched}
		// another driver's nodes are not ours
		switch {
		case a.Switched != nil:
			a.Nodes = switchedNodes(h, a)
			a.WithholdSwitched()
		case def.Serves(a.Bound):
			a.Nodes = nodes(h.Devices().Of(def), def.Nodes, a.ID)
		}
		a.Ports, _ = accel.PortsAbove(a.ID, all) // as far up as known
		from := h.Devices().Of(def).Attributes(a.ID)
		a.Serial, a.UUID, a.Model, a.Fabric = word(from, def.Serial), word(from, def.UUID), word(from, def.Model),
			word(from, def.Fabric)
		if s := a.Switched; s != nil {
			a.Serial, a.UUID, a.Model = cmp.Or(a.Serial, s.Serial), cmp.Or(a.UUID, s.UUID), cmp.Or(a.Model, s.Model)
		}
		a.Capacity = amounts(def.Capacity, from.Read)
		if a.Switched == nil && (len(a.Nodes) > 0 || len(def.Nodes) == 0) {
			a.Partitions = partitions(h, def, a)
		}
		if told, err := health(h, from, def, a.ID); err == nil {
			a.Health = told
		}
		list = append(list, a)
	}
	accel.SortByID(list)
	return list
}

// word reads an attribute that holds a name. It returns "" if the attribute cannot be read or is not text.
func word(from attributes, file string) string {
	if file == "" {
		return ""
	}
	s, err := from.Read(file)
	if err != nil || !printable(s) {
		return ""
	}
	return s
}

// amounts reads the capacities that are in files. Those that cannot be read are left out.
func amounts(all []accel.Capacity, read func(file string) (string, error)) map[string]int64 {
	var amounts map[string]int64
	for _, c := range all {
		if c.File == "" {
			continue
		}
		s, err := read(c.File)
		if err != nil {
			continue
		}
		v, err := number(s)
		if c.Scale != 0 {
			v *= c.Scale
		}
		if err != nil || v < 0 || v >= math.MaxInt64 {
			continue
		}
		if amounts == nil {
			amounts = map[string]int64{}
		}
		amounts[c.Name] = int64(v)
	}
	return amounts
}

// clean makes the content of an attribute fit into a sentence.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, s)
	const longest = 200
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return strings.TrimSpace(s)
}

// nodes finds the device nodes of one accelerator, ordered by path.
func nodes(from host.Devices, sources []accel.NodeSource, id string) []accel.DeviceNode {
	found, _ := from.Nodes(id, sources)
	var list []accel.DeviceNode
	for _, n := range found {
		list = append(list, n.DeviceNode)
	}
	return list
}

// switchedNodes finds the nodes of an accelerator that is given out with another driver than its kind's; none unless it
// has that driver and all of them are there.
func switchedNodes(h *host.Host, a accel.Accelerator) []accel.DeviceNode {
	if a.Bound != a.Switched.Driver {
		return nil
	}
	list := nodes(h.Devices(), accel.VFIONodeOf(), a.ID)
	if slices.ContainsFunc(list, func(n accel.DeviceNode) bool { return !h.Exists(n.Path) }) {
		return nil
	}
	return list
}
