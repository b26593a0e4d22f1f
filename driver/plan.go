package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// plan is a driver that was found and judged good, ready to be loaded: files open, in load order.
type plan struct {
	source  accel.SourceType
	key     string // in the store; empty for others
	id      string // of its attempts
	modules []planned
}

// planned is one module of a plan.
type planned struct {
	*image
	parameters map[string]string
	optional   bool
	prior      bool // not of the definition: a module that one of its modules needs
}

func (p *plan) close() {
	for _, m := range p.modules {
		m.image.close()
	}
}

// located is where a source has a module of the definition; an empty path says that it has none.
type located struct {
	module accel.Module
	path   string
}

// makePlan opens and judges the modules of a source and everything that must be loaded before them. The problem, when
// there is one, is a refusal.
func (d *Driver) makePlan(def *accel.Definition, facts accel.Facts, source accel.SourceType, key string, where []located) (*plan, *accel.Problem) {
	p := &plan{source: source, key: key, id: key}
	x := d.modulesOf(facts.Kernel.Release)
	ours := map[string]bool{} // symbols of the modules before
	for _, l := range where {
		problem := d.planModule(p, def, facts, l, x, ours)
		if problem == nil {
			continue
		}
		if l.module.Optional {
			d.log.Warn("an optional module is left out", "kind", def.Kind, "module", l.module.Name, "problem", problem)
			continue
		}
		p.close()
		return nil, problem
	}
	if p.id == "" {
		p.id = planID(p)
	}
	return p, nil
}

// planModule adds one module and what it needs to the plan.
func (d *Driver) planModule(p *plan, def *accel.Definition, facts accel.Facts, l located, x *moduleIndex, ours map[string]bool) *accel.Problem {
	if l.path == "" {
		return accel.Problemf(accel.NoDriverSource, "module %q is not there", l.module.Name)
	}
	parameters, problem := d.expandParameters(def, facts, l.module)
	if problem != nil {
		return problem
	}
	if l.module.Firmware, problem = d.expandFirmware(def, facts, l.module); problem != nil {
		return problem
	}
	if problem := d.checkFirmware(l.module, facts.Kernel.Release); problem != nil {
		return problem
	}
	m, problem := openImage(d.h, l.path)
	if problem != nil {
		return problem
	}
	before := len(p.modules)
	problem = d.planPrior(p, def, facts, l.module, m, x, ours)
	if problem == nil {
		own := "" // a module of the store was compared when it was built, and its key names this kernel
		if p.source != accel.SourceStore {
			own = x.flags()
		}
		problem = d.verify(m, l.module.Name, parameters, facts.Kernel, own, ours)
	}
	if problem != nil {
		m.close()
		for _, prior := range p.modules[before:] {
			prior.image.close()
		}
		p.modules = p.modules[:before]
		return problem
	}
	for name := range m.defined {
		ours[name] = true
	}
	p.modules = append(p.modules, planned{image: m, parameters: parameters, optional: l.module.Optional})
	return nil
}

// planPrior adds the modules that must be live before m: the definition's "after", the file's own dependencies and,
// where they are installed, its soft ones.
func (d *Driver) planPrior(p *plan, def *accel.Definition, facts accel.Facts, module accel.Module, m *image, x *moduleIndex, ours map[string]bool) *accel.Problem {
	for _, name := range m.softBefore {
		if x.chain(name) != nil {
			if problem := d.planChain(p, def, facts, name, module.Name, x, ours); problem != nil {
				d.log.Warn("a soft dependency is left out", "module", module.Name, "dependency", name, "problem", problem)
			}
		}
	}
	for _, name := range slices.Concat(module.After, m.depends) {
		if problem := d.planChain(p, def, facts, name, module.Name, x, ours); problem != nil {
			return problem
		}
	}
	return nil
}

// planChain adds the installed module name with everything it needs, unless it is live, part of the kernel or part of
// the definition.
func (d *Driver) planChain(p *plan, def *accel.Definition, facts accel.Facts, name, wants string, x *moduleIndex, ours map[string]bool) *accel.Problem {
	if d.provided(p, def, name, x) {
		return nil
	}
	chain := x.chain(name)
	if chain == nil {
		return accel.Problemf(accel.DependencyMissing, "module %q needs module %q, which is neither loaded nor in %q", wants, name, x.dir)
	}
	for _, file := range chain {
		base, _ := moduleBase(file)
		if d.provided(p, def, base, x) {
			continue
		}
		m, problem := openImage(d.h, file)
		if problem != nil {
			return problem
		}
		if problem := d.verify(m, base, nil, facts.Kernel, "", ours); problem != nil {
			m.close()
			return problem
		}
		for symbol := range m.defined {
			ours[symbol] = true
		}
		p.modules = append(p.modules, planned{image: m, prior: true})
	}
	return nil
}

// provided reports whether a module that is needed is there already or will be.
func (d *Driver) provided(p *plan, def *accel.Definition, name string, x *moduleIndex) bool {
	if x.inKernel(name) {
		return true
	}
	if slices.ContainsFunc(def.Driver.Modules, func(m accel.Module) bool { return normal(m.Name) == normal(name) }) {
		return true
	}
	if slices.ContainsFunc(p.modules, func(m planned) bool { return m.name == normal(name) }) {
		return true
	}
	if live, ok := d.liveModule(name); ok {
		return live.State == stateLive
	}
	// Code in the kernel that has parameters shows a directory without a state.
	return x.chain(name) == nil && d.h.Exists(path.Join("/sys/module", normal(name)))
}

// planID names a driver that has no key: by the build-ids of its modules.
func planID(p *plan) string {
	var parts []string
	for _, m := range p.modules {
		if !m.prior {
			parts = append(parts, m.name+":"+m.buildID+":"+m.srcVersion+":"+m.version)
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return string(p.source) + "-" + hex.EncodeToString(sum[:])[:32]
}

// version is the driver's version as its modules say it.
func (p *plan) version() string {
	for _, m := range p.modules {
		if !m.prior && m.image.version != "" {
			return m.image.version
		}
	}
	return ""
}
