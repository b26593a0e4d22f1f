// Package vendors holds what is particular to each vendor, as data: one folder per vendor with definitions in YAML, and
// Go only where data cannot do it. It may import nothing of acceld but the vocabulary.
package vendors

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
)

//go:embed qemu/*.yaml
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
		out[def.Kind] = def
	}
	return out, nil
}

// Load adds the *.yaml files of dir to defs; a file with the kind of a built-in definition replaces it. Files that
// cannot be used are reported and left out; the others stay in force.
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
			problem = accel.Problemf(accel.DefinitionInvalid, "cannot use %q: kind %q is already defined by %q", e.Name(), def.Kind, from[def.Kind])
		}
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		defs[def.Kind], from[def.Kind] = def, e.Name()
	}
	return problems
}

// Parse reads and validates one definition; name is for messages.
func Parse(name string, data []byte) (*accel.Definition, *accel.Problem) {
	def := &accel.Definition{}
	if err := yaml.UnmarshalStrict(data, def); err != nil {
		text := strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: ")
		return nil, accel.Problemf(accel.DefinitionInvalid, "cannot read %q: %s", name, text)
	}
	if errs := validate(def); len(errs) > 0 {
		return nil, accel.Problemf(accel.DefinitionInvalid, "cannot use %q: %s", name, strings.Join(errs, "; "))
	}
	return def, nil
}

// validate returns what is wrong with a definition, each sentence naming the field.
func validate(def *accel.Definition) []string {
	var errs []string
	bad := func(format string, args ...any) { errs = append(errs, fmt.Sprintf(format, args...)) }
	matches := func(field, value, pattern string) {
		if !regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(value) {
			bad("%s: %q is not of the form %s", field, value, pattern)
		}
	}
	// A label "device-feature-discovery-<kind>" may have 63 characters (Kubernetes label syntax).
	matches("kind", def.Kind, `[a-z0-9]+(-[a-z0-9]+)+`)
	if len(def.Kind) > 63-len(accel.FeatureDiscovery)-1 {
		bad("kind: %q is longer than %d characters", def.Kind, 63-len(accel.FeatureDiscovery)-1)
	}
	matches("resource", def.Resource, `[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?`)
	if len(def.Match) == 0 {
		bad("match: at least one row is needed")
	}
	for i, m := range def.Match {
		matches(fmt.Sprintf("match[%d].vendor", i), m.Vendor, `[0-9a-f]{4}`)
		matches(fmt.Sprintf("match[%d].device", i), m.Device, `([0-9a-f]{4})?`)
		matches(fmt.Sprintf("match[%d].class", i), m.Class, `[0-9a-f]{0,6}`)
		if m.Device == "" && m.Class == "" {
			bad("match[%d]: a device or a class is needed, or every function of the vendor would match", i)
		}
	}
	if len(def.Driver.Modules) == 0 {
		bad("driver.modules: at least one module is needed")
	}
	for i, m := range def.Driver.Modules {
		matches(fmt.Sprintf("driver.modules[%d].name", i), m.Name, `[A-Za-z0-9_]+`)
	}
	matches("driver.binds", def.Driver.Binds, `[A-Za-z0-9_-]+`)
	for i, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			bad("driver.sources[%d].type: %q is not build", i, s.Type)
		}
		if _, err := template.New("path").Option("missingkey=error").Parse(s.Path); err != nil {
			bad("driver.sources[%d].path: %v", i, err)
		}
	}
	return append(errs, validateFiles(def)...)
}

// validateFiles returns what is wrong with the attribute files of a definition: they are read as root, so none may
// leave the device's own directory.
func validateFiles(def *accel.Definition) []string {
	files := map[string]string{"serial": def.Serial}
	if def.Check != nil {
		files["check.file"] = def.Check.File
	}
	for i, h := range def.Health {
		files[fmt.Sprintf("health[%d].file", i)] = h.File
	}
	for i, m := range def.Metrics {
		files[fmt.Sprintf("metrics[%d].file", i)] = m.File
	}
	for i, n := range def.Nodes {
		files[fmt.Sprintf("nodes[%d].glob", i)] = n.Glob
	}
	var errs []string
	for field, file := range files {
		if path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), "..") {
			errs = append(errs, fmt.Sprintf("%s: %q leaves the device's sysfs directory", field, file))
		}
	}
	slices.Sort(errs)
	return errs
}
