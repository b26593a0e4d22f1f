package driver

import "github.com/acceld/acceld/accel"

// CheckFile judges a module file for the running kernel exactly as a load would, dependencies and parameters included,
// and gives it to nobody. Name is a path as the machine sees it; the file must hold a module of def.
func (d *Driver) CheckFile(def *accel.Definition, facts accel.Facts, name string) *accel.Problem {
	base, ok := moduleBase(name)
	if !ok {
		return accel.Problemf(accel.ModuleInvalid, "%q is not the name of a module file", name)
	}
	for _, m := range def.Driver.Modules {
		if normal(m.Name) != base {
			continue
		}
		m.Optional = false
		p, problem := d.makePlan(def, facts, accel.SourceInstalled, "", []located{{m, name}})
		if problem != nil {
			return problem
		}
		p.close()
		return nil
	}
	return accel.Problemf(accel.ModuleInvalid, "the driver of %q has no module %q", def.Kind, base)
}
