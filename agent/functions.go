package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
)

// functionUsers names who has a virtual function of a device: processes, the host, and pods that were given it as a
// partition of the device or as a device of another kind. If the kind is divided into them, whoever has the whole
// device is named, too. A pod that has a partition that does not exist now waits for it, and is not named.
func (a *Agent) functionUsers(ctx context.Context, def *accel.Definition, x accel.Accelerator) []string {
	f := driver.NewFunctions(a.driver)
	ids := f.Of(x.ID)
	names := f.Users(x.ID)
	if def.Partitions != nil {
		if len(ids) == 0 {
			x.Partitions = nil
		}
		names = more(names, repairs{a}.usersOf(ctx, def, x))
	}
	for _, other := range functionDevices(a.machine(), ids) {
		names = more(names, repairs{a}.usersOf(ctx, other.def, other.device))
	}
	slices.Sort(names)
	return names
}

// more adds names, but not those that are there, perhaps with the function that they have.
func more(names, others []string) []string {
	for _, other := range others {
		there := func(name string) bool { return name == other || strings.HasPrefix(name, other+" (") }
		if !slices.ContainsFunc(names, there) {
			names = append(names, other)
		}
	}
	return names
}

// functionDevice is a virtual function that is a device of its own.
type functionDevice struct {
	def    *accel.Definition
	device accel.Accelerator
}

// functionDevices returns the devices at some addresses, by kind.
func functionDevices(m accel.Machine, ids []string) (all []functionDevice) {
	if len(ids) == 0 {
		return nil
	}
	for _, kind := range sorted(m.Have) {
		def := m.Want.Kinds[kind]
		for _, y := range m.Have[kind].Accelerators {
			if def != nil && y.Present() && slices.Contains(ids, y.ID) {
				all = append(all, functionDevice{def, y})
			}
		}
	}
	return all
}
