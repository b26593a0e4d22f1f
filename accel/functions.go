package accel

import (
	"fmt"
	"strconv"
)

// Functions says which virtual functions (SR-IOV) acceld makes of each device of a kind.
type Functions struct {
	// Count is how many each device should have; 0 for none.
	Count int `json:"count"`
	// Autoprobe is whether the kernel looks for a driver for new functions (sriov_drivers_autoprobe). Without it, that
	// stays as it is.
	Autoprobe *bool `json:"autoprobe,omitempty"`
}

// maxFunctions is the most virtual functions that a device can have: NumVFs has 16 bits (Single Root I/O
// Virtualization 1.1, 3.3.7).
const maxFunctions = 65535

// Problems returns the errors in f, each as "<field>: <sentence>".
func (f Functions) Problems() []string {
	if f.Count < 0 || f.Count > maxFunctions {
		return []string{fmt.Sprintf("count: %d is not from 0 to %d", f.Count, maxFunctions)}
	}
	return nil
}

// What Functions makes on a device is kept as two settings, with all that a setting has: what was there before is on
// record, it is written again when the driver is bound again, and a change by something else is noticed.
const (
	SettingFunctions = "functions"
	SettingAutoprobe = "functionsAutoprobe"
	// SettingNeedsFunctions is what the number of functions needs: nobody has one of them, or the device that is
	// divided into them. No definition has it in a setting of its own.
	SettingNeedsFunctions SettingNeeds = "functions"
)

// settings returns the settings that make the functions, in order: the kernel probes functions when they are made. They
// are the same values each time, without pointers, because whoever keeps them compares.
func (f Functions) settings() (all []Setting) {
	if f.Autoprobe != nil {
		value := SettingValue("off")
		if *f.Autoprobe {
			value = "on"
		}
		all = append(all, Setting{
			Name: SettingAutoprobe, File: "sriov_drivers_autoprobe", Values: map[string]string{"on": "1", "off": "0"},
			Value: value,
		})
	}
	return append(all, Setting{
		Name: SettingFunctions, File: "sriov_numvfs", MaxFile: "sriov_totalvfs", Needs: SettingNeedsFunctions,
		Value: SettingValue(strconv.Itoa(f.Count)),
	})
}

// AllSettings returns what is to be set on the devices of the kind, in order: its virtual functions, then its Settings.
func (def *Definition) AllSettings() []Setting {
	if def.Functions == nil {
		return def.Settings
	}
	return append(def.Functions.settings(), def.Settings...)
}

// OfFunctions reports whether a setting is one of those that make virtual functions.
func (s Setting) OfFunctions() bool { return ofFunctions(s.Name) }

func ofFunctions(name string) bool { return name == SettingFunctions || name == SettingAutoprobe }
