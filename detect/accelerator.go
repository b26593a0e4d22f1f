package detect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Accelerators returns the functions of pci that def recognises, ordered by ID. Nodes are empty while its driver
// is not bound. Health.State is empty when it is not known (see [Health]); Health.Since is always zero: the caller knows when
// it changed. Metrics are left to [Collect].
func Accelerators(h *host.Host, def *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
	var list []accel.Accelerator
	for _, d := range pci {
		if !def.Recognises(d) {
			continue
		}
		a := accel.Accelerator{ID: d.Address, NUMANode: d.NUMANode, Bound: d.Driver}
		if a.Bound != "" && (def.Driver.Binds == "" || a.Bound == def.Driver.Binds) { // another driver's nodes are not ours
			a.Nodes = nodes(h, def, a.ID)
		}
		a.Ports, _ = accel.PortsAbove(a.ID, pci) // as far up as they are known
		a.Serial, a.UUID, a.Fabric = word(h, a.ID, def.Serial), word(h, a.ID, def.UUID), word(h, a.ID, def.Fabric)
		a.Capacity = amounts(def.Capacity, func(file string) (string, error) { return h.DeviceAttribute(a.ID, file) })
		if len(a.Nodes) > 0 || len(def.Nodes) == 0 {
			a.Partitions = partitions(h, def, a)
		}
		if health, err := Health(h, def, a); err == nil {
			a.Health = health
		}
		list = append(list, a)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list
}

// word reads an attribute that names something; empty where there is none to be read, or what is there is no text.
func word(h *host.Host, id, file string) string {
	if file == "" {
		return ""
	}
	s, err := h.DeviceAttribute(id, file)
	if err != nil || !printable(s) {
		return ""
	}
	return s
}

// amounts reads those capacities that are in files; what does not answer is left out.
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

// Health reads the health of a. An attribute that cannot be read is an error: not known, keep the last answer. A
// content other than the healthy one is unhealthy with the content as message. A function that is no longer on the bus
// is gone. Since is zero.
func Health(h *host.Host, def *accel.Definition, a accel.Accelerator) (accel.Health, error) {
	if _, err := h.Stat(path.Join(pciDevices, a.ID)); errors.Is(err, fs.ErrNotExist) && h.Exists(pciDevices) {
		return accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Message: a.ID + " is not on the PCI bus"}, nil
	}
	if unreachable(h, a.ID) {
		return accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnreachable, Action: accel.ActionReboot, Message: "it does not answer on the bus any more"}, nil
	}
	for _, source := range def.Health {
		s, err := h.DeviceAttribute(a.ID, source.File)
		if source.Optional && absent(err) {
			continue
		}
		if err != nil {
			return accel.Health{}, accel.Problemf(accel.CollectFailed, "cannot read the health of %s: %v", a.ID, err)
		}
		if s != source.Healthy {
			return accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: clean(s)}, nil
		}
	}
	return accel.Health{State: accel.Healthy}, nil
}

// unreachable reports whether the bus answers for a device that does not: all bits set, which is no vendor's number. A device
// that sleeps is not woken up for the question.
func unreachable(h *host.Host, id string) bool {
	if s, err := h.DeviceAttribute(id, "power/runtime_status"); err == nil && s == "suspended" {
		return false
	}
	f, err := h.Open(path.Join(pciDevices, id, "config"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	var head [4]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && head == [4]byte{0xff, 0xff, 0xff, 0xff}
}

// Collect reads the metrics of a, by name, in the base unit of the name. With an error, which names each attribute that
// did not answer, the map has the others.
func Collect(h *host.Host, def *accel.Definition, a accel.Accelerator) (map[string]float64, error) {
	values := make(map[string]float64, len(def.Metrics))
	var failed []string
	for _, m := range def.Metrics {
		s, err := h.DeviceAttribute(a.ID, m.File)
		if m.Optional && absent(err) {
			continue
		}
		var v float64
		if err == nil {
			v, err = number(s)
		}
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", m.File, err))
			continue
		}
		if m.Scale != 0 {
			v *= m.Scale
		}
		values[m.Name] = v
	}
	if failed != nil {
		return values, accel.Problemf(accel.CollectFailed, "cannot collect metrics of %s: %s", a.ID, strings.Join(failed, "; "))
	}
	return values, nil
}

// absent reports whether an attribute is not there, or is there and this device has nothing to say in it: a driver
// answers so for a sensor that the board lacks.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODATA)
}

// number parses a decimal number, or a hexadecimal one with "0x".
func number(s string) (float64, error) {
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		n, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number", clean(s))
		}
		return float64(n), nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number", clean(s))
	}
	return v, nil
}

// clean makes the content of an attribute fit for a sentence.
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
func nodes(h *host.Host, def *accel.Definition, id string) []accel.DeviceNode {
	found, _ := h.DeviceNodes(id, def.Nodes)
	var list []accel.DeviceNode
	for _, n := range found {
		list = append(list, n.DeviceNode)
	}
	return list
}
