package vendors

import (
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Limits of resource.k8s.io/v1: the number of counters in a set (ResourceSliceMaxCountersPerCounterSet) and the form
// of their names.
const maxCounters = 32

// partitions checks how partitions of devices are found and named.
func (c *checker) partitions(def *accel.Definition) {
	d := def.Partitions
	if d == nil {
		return
	}
	if d.Rename != "" {
		c.resource("partitions.rename", accel.PartitionText(d.Rename, "", "", "0"))
		if !strings.Contains(d.Rename, "{{.Profile}}") {
			c.bad("partitions.rename", "without {{.Profile}} all profiles would be one resource")
		}
	}
	for _, text := range accel.LayoutProblems(d.Layout) {
		c.bad("partitions.layout", "%s", text)
	}
	if len(d.Layout) > 0 && !d.Told {
		c.bad("partitions.layout", "is for partitions that the probe program tells")
	}
	if d.Told {
		c.told(def)
	} else {
		c.found(def)
	}
	for i, e := range d.Env {
		c.matches(at("partitions.env", i), accel.PartitionText(e, "0", "0", "0"), envForm())
	}
	for _, text := range d.MakingProblems() {
		field, problem, _ := strings.Cut(text, ": ")
		c.bad("partitions."+field, "%s", problem)
	}
	if d.Make != nil {
		settingFile(c, "partitions.make.file", d.Make.File)
		if def.Functions != nil {
			c.bad("functions", "and partitions.make cannot both say how a device is divided")
		}
	}
	c.profiles(d)
}

// found checks partitions that acceld finds in sysfs and procfs.
func (c *checker) found(def *accel.Definition) {
	d := def.Partitions
	c.pattern("partitions.find", d.Find, "/sys/", "/proc/driver/", "/dev/")
	if d.NumberFrom != "" {
		c.attribute("partitions.numberFrom", d.NumberFrom)
	}
	if strings.Contains(d.Find, "{{.Number}}") && d.NumberFrom == "" {
		c.bad("partitions.find", "{{.Number}} needs numberFrom")
	}
	if d.Of != nil {
		c.belonging(d)
	}
	form, err := regexp.Compile(d.Form)
	switch {
	case err != nil:
		c.bad("partitions.form", "%v", err)
	case (form.SubexpIndex("profile") < 0) == (d.Profile == ""):
		c.bad("partitions",
			"the profile comes either from the file in profile or from the group (?P<profile>…) in form")
	}
	if d.Profile != "" {
		c.beside("partitions.profile", d.Find, d.Profile)
	}
	if len(d.Nodes) == 0 && len(d.Env) == 0 && !d.WithDevice {
		c.bad("partitions.nodes", "a container needs a device node, or in env what names the partition")
	}
	for i, n := range d.Nodes {
		if n.Make != nil && n.Make.MinorFrom != "" {
			c.beside(at("partitions.nodes", i)+".make.minorFrom", d.Find, n.Make.MinorFrom)
			made := *n.Make
			made.MinorFrom, n.Make = "", &made
		}
		c.node(at("partitions.nodes", i), n, def)
	}
}

// told checks partitions that the probe program reports.
func (c *checker) told(def *accel.Definition) {
	d := def.Partitions
	if def.Probe == nil {
		c.bad("partitions.told", "there is no probe that could tell")
	}
	if set(d.Find, d.NumberFrom, d.Form, d.Profile, d.Whole) > 0 || d.Of != nil || len(d.Nodes) > 0 {
		c.bad("partitions.told",
			"the program finds partitions, their profiles and nodes: find, numberFrom, of, form, profile, whole and nodes say so otherwise")
	}
}

// beside rejects a file, relative to what a pattern matches, that is outside the directories for attributes.
func (c *checker) beside(field, pattern, files string) {
	for _, file := range accel.Alternatives(files) {
		if name, key, line := strings.Cut(file, "#"); !path.IsAbs(name) && name != "" {
			file = path.Join(pattern, name)
			if line {
				file += "#" + key
			}
		}
		c.attribute(field, file)
	}
}

// belonging checks how a partition is assigned to its device.
func (c *checker) belonging(d *accel.Partitions) {
	c.beside("partitions.of.file", d.Find, d.Of.File)
	switch {
	case (d.Of.Device == "") == !d.Of.Place:
		c.bad("partitions.of", "either device or place is needed")
	case d.Of.Device != "":
		c.attribute("partitions.of.device", d.Of.Device)
	}
	if d.Of.Domain != "" {
		c.beside("partitions.of.domain", d.Find, d.Of.Domain)
		if !d.Of.Place {
			c.bad("partitions.of.domain", "is for place")
		}
	}
}

// profiles checks the profiles, and the counters that they use.
func (c *checker) profiles(d *accel.Partitions) {
	if len(d.Counters) > maxCounters {
		c.bad("partitions.counters", "there are more than %d", maxCounters)
	}
	for name, amount := range d.Counters {
		c.matches("partitions.counters", name, counterForm())
		c.matches("partitions.counters."+name, amount, accel.AmountForm())
		if d.Make != nil && strings.HasPrefix(name, "layout") {
			c.bad("partitions.counters", "%q: with make, acceld has counters of that name", name)
		}
	}
	seen := map[string]bool{}
	for i, p := range d.Profiles {
		field := at("partitions.profiles", i)
		word := accel.PartitionWord(p.Name)
		switch {
		case word == "":
			c.bad(field+".name", "a name with a letter or a digit is needed")
		case seen[word]:
			c.bad(field+".name", "%q is there twice", p.Name)
		}
		seen[word] = true
		if p.Rename != "" {
			c.resource(field+".rename", p.Rename)
		}
		c.amounts(field+".capacity", p.Capacity, func(field, file string) { c.beside(field, d.Find, file) })
		for name, amount := range p.Uses {
			if _, known := d.Counters[name]; !known {
				c.bad(field+".uses", "partitions.counters has no %q", name)
			}
			c.matches(field+".uses."+name, amount, accel.AmountForm())
		}
		if len(d.Counters) > 0 && len(p.Uses) == 0 {
			c.bad(field+".uses", "where there are counters, it is to be known what a partition takes of them")
		}
		for j, name := range p.Possible {
			if accel.PartitionWord(name) != name || name == "" {
				c.bad(at(field+".possible", j), "%q is not a name of letters, digits, dots, underscores and dashes",
					name)
			}
		}
		if len(p.Possible) > 0 && len(d.Counters) == 0 && d.Make == nil {
			c.bad(field+".possible", "is for definitions with counters")
		}
	}
}
