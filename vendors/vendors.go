// Package vendors holds what is particular to each vendor, as data: one folder per vendor with definitions in YAML, and
// Go only where data cannot do it. It may import nothing of acceld but the vocabulary.
package vendors

import (
	"embed"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/yamlfile"
)

// The list of vendors: one line each.
//
//go:embed amd/*.yaml aws/*.yaml habana/*.yaml hailo/*.yaml intel/*.yaml nvidia/*.yaml
//go:embed qemu/*.yaml qualcomm/*.yaml tenstorrent/*.yaml
var builtin embed.FS

// Definitions returns the built-in definitions, by kind.
func Definitions() (map[string]*accel.Definition, *accel.Problem) {
	out := map[string]*accel.Definition{}
	names, err := fs.Glob(builtin, "*/*.yaml")
	if err != nil {
		return nil, accel.Problemf(accel.InternalError, "cannot list the built-in definitions: %v", err)
	}
	for _, name := range names {
		data, err := builtin.ReadFile(name)
		if err != nil {
			return nil, accel.Problemf(accel.InternalError, "cannot read the built-in definition %q: %v", name, err)
		}
		def, problem := Parse(name, data)
		if problem != nil {
			return nil, problem
		}
		if out[def.Kind] != nil {
			return nil, accel.Problemf(accel.InternalError, "kind %q is defined twice, also by %q", def.Kind, name)
		}
		out[def.Kind] = def
	}
	return out, nil
}

// Load adds the *.yaml files of dir to defs; a file with the kind of a built-in definition replaces it. Files that
// cannot be used are reported and left out; the other definitions stay in effect.
func Load(dir fs.FS, defs map[string]*accel.Definition) []*accel.Problem {
	entries, err := fs.ReadDir(dir, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []*accel.Problem{accel.Problemf(accel.DefinitionInvalid, "cannot list the definitions: %v", err)}
	}
	var problems []*accel.Problem
	from := map[string]string{}
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".yaml" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			problems = append(problems, accel.Problemf(accel.DefinitionInvalid, "cannot read %q: %v", e.Name(), err))
			continue
		}
		def, problem := Parse(e.Name(), data)
		if problem == nil && from[def.Kind] != "" {
			problem = accel.Problemf(accel.DefinitionInvalid, "cannot use %q: kind %q is already defined by %q",
				e.Name(), def.Kind, from[def.Kind])
		}
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		defs[def.Kind], from[def.Kind] = def, e.Name()
	}
	return append(problems, together(defs)...)
}

// together reports conflicts between definitions, and removes the definitions that are unusable because of them.
func together(defs map[string]*accel.Definition) []*accel.Problem {
	var problems []*accel.Problem
	for {
		_, cycle := accel.InOrder(defs)
		if cycle == "" {
			return problems
		}
		problems = append(problems, accel.Problemf(accel.DefinitionInvalid,
			"cannot use the definitions of %s: each waits for the other", cycle))
		for _, kind := range strings.Split(cycle, " after ") {
			delete(defs, kind)
		}
	}
}

// Parse reads and validates one definition; name is for error messages.
func Parse(name string, data []byte) (*accel.Definition, *accel.Problem) {
	def, faults := Read(data)
	if len(faults) == 0 {
		return def, nil
	}
	verb := "use"
	if def == nil {
		verb = "read"
	}
	return nil, accel.Problemf(accel.DefinitionInvalid, "cannot %s %q: %s", verb, name, yamlfile.Join(faults))
}
