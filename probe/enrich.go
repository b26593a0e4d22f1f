package probe

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// layout is what a program has reported about how a device is divided.
type layout struct {
	// unknown means that no program has reported yet; the device must not be given out whole until one has.
	unknown bool
	// current means that the current program has reported it, and that nothing else is wrong with the device.
	current bool
	// mode means that the device is in the mode for parts; then it is divided even if it has no part.
	mode bool
}

// complete applies the reports to a device that the kind's driver is bound to. If the program has fallen silent, its
// last reports are kept and the device is marked as degraded.
func (b *book) complete(h *host.Host, def *accel.Definition, a *accel.Accelerator) layout {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, told := b.devices[a.ID]
	l := layout{
		unknown: !told && !b.fresh && !b.tried && b.problem == nil && b.stuck == "",
		current: told && b.fresh && b.problem == nil && !b.stale(),
	}
	if told {
		b.identify(def, d, a)
		if d.Health != nil {
			l.mode = d.Health.Reason == accel.DevicePartitioned
			l.current = l.current && (l.mode || d.Health.State != accel.Unhealthy)
			a.Health = worse(a.Health, d.Health.State, d.Health.Reason, d.Health.Action, d.Health.Message)
		}
		if def.Partitions != nil && def.Partitions.Told {
			a.Partitions = partitions(h, def, *a, d.Partitions)
		}
	}
	switch {
	case b.stuck != "":
		a.Health = worse(a.Health, accel.Degraded, accel.ProbeUnanswered, "", b.stuck)
	case b.stale():
		why := cmp.Or(b.quiet, b.program+" says nothing of it")
		a.Health = worse(a.Health, accel.Degraded, accel.ProbeUnanswered, "", why)
	case b.problem != nil:
		a.Health = worse(a.Health, accel.Degraded, b.problem.Reason, "", b.problem.Message)
	case !told && b.fresh && slices.Contains(b.bound, a.ID):
		a.Health = worse(a.Health, accel.Unhealthy, accel.DeviceUnhealthy, "",
			"its driver is bound and "+b.program+" does not find it")
	}
	return l
}

// reported reports whether the current program has reported.
func (b *book) reported() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fresh
}

// identify sets a device's names. The caller holds b.mu.
func (b *book) identify(def *accel.Definition, d accel.ProbeDevice, a *accel.Accelerator) {
	a.UUID = cmp.Or(d.UUID, a.UUID) // a driver may know it only once the device has been opened
	if def.Serial == "" {
		a.Serial = d.Serial
	}
	if def.Fabric == "" {
		a.Fabric = d.Fabric
	}
	if a.NUMANode < 0 && d.NUMANode != nil {
		a.NUMANode = *d.NUMANode
	}
	a.Model = d.Model
}

// worse returns the health h, or the given one if that is worse. An empty state of h means unknown.
func worse(h accel.Health, state accel.HealthState, reason accel.Reason, action accel.Action,
	message string,
) accel.Health {
	if !state.Worse(h.State) {
		return h
	}
	return accel.Health{State: state, Reason: reason, Action: action, Message: message}
}

// partitions returns the parts of a, ordered by ID. Health.State is empty if it is the same as the device's.
func partitions(h *host.Host, def *accel.Definition, a accel.Accelerator,
	told []accel.ProbePartition,
) []accel.Accelerator {
	if len(a.Nodes) == 0 && len(def.Nodes) > 0 {
		return nil
	}
	var list []accel.Accelerator
	for _, t := range told {
		name, profile := accel.PartitionWord(t.Name), accel.PartitionWord(t.Profile)
		if name == "" || profile == "" {
			continue
		}
		p := accel.Accelerator{
			ID: accel.PartitionID(a.ID, profile, name), Parent: a.ID, Profile: profile,
			NUMANode: a.NUMANode, Ports: a.Ports, Fabric: a.Fabric, Bound: a.Bound, Serial: a.Serial,
			UUID: clean(t.UUID), Model: a.Model,
			Capacity: t.Capacity,
		}
		var missing []string
		p.Nodes, missing = nodes(h, a.ID, t.Nodes)
		if def.Partitions.WithDevice {
			p.Nodes = append(p.Nodes, a.Nodes...)
		}
		for _, e := range def.Partitions.Env {
			p.Env = append(p.Env, accel.PartitionText(e, a.ID, name, profile))
		}
		if len(missing) > 0 {
			p.Health = accel.Health{
				State: accel.Unhealthy, Reason: accel.NodeMissing,
				Message: "there is no device node " + strings.Join(missing, ", "),
			}
		}
		list = append(list, p)
	}
	accel.SortByID(list)
	return slices.CompactFunc(list, func(x, y accel.Accelerator) bool { return x.ID == y.ID })
}

// nodes returns the device nodes at paths. Anything that is not a clean path below /dev is ignored.
func nodes(h *host.Host, id string, paths []string) (found []accel.DeviceNode, missing []string) {
	for _, name := range paths {
		if !strings.HasPrefix(name, "/dev/") || path.Clean(name) != name {
			continue
		}
		all, absent := h.Devices().NodesAt(name, id, []accel.NodeSource{{Glob: "."}})
		if len(absent) > 0 || len(all) == 0 {
			missing = append(missing, clean(name))
			continue
		}
		found = append(found, all[0].DeviceNode)
	}
	return found, missing
}
