package accel

import "fmt"

// SwitchChange says that a device was given out with another driver than its kind's, or has its own again.
type SwitchChange struct {
	Kind, Device string
	// Switched is nil for a device that has its own driver again.
	Switched *Switched
}

// Of returns the kind.
func (c SwitchChange) Of() string { return c.Kind }

// String is for people.
func (c SwitchChange) String() string {
	if c.Switched == nil {
		return "it is with the driver of its kind again"
	}
	return "it is given out with " + c.Switched.String()
}

// String is for people: "vfio (vfio-pci, IOMMU group 7) to claim team/vm".
func (s Switched) String() string {
	return fmt.Sprintf("%s (%s, IOMMU group %d) to %s", s.Use, s.Driver, s.Group, s.For())
}

// switchChanges returns the devices whose use has changed. One that has vanished has not.
func switchChanges(kind string, from, to []Accelerator) (all []Change) {
	before := map[string]Accelerator{}
	for _, a := range from {
		before[a.ID] = a
	}
	for _, a := range to {
		had := before[a.ID]
		switch {
		case a.Switched.Ready(a) && (!had.Switched.Ready(had) || had.Switched.Claim != a.Switched.Claim):
			all = append(all, SwitchChange{kind, a.ID, a.Switched})
		case a.Present() && a.Switched == nil && had.Switched != nil:
			all = append(all, SwitchChange{Kind: kind, Device: a.ID})
		}
	}
	return all
}
