package accel

import (
	"fmt"
	"testing"
)

func TestSwitchChanges(t *testing.T) {
	j := &Switched{Use: UseVFIO, Driver: "vfio-pci", Group: 7, Claim: "u", Name: "team/vm"}
	own := Accelerator{ID: "d", Bound: "edu"}
	with := Accelerator{ID: "d", Bound: "vfio-pci", Nodes: []DeviceNode{{Path: "/dev/vfio/7"}}, Switched: j}
	way := Accelerator{ID: "d", Switched: j}
	other := with
	other.Switched = &Switched{Use: UseVFIO, Driver: "vfio-pci", Claim: "v"}
	gone := Accelerator{ID: "d", Health: Health{State: Gone}}
	for name, c := range map[string]struct {
		from, to Accelerator
		want     string
	}{
		"given":           {own, with, "[it is given out with vfio (vfio-pci, IOMMU group 7) to claim team/vm]"},
		"on the way":      {own, way, "[]"},
		"as before":       {with, with, "[]"},
		"back":            {with, own, "[it is with the driver of its kind again]"},
		"on the way back": {with, way, "[]"},
		"back at last":    {way, own, "[it is with the driver of its kind again]"},
		"vanished":        {with, gone, "[]"},
		"straight to v":   {with, other, "[it is given out with vfio (vfio-pci, IOMMU group 0) to claim v]"},
		"never switched":  {own, own, "[]"},
	} {
		if got := fmt.Sprint(switchChanges("a-b", []Accelerator{c.from}, []Accelerator{c.to})); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
