package template

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// RuntimeOf returns what templates in def may use on the machine with these facts.
func RuntimeOf(def *accel.Definition, facts accel.Facts) accel.Runtime {
	id, version := facts.OS.Base()
	r := accel.Runtime{
		KernelVersion:             facts.Kernel.Release,
		KernelBase:                facts.Kernel.Base(),
		OperatingSystemMajor:      facts.OS.Major(),
		OperatingSystemMajorMinor: id + version,
		RuntimeArchitecture:       accel.GoArch(facts.Kernel.Arch),
		HardwareResource:          def.Kind,
		ClusterVersion:            facts.Cluster.Version,
		DriverVersion:             def.Driver.Version,
		DriverBranch:              accel.BranchOf(def.Driver.Version),
	}
	if len(def.Match) > 0 {
		r.NodeFeature = "feature.node.kubernetes.io/pci-" + def.Match[0].Vendor + ".present"
	}
	return r
}

// Fill executes one template of a definition; field is its name in error messages.
func Fill(def *accel.Definition, facts accel.Facts, field, text string) (string, *accel.Problem) {
	return fill(def.Kind, field, text, facts.Cluster, RuntimeOf(def, facts))
}

// fill is Fill with prepared facts. An unknown fact is never treated as empty, because that would select another
// driver.
func fill(kind, field, text string, cluster accel.Cluster, r accel.Runtime) (string, *accel.Problem) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := accel.ParseTemplate(field, text)
	if err != nil {
		return "", accel.Problemf(accel.DefinitionInvalid, "cannot read the template in %s of %q: %v", field, kind, err)
	}
	if cluster.Unknown && strings.Contains(text, ".ClusterVersion") {
		return "", accel.Problemf(accel.APIUnreachable,
			"cannot fill the template in %s of %q: the API server has not said the version of the cluster", field, kind)
	}
	out, err := t.Fill(r)
	if err != nil {
		return "", accel.Problemf(accel.DefinitionInvalid, "cannot fill the template in %s of %q: %v", field, kind, err)
	}
	return out, nil
}

// Expand returns def with every template filled for the machine with these facts. What a device fills stays as it is.
func Expand(def *accel.Definition, facts accel.Facts) (*accel.Definition, *accel.Problem) {
	out := &accel.Definition{} // a deep copy
	b, err := json.Marshal(def)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return nil, accel.Problemf(accel.DefinitionInvalid, "cannot copy the definition of %q: %v", def.Kind, err)
	}
	var problem *accel.Problem
	r := RuntimeOf(def, facts)
	r.Address = accel.AddressTemplate
	out.Templates(func(kind accel.TemplateKind, field, text string) string {
		if kind != accel.RuntimeTemplate || problem != nil {
			return text
		}
		text, problem = fill(def.Kind, field, text, facts.Cluster, r)
		return text
	})
	return out, problem
}

// Firmware fills the templates in the names of one module's firmware files.
func Firmware(def *accel.Definition, facts accel.Facts, m accel.Module) ([]string, *accel.Problem) {
	var out []string
	for _, text := range m.Firmware {
		file, problem := Fill(def, facts, "driver.modules."+m.Name+".firmware", text)
		if problem != nil {
			return nil, problem
		}
		if path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), "..") {
			return nil, accel.Problemf(accel.DefinitionInvalid,
				"the firmware %q of module %q leaves the directory of firmware", file, m.Name)
		}
		out = append(out, file)
	}
	return out, nil
}

// makeArgument is what a source may pass to make: a variable, never an option or a target.
const makeArgument = `^[A-Za-z_][A-Za-z0-9_]*=[^\x00\n]*$`

// BuildSource is a source with its templates filled.
type BuildSource struct {
	Path   string
	System accel.BuildSystem
	Make   []string
}

// Source fills the templates of a source; headers is the value of .KernelHeaders in its make arguments.
func Source(def *accel.Definition, facts accel.Facts, s accel.Source, headers string) (BuildSource, *accel.Problem) {
	p, problem := Fill(def, facts, "driver.sources.path", s.Path)
	if problem != nil {
		return BuildSource{}, problem
	}
	if !path.IsAbs(p) {
		return BuildSource{}, accel.Problemf(accel.DefinitionInvalid,
			"driver.sources.path of %q is %q: not an absolute path", def.Kind, p)
	}
	out := BuildSource{Path: path.Clean(p), System: s.System}
	r := RuntimeOf(def, facts)
	r.KernelHeaders = headers
	valid := regexp.MustCompile(makeArgument)
	for _, a := range s.Make {
		a, problem := fill(def.Kind, "driver.sources.make", a, facts.Cluster, r)
		if problem != nil {
			return BuildSource{}, problem
		}
		if !valid.MatchString(a) {
			return BuildSource{}, accel.Problemf(accel.DefinitionInvalid,
				"driver.sources.make of %q has %q: not NAME=value", def.Kind, a)
		}
		out.Make = append(out.Make, a)
	}
	return out, nil
}

// Packages fills the templates of a set of packages; field is its name in error messages.
func Packages(def *accel.Definition, facts accel.Facts, field string, s accel.PackageSet) (accel.PackageSet,
	*accel.Problem,
) {
	var problem *accel.Problem
	if s.Suite, problem = Fill(def, facts, field+".suite", s.Suite); problem != nil {
		return s, problem
	}
	s.Also = slices.Clone(s.Also)
	for i, p := range s.Also {
		if s.Also[i].Suite, problem = Fill(def, facts, field+".also.suite", p.Suite); problem != nil {
			return s, problem
		}
	}
	s.Packages, s.OptionalPackages = slices.Clone(s.Packages), slices.Clone(s.OptionalPackages)
	for _, list := range [][]string{s.Packages, s.OptionalPackages} {
		for i, text := range list {
			if list[i], problem = Fill(def, facts, field+".packages", text); problem != nil {
				return s, problem
			}
		}
	}
	return s, nil
}

// Parameters fills the templates in the parameters of one module.
func Parameters(def *accel.Definition, facts accel.Facts, m accel.Module) (map[string]string, *accel.Problem) {
	out := map[string]string{}
	for name, text := range m.Parameters {
		value, problem := Fill(def, facts, "driver.modules."+m.Name+".parameters."+name, text)
		if problem != nil {
			return nil, problem
		}
		if strings.ContainsAny(value, "\x00\n\"") {
			return nil, accel.Problemf(accel.DefinitionInvalid,
				"parameter %q of module %q is %q: quotes and line ends cannot be given to the kernel", name, m.Name,
				value)
		}
		if def.Confined && strings.Contains(value, "/") { // some modules take the path of a program
			return nil, accel.Problemf(accel.DefinitionInvalid,
				"parameter %q of module %q is %q: a confined definition may not name a file of the host", name, m.Name,
				value)
		}
		out[name] = value
	}
	return out, nil
}
