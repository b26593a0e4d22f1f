package driver

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// targetOf is what the modules of a source are judged for.
func (d *Driver) targetOf(def *accel.Definition, facts accel.Facts, source accel.SourceType, key string) kmod.Target {
	bundled := d.firmware.Of(key)
	return kmod.Target{Host: d.h, Log: d.log, Def: def, Facts: facts, Source: source, Key: key, Firmware: bundled, Conflict: func() *accel.Problem {
		_, problem := d.firmware.Placeable(bundled, facts.Kernel.Release)
		return problem
	}}
}
