package vendors

import (
	"github.com/acceld/acceld/accel"
)

func (c *checker) driver(def *accel.Definition) {
	d := def.Driver
	if len(d.Modules) == 0 {
		c.bad("driver.modules", "at least one module is needed")
	}
	c.problems("driver", accel.BranchProblems(d.Branch, d.Version))
	place := map[string]int{}
	for i, m := range d.Modules {
		field := at("driver.modules", i)
		c.matches(field+".name", m.Name, moduleForm())
		if _, twice := place[m.Name]; twice {
			c.bad(field+".name", "module %q is there twice", m.Name)
		}
		place[m.Name] = i
		for name := range m.Parameters {
			c.matches(field+".parameters", name, moduleForm())
		}
		for j, f := range m.Firmware {
			if f == "" {
				continue // the template is empty on this host: the file is not needed
			}
			c.inside(at(field+".firmware", j), f)
		}
	}
	for i, m := range d.Modules {
		for j, name := range m.After {
			field := at(at("driver.modules", i)+".after", j)
			c.matches(field, name, driverForm())
			if before, ours := place[name]; ours && before >= i {
				c.bad(field, "module %q comes after %q in the list: each would wait for the other", name, m.Name)
			}
		}
	}
	if d.Override {
		override(c, def)
	}
	for i, name := range d.Conflicts {
		c.matches(at("driver.conflicts", i), name, driverForm())
		if name == d.Binds {
			c.bad(at("driver.conflicts", i), "%q is the driver that is wanted", name)
		}
	}
	for i, n := range d.MakeNodes {
		c.made(at("driver.makeNodes", i), n, def)
		if n.MinorFrom != "" {
			c.bad(at("driver.makeNodes", i)+".minorFrom", "a shared node belongs to no device that could be asked")
		}
	}
	optional(c, "driver.upgrade.holders", d.Upgrade.Holders, accel.HoldersRefuse, accel.HoldersWait, accel.HoldersEvict)
	c.duration("driver.upgrade.timeout", d.Upgrade.Timeout)
	optional(c, "driver.kabi", d.KABI, "weak")
	if d.Sign != nil {
		c.absolute("driver.sign.key", d.Sign.Key)
		c.absolute("driver.sign.certificate", d.Sign.Certificate)
		optional(c, "driver.sign.hash", d.Sign.Hash, "sha256", "sha384", "sha512")
	}
	for i, s := range d.Sources {
		c.source(at("driver.sources", i), s)
	}
	c.problems("driver.distributions", accel.DistributionProblems(d.Distributions))
	userSpace(c, def)
	for _, text := range accel.CompanionProblems(def.Driver.Companions) {
		c.bad("driver.companions", "%s", text)
	}
	for system, name := range d.FirmwarePackages {
		c.matches("driver.firmwarePackages", system, systemForm())
		c.matches("driver.firmwarePackages."+system, name, packageForm())
	}
}

// override rejects rows by which a device would no longer be of the kind once its driver is bound.
func override(c *checker, def *accel.Definition) {
	for i, m := range def.Match {
		if m.Driver != "" && m.Driver != def.Driver.Binds {
			c.bad(at("match", i)+".driver", "with driver.override a device that is bound to %q would not be recognised",
				def.Driver.Binds)
		}
	}
	for i, m := range def.Except {
		if m.Driver == def.Driver.Binds {
			c.bad(at("except", i)+".driver", "with driver.override a device that is bound to %q would not be recognised",
				def.Driver.Binds)
		}
	}
}

func (c *checker) source(field string, s accel.Source) {
	c.problems(field, s.Problems())
	for i, a := range s.Make {
		c.matches(at(field+".make", i), a, makeForm())
	}
}
