package host

import "github.com/acceld/acceld/accel"

// SwitchedDir holds the journals of devices that are given out with another driver than their kind's.
const SwitchedDir = "/run/acceld/switched"

// DividedDir holds the journals of devices that acceld has divided for claims.
const DividedDir = "/run/acceld/divided"

func (d Devices) switches() deviceJournals[accel.Switched] {
	return deviceJournals[accel.Switched]{
		d.h, SwitchedDir, accel.MaxSwitched, accel.ReadSwitched, "as what a device is given out",
	}
}

func (d Devices) divisions() deviceJournals[accel.Divided] {
	return deviceJournals[accel.Divided]{
		d.h, DividedDir, accel.MaxDivided, accel.ReadDivided, "how a device is divided for claims",
	}
}

// Switched returns the journals of switched devices by PCI address. A journal that cannot be read is an error, and the
// others are returned: its device must not be touched as if it had none.
func (d Devices) Switched() (map[string]accel.Switched, error) { return d.switches().all() }

// SwitchedOf returns the journal of one device; nil if it has none.
func (d Devices) SwitchedOf(id string) (*accel.Switched, error) { return d.switches().of(id) }

// Switch writes the journal of a device. It is synced when the call returns.
func (d Devices) Switch(id string, s accel.Switched) error { return d.switches().write(id, s) }

// Unswitch removes the journal of a device.
func (d Devices) Unswitch(id string) error { return d.switches().remove(id) }

// Divided returns the journals of divided devices as [Devices.Switched] does those of switched ones.
func (d Devices) Divided() (map[string]accel.Divided, error) { return d.divisions().all() }

// DividedOf returns the journal of one device; nil if it has none.
func (d Devices) DividedOf(id string) (*accel.Divided, error) { return d.divisions().of(id) }

// Divide writes the journal of a device. It is synced when the call returns.
func (d Devices) Divide(id string, x accel.Divided) error { return d.divisions().write(id, x) }

// Undivide removes the journal of a device.
func (d Devices) Undivide(id string) error { return d.divisions().remove(id) }
