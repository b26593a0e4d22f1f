package vendors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// matchRows checks the rows that recognise devices.
func matchRows(c *checker, def *accel.Definition) {
	if len(def.Match) == 0 {
		c.bad("match", "at least one row is needed")
		return
	}
	if name := def.Match[0].Subsystem; name != "" {
		oneOf(c, "match[0].subsystem", name, accel.SubsystemNames()...)
	}
	s := def.Subsystem()
	for i, m := range def.Match {
		field := at("match", i)
		if m.Subsystem != def.Match[0].Subsystem {
			c.bad(field+".subsystem", "all rows must name the same subsystem: write a definition for each")
		}
		matchRow(c, field, s, m)
		matchEnough(c, field, s, m)
	}
	for i, m := range def.Except {
		field := at("except", i)
		matchRow(c, field, s, m)
		if m.Subsystem != def.Match[0].Subsystem {
			c.bad(field+".subsystem", "it must be that of the rows of match")
		}
		if m.Subsystem = ""; m == (accel.Match{}) {
			c.bad(field, "the row is empty, and so would take out every device")
		}
	}
}

// matchRow checks the form of a row, and that devices of the subsystem have what it asks for.
func matchRow(c *checker, field string, s accel.Subsystem, m accel.Match) {
	fits(c, field+".vendor", m.Vendor, idForm())
	fits(c, field+".device", m.Device, idForm())
	c.matches(field+".class", m.Class, classForm())
	fits(c, field+".name", m.Name, nameForm())
	fits(c, field+".driver", m.Driver, driverForm())
	for _, word := range []struct{ name, value string }{
		{"vendor", m.Vendor}, {"device", m.Device}, {"class", m.Class}, {"name", m.Name},
	} {
		if word.value != "" && !slices.Contains(s.Words, word.name) {
			c.bad(field+"."+word.name, "devices %s have none: only %s can be asked for", s.On(), strings.Join(s.Words, ", "))
		}
	}
}

// matchEnough rejects a row that would match too much.
func matchEnough(c *checker, field string, s accel.Subsystem, m accel.Match) {
	switch {
	case s.Name == accel.PCI:
		c.matches(field+".vendor", m.Vendor, idForm())
		if m.Device == "" && m.Class == "" {
			c.bad(field, "a device or a class is needed, or every function of the vendor would match")
		}
	case s.Name == "usb" && (m.Vendor == "" || m.Device == "" && m.Class == ""):
		c.bad(field, "a vendor is needed, and a device or a class")
	case s.Name == "virtio" && m.Device == "":
		c.bad(field+".device", "the type of the virtio device is needed, such as 0014 for crypto")
	case !slices.Contains(s.Words, "device") && m.Name == "" && m.Driver == "":
		c.bad(field, "a name or a driver is needed, or every device %s would match", s.On())
	}
}

// subsystem rejects what only a PCI function has, and what a device of the subsystem lacks.
func subsystem(c *checker, def *accel.Definition) {
	s := def.Subsystem()
	if s.Name == accel.PCI {
		c.matches("driver.binds", def.Driver.Binds, driverForm())
		return
	}
	if def.Driver.Binds != "" || !s.Class {
		c.matches("driver.binds", def.Driver.Binds, driverForm())
	}
	only := func(field string, set bool) {
		if set {
			c.bad(field, "only PCI functions have that, and the devices are %s", s.On())
		}
	}
	only("functions", def.Functions != nil)
	only("vfio", def.VFIO != nil)
	only("fixedLinkSpeed", def.FixedLinkSpeed)
	only("driver.override", def.Driver.Override)
	only("driver.takeover", def.Driver.Takeover)
	only("driver.conflicts", len(def.Driver.Conflicts) > 0)
	if def.Reset == accel.ResetFunction {
		c.bad("reset", "only PCI functions can be reset by the kernel: write rebind or never")
	}
	if s.Class && def.Reset == accel.ResetRebind {
		c.bad("reset", "a device %s has no driver of its own: write never, or describe the device above it", s.On())
	}
	group := func(field string, nodes []accel.NodeSource) {
		for i, n := range nodes {
			only(at(field, i)+".glob", strings.Contains(n.Glob, accel.GroupTemplate) || strings.HasPrefix(n.Glob, "vfio-dev/"))
		}
	}
	group("nodes", def.Nodes)
	if p := def.Partitions; p != nil {
		group("partitions.nodes", p.Nodes)
		only("partitions.of.place", p.Of != nil && p.Of.Place)
		only("partitions.find", strings.HasPrefix(p.Find, "virtfn"))
	}
}

// elsewhere completes a definition of devices outside PCI: what is the same for all of a subsystem need not be written.
func elsewhere(def *accel.Definition) {
	for i := range def.Match {
		if def.Match[i].Subsystem == accel.PCI {
			def.Match[i].Subsystem = ""
		}
	}
	for i := range def.Except {
		if m := &def.Except[i]; len(def.Match) > 0 && (m.Subsystem == "" || m.Subsystem == accel.PCI) {
			m.Subsystem = def.Match[0].Subsystem
		}
	}
	s := def.Subsystem()
	if s.Name == accel.PCI {
		return
	}
	if def.Driver.Binds == "" {
		def.Driver.Binds = s.Binds
	}
	if def.Reset == "" {
		def.Reset = accel.ResetRebind
		if s.Class {
			def.Reset = accel.ResetNever
		}
	}
}

// nameForm is what drivers and devices find each other by.
func nameForm() accel.Form {
	return accel.Form{
		Expr: nameText, Say: fmt.Sprintf("a name without blanks, such as %q or %q", "vendor,npu", "QEMU0002"),
	}
}
