package detect

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// partitions returns the parts into which a is divided now, ordered by ID. A part whose profile cannot be read is left
// out: another event follows when it is complete. Health.State is empty if it is the same as the device's.
func partitions(h *host.Host, def *accel.Definition, a accel.Accelerator) []accel.Accelerator {
	d := def.Partitions
	if d == nil || d.Told {
		return nil
	}
	devices, fixed := h.Devices().Of(def), ""
	if path.IsAbs(d.Profile) { // the profile of the whole device: an undivided device needs no more reads
		var err error
		if fixed, err = devices.Attribute(a.ID, d.Profile); err != nil || fixed == "" || fixed == d.Whole {
			return nil
		}
	}
	number := -1
	if d.NumberFrom != "" {
		text, err := devices.Attribute(a.ID, d.NumberFrom)
		if err != nil {
			return nil
		}
		if number, err = strconv.Atoi(text); err != nil {
			return nil
		}
	}
	dir, pattern := h.Devices().Dir(a.ID), accel.DeviceText(d.Find, a.ID, number)
	if path.IsAbs(pattern) {
		dir, pattern = "/", pattern[1:]
	}
	form, err := regexp.Compile(d.Form)
	if err != nil {
		return nil // the definition was validated
	}
	all := h.Glob(dir, pattern)
	slices.SortFunc(all, accel.Natural)
	var list []accel.Accelerator
	own := 0
	for _, found := range all {
		m := form.FindStringSubmatch(found)
		if m == nil || !devices.Has(found, a.ID) || !belongs(devices, d.Of, found, a.ID) {
			continue
		}
		name, profile := patterned(pattern, found), fixed
		if d.Of != nil {
			name = strconv.Itoa(own)
		}
		own++
		if i := form.SubexpIndex("name"); i > 0 {
			name = m[i]
		}
		if i := form.SubexpIndex("profile"); i > 0 {
			profile = m[i]
		}
		if d.Profile != "" && fixed == "" {
			if profile, err = devices.AttributeAt(found, a.ID, d.Profile); err != nil {
				continue
			}
		}
		if profile == d.Whole && profile != "" {
			continue
		}
		if p, ok := partition(h, def, a, found, accel.PartitionWord(profile), accel.PartitionWord(name)); ok {
			list = append(list, p)
		}
	}
	accel.SortByID(list)
	return slices.CompactFunc(list, func(x, y accel.Accelerator) bool { return x.ID == y.ID })
}

// partition returns the part of a that was found at a path.
func partition(h *host.Host, def *accel.Definition, a accel.Accelerator, found, profile,
	name string,
) (accel.Accelerator, bool) {
	if profile == "" || name == "" {
		return accel.Accelerator{}, false
	}
	d := def.Partitions
	p := accel.Accelerator{
		ID: accel.PartitionID(a.ID, profile, name), Parent: a.ID, Profile: profile,
		NUMANode: a.NUMANode, Ports: a.Ports, Fabric: a.Fabric, Bound: a.Bound, Serial: a.Serial, Model: a.Model,
		Capacity: amounts(def.Profile(profile).Capacity, func(file string) (string, error) {
			return h.Devices().Of(def).AttributeAt(found, a.ID, file)
		}),
	}
	nodes, missing := h.Devices().Of(def).NodesAt(found, a.ID, d.Nodes)
	for _, n := range nodes {
		p.Nodes = append(p.Nodes, n.DeviceNode)
		if !h.Exists(n.Path) {
			missing = append(missing, n.Path)
		}
	}
	if d.WithDevice {
		p.Nodes = append(p.Nodes, a.Nodes...)
	}
	for _, e := range d.Env {
		p.Env = append(p.Env, accel.PartitionText(e, a.ID, name, profile))
	}
	if len(missing) > 0 {
		p.Health = accel.Health{
			State: accel.Unhealthy, Reason: accel.NodeMissing,
			Message: "there is no device node for " + strings.Join(missing, ", "),
		}
	}
	return p, true
}

// patterned joins the elements of a path that matched a wildcard.
func patterned(pattern, found string) string {
	patterns := strings.Split(path.Clean(pattern), "/")
	elements := strings.Split(found, "/")
	elements = elements[max(0, len(elements)-len(patterns)):]
	var names []string
	for i, e := range elements {
		if strings.ContainsAny(patterns[i], "*?[") {
			names = append(names, e)
		}
	}
	return strings.Join(names, "-")
}

// belongs reports whether what was found at a path belongs to the device.
func belongs(devices host.Devices, of *accel.Belonging, found, id string) bool {
	if of == nil {
		return true
	}
	theirs, err := devices.AttributeAt(found, id, of.File)
	if err != nil {
		return false
	}
	if of.Place {
		return placed(devices, of, found, id, theirs)
	}
	ours, err := devices.Attribute(id, of.Device)
	if err != nil {
		return false
	}
	if of.Hex {
		ours = "0x" + strings.TrimPrefix(ours, "0x")
	}
	x, err1 := strconv.ParseUint(theirs, 0, 64)
	y, err2 := strconv.ParseUint(ours, 0, 64)
	return err1 == nil && err2 == nil && x == y
}

// placed reports whether a number encodes the device's address on the bus: bus and device number, with the domain in
// another file.
func placed(devices host.Devices, of *accel.Belonging, found, id, text string) bool {
	place, err := strconv.ParseUint(text, 0, 64)
	if err != nil || !isAddress(id) {
		return false
	}
	parts := strings.FieldsFunc(id, func(r rune) bool { return r == ':' || r == '.' })
	hexadecimal := func(part string) uint64 {
		v, _ := strconv.ParseUint(part, 16, 64) // isAddress has checked it
		return v
	}
	if place>>8&0xff != hexadecimal(parts[1]) || place>>3&0x1f != hexadecimal(parts[2]) {
		return false
	}
	if of.Domain == "" {
		return true
	}
	if text, err = devices.AttributeAt(found, id, of.Domain); err != nil {
		return false
	}
	domain, err := strconv.ParseUint(text, 0, 64)
	return err == nil && domain == hexadecimal(parts[0])
}
