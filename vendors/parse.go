package vendors

import (
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/yamlfile"
)

// Fault is one error in a definition file.
type Fault = yamlfile.Fault

// Read reads one definition as YAML or JSON and returns everything that is wrong with it, in the order of the file.
// The definition is nil if it cannot be read at all.
func Read(data []byte) (*accel.Definition, []Fault) {
	def := &accel.Definition{}
	places, empty, faults := yamlfile.Read(data, def)
	if empty {
		faults = []Fault{{Message: "the file is empty"}}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	complete(def)
	return def, places.Locate(Validate(def))
}

// Check returns what is wrong with a definition that was read elsewhere, without line numbers.
func Check(def *accel.Definition) []Fault {
	complete(def)
	return Validate(def)
}

// Locate adds the lines of their fields to faults that were found later, and sorts them by line.
func Locate(data []byte, faults []Fault) []Fault {
	places, _, _ := yamlfile.Read(data, &accel.Definition{})
	return places.Locate(faults)
}

// complete fills in fields that a definition may leave to be derived from others.
func complete(def *accel.Definition) {
	elsewhere(def)
	if def.Vendor != "" && def.Resource != "" && !strings.Contains(def.Resource, "/") {
		def.Resource = def.Vendor + "/" + def.Resource
	}
	if d := def.Partitions; d != nil && def.Vendor != "" {
		for i, p := range d.Profiles {
			if p.Rename != "" && !strings.Contains(p.Rename, "/") {
				d.Profiles[i].Rename = def.Vendor + "/" + p.Rename
			}
		}
	}
}
