package vendors

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// checker collects what is wrong with the values of a definition.
type checker struct{ faults []Fault }

func (c *checker) bad(field, format string, args ...any) {
	c.faults = append(c.faults, Fault{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) matches(field, value string, form accel.Form) {
	if text := form.Problem(value); text != "" {
		c.bad(field, "%s", text)
	}
}

// fits accepts the form, or none.
func fits(c *checker, field, value string, form accel.Form) {
	if value != "" {
		c.matches(field, value, form)
	}
}

// optional accepts one of the allowed words, or none.
func optional[T ~string](c *checker, field string, value T, allowed ...T) {
	if value != "" {
		oneOf(c, field, value, allowed...)
	}
}

func oneOf[T ~string](c *checker, field string, value T, allowed ...T) {
	if text := accel.NotOneOf(value, allowed...); text != "" {
		c.bad(field, "%s", text)
	}
}

func (c *checker) absolute(field, value string) {
	if strings.HasPrefix(value, "{{") {
		return // the template may choose between paths; its result is checked where the facts are known
	}
	if !path.IsAbs(value) {
		c.bad(field, "%q is not an absolute path: begin it with a slash", value)
	}
}

func (c *checker) duration(field, value string) {
	if value == "" {
		return
	}
	if d, err := time.ParseDuration(value); err != nil || d <= 0 {
		c.bad(field, "%q is not a duration with its unit, such as 30s, 5m or 1h", value)
	}
}

func (c *checker) expression(field, value string) {
	if strings.Contains(value, "{{") {
		return // known only after the template is filled
	}
	if _, err := regexp.Compile(value); err != nil {
		c.bad(field, "%v", err)
	}
}

// Validate returns what is wrong with the values of a definition, without line numbers.
func Validate(def *accel.Definition) []Fault {
	c := &checker{}
	c.matches("kind", def.Kind, kindForm())
	// A label "device-feature-discovery-<kind>" may have 63 characters (Kubernetes label syntax).
	if longest := 63 - len(accel.FeatureDiscovery) - 1; len(def.Kind) > longest {
		c.bad("kind", "%q is longer than %d characters", def.Kind, longest)
	}
	if def.Vendor != "" {
		c.matches("vendor", def.Vendor, domainForm())
	}
	c.offer(def)
	for i, kind := range def.After {
		if kind == def.Kind {
			c.bad(at("after", i), "%q cannot come after itself", kind)
		}
		c.matches(at("after", i), kind, kindForm())
	}
	matchRows(c, def)
	subsystem(c, def)
	c.driver(def)
	c.container(def)
	c.partitions(def)
	c.attributes(def)
	c.steps(def)
	c.templates(def)
	c.signals(def)
	c.probe(def)
	if def.Confined {
		for _, text := range def.Privileged() {
			field, does, _ := strings.Cut(text, ": ")
			c.bad(field, "%s, and the definition is confined", does)
		}
	}
	handover(c, def)
	if def.Repair != nil {
		c.problems("repair", def.Repair.Problems())
	}
	settings(c, def)
	if def.Functions != nil {
		c.problems("functions", def.Functions.Problems())
	}
	for _, text := range def.VFIOProblems() {
		field, what, _ := strings.Cut(text, ": ")
		c.bad(field, "%s", what)
	}
	if def.Unrequested != nil {
		c.problems("unrequested", def.Unrequested.Problems())
	}
	if def.Usage != nil {
		c.problems("usage", def.Usage.Problems())
	}
	for _, text := range accel.IgnoreProblems(def.IgnoreConditions) {
		field, what, _ := strings.Cut(text, ": ")
		c.bad(field, "%s", what)
	}
	optional(c, "hotplug", def.Hotplug, "safe")
	optional(c, "reset", def.Reset, accel.ResetFunction, accel.ResetRebind, accel.ResetNever)
	return once(c.faults)
}

// once leaves out what two checks have found.
func once(faults []Fault) []Fault {
	var out []Fault
	for _, f := range faults {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// handover checks how devices pass from one tenant to the next.
func handover(c *checker, def *accel.Definition) {
	h := def.Handover
	if h == nil {
		return
	}
	c.problems("handover", h.Problems())
	if h.File != "" {
		c.inside("handover.file", h.File) // acceld writes to it
	}
	if h.Scrub == accel.ScrubReset && def.Reset == accel.ResetNever {
		c.bad("handover.scrub", "devices of the kind are never reset (reset: never)")
	}
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

func (c *checker) made(field string, n accel.MadeNode, def *accel.Definition) {
	if !strings.HasPrefix(n.Path, "/dev/") || path.Clean(n.Path) != n.Path {
		c.bad(field+".path", "%q is not a path below /dev", n.Path)
	}
	if len(n.Majors) == 0 {
		c.bad(field+".majors", "at least one name of /proc/devices is needed")
	}
	if n.MinorFrom != "" {
		c.attribute(field+".minorFrom", n.MinorFrom)
	}
	fits(c, field+".mode", n.Mode, modeForm())
	named := func(m accel.Module) bool { return m.Name == n.Module }
	if n.Module != "" && !slices.ContainsFunc(def.Driver.Modules, named) {
		c.bad(field+".module", "driver.modules has no module %q", n.Module)
	}
}

// node checks one source of device nodes.
func (c *checker) node(field string, n accel.NodeSource, def *accel.Definition) {
	switch {
	case (n.Glob == "") == (n.Make == nil):
		c.bad(field, "either glob or make is needed")
	case n.Make != nil:
		c.made(field+".make", *n.Make, def)
	default:
		c.pattern(field+".glob", n.Glob, "/sys/")
	}
	for j, s := range n.Siblings {
		c.below(at(field+".siblings", j), s, "/sys/")
	}
	c.matches(field+".permissions", n.Permissions, accessForm())
}

// attributes checks the attribute files of a definition.
func (c *checker) attributes(def *accel.Definition) {
	for field, file := range map[string]string{
		"serial": def.Serial, "uuid": def.UUID, "model": def.Model,
		"fabric": def.Fabric,
	} {
		if file != "" {
			c.attribute(field, file)
		}
	}
	if def.Check != nil {
		c.check(*def.Check)
	}
	for i, h := range def.Health {
		c.health(at("health", i), h)
	}
	seen := map[string]bool{}
	for i, m := range def.Metrics {
		if seen[m.Name] {
			c.bad(at("metrics", i)+".name", "%q is there twice", m.Name)
		}
		seen[m.Name] = true
		c.metric(at("metrics", i), m)
	}
}

// attribute rejects paths that cannot be attributes, because they are read as root.
func (c *checker) attribute(field, files string) {
	for _, file := range accel.Alternatives(files) {
		name, _, _ := strings.Cut(file, "#")
		c.pattern(field, name, "/sys/", "/proc/driver/")
	}
}

// pattern rejects a relative path that leaves its directory, an absolute one that is below none of dirs, and what is
// not a pattern.
func (c *checker) pattern(field, name string, dirs ...string) {
	if path.IsAbs(name) {
		in := func(dir string) bool { return strings.HasPrefix(name, dir) }
		c.below(field, name, dirs[max(0, slices.IndexFunc(dirs, in))])
	} else {
		c.inside(field, name)
	}
	if _, err := path.Match(name, ""); err != nil {
		c.bad(field, "%q is not a pattern", name)
	}
}

// inside rejects a relative path that leaves its directory.
func (c *checker) inside(field, file string) {
	switch {
	case file == "":
		c.bad(field, "a file is needed")
	case path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), ".."):
		c.bad(field, "%q leaves the directory that it is relative to", file)
	}
}

// below rejects an absolute path that is not below a directory.
func (c *checker) below(field, file, dir string) {
	if !strings.HasPrefix(file, dir) || slices.Contains(strings.Split(file, "/"), "..") {
		c.bad(field, "%q is not below %s", file, dir)
	}
}

// templates tries every template, so that an unknown variable or a typo shows at once, and not at the first boot into
// another kernel.
func (c *checker) templates(def *accel.Definition) {
	def.Templates(func(kind accel.TemplateKind, field, text string) string {
		var left string
		switch kind {
		case accel.PartitionTemplate:
			left = accel.PartitionText(text, "0", "0", "0")
		case accel.NodeTemplate:
			left = accel.NodeText(text, "0000:00:00.0", "0")
		case accel.DeviceTemplate:
			left = accel.DeviceText(text, "0000:00:00.0", 0)
		default:
			if problem := accel.TemplateProblem(text, strings.Contains(field, ".validate.argv[")); problem != "" {
				c.bad(field, "%s", problem)
			}
			return text
		}
		if strings.Contains(left, "{{") {
			c.bad(field, "%.256q: only %s are known here", text, map[accel.TemplateKind]string{
				accel.PartitionTemplate: "{{.Address}}, {{.Name}} and {{.Profile}}",
				accel.NodeTemplate:      "{{.Address}} and {{.IOMMUGroup}}",
				accel.DeviceTemplate:    "{{.Address}} and {{.Number}}",
			}[kind])
		}
		return text
	})
}

// set counts the strings that are not empty.
func set(texts ...string) int {
	n := 0
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}
