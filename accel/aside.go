package accel

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A device that is set aside has a VFIO driver for as long as the configuration says so. A device plugin is not told
// when a pod ends, so no pod's request changes the driver of a device. The device is offered in one resource only: as
// a partition of itself with the profile [AsideProfile], while the device itself is withheld.

const (
	// AllDevices in [VFIO.Devices] stands for every device of the kind.
	AllDevices = "*"
	// AsideProfile is the profile under which the device plugin offers devices that are set aside.
	AsideProfile = "vfio"
	// asideClaim is how the claims in the journals of devices that are set aside begin. No claim's UID does.
	asideClaim = "set-aside-"
)

// asideWord is the form of the PCI address of a function.
var asideWord = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// SetsAside reports whether the definition sets a device aside.
func (def *Definition) SetsAside(id string) bool {
	return def.VFIO != nil && def.AllocatedBy() == AllocateByPlugin &&
		(slices.Contains(def.VFIO.Devices, id) || slices.Contains(def.VFIO.Devices, AllDevices))
}

// AsideClaim is what stands for the UID of a claim in the journal of a device that is set aside.
func AsideClaim(id string) string {
	return asideClaim + strings.NewReplacer(":", "-", ".", "-").Replace(id)
}

// SetAside reports whether the device was switched because it is set aside.
func (s Switched) SetAside() bool { return strings.HasPrefix(s.Claim, asideClaim) }

// Aside reports whether a is what is offered of a device that is set aside.
func (a Accelerator) Aside() bool { return a.Parent != "" && a.Switched != nil }

// asideOf returns what is offered of a device that is set aside and has its other driver. The number of the IOMMU group
// is in its ID: the kubelet keeps the path of the group's node for as long as the pod exists, and after a boot the
// number may be that of another device.
func asideOf(a Accelerator) Accelerator {
	name := strconv.Itoa(a.Switched.Group)
	return Accelerator{
		ID: PartitionID(a.ID, AsideProfile, name), Parent: a.ID, Profile: AsideProfile, Nodes: a.Nodes,
		NUMANode: a.NUMANode, Health: a.Health, Bound: a.Bound, Switched: a.Switched,
	}
}

// SetAside returns accs with what is offered of the devices that are set aside. A device that will be set aside is
// withheld until nobody has it, and one that no longer is until it has its own driver again.
func SetAside(def *Definition, accs []Accelerator) []Accelerator {
	for i := range accs {
		a := &accs[i]
		wanted := def.SetsAside(a.ID)
		switch {
		case a.Switched == nil && wanted && a.Withheld == nil && a.Present():
			a.Withheld = &Withheld{
				By: BySwitch, Reason: OtherUse, Message: "it is set aside for vfio, and gets the driver for that when nobody has it",
			}
		case a.Switched != nil && a.Switched.SetAside() && a.Switched.Ready(*a):
			part := asideOf(*a)
			if !wanted {
				part.Withheld = &Withheld{
					By: BySwitch, Reason: OtherUse,
					Message: fmt.Sprintf("it is no longer set aside, and gets driver %q back when nobody has it", a.Switched.From),
				}
			}
			a.Partitions = []Accelerator{part}
		}
	}
	return accs
}
