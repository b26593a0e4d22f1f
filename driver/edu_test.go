package driver

import "github.com/acceld/acceld/accel"

func eduDefinition() *accel.Definition {
	return &accel.Definition{
		Kind:     "qemu-edu",
		Resource: "qemu.org/edu",
		Match:    []accel.Match{{Vendor: "1234", Device: "11e8"}},
		Driver:   accel.DriverDefinition{Binds: "edu", Modules: []accel.Module{{Name: "edu"}}},
		Nodes:    []accel.NodeSource{{Glob: "accelerator_edu/edu*"}},
		Check:    &accel.Check{File: "factorial", Write: "10", Want: "3628800", Sentence: "10! computed by the device"},
	}
}
