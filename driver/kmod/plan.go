package kmod

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
)

// Plan is a driver that was found and judged good, ready to load: its files are open and in load order.
type Plan struct {
	Source  accel.SourceType
	Key     string // in the store; empty for other sources
	ID      string // of its load attempts
	Modules []Planned
}

// Planned is one module of a plan.
type Planned struct {
	*Image
	Parameters map[string]string
	Optional   bool
	Prior      bool // not part of the definition: a dependency of one of its modules
}

// Close closes the files of a plan that is no longer needed.
func (p *Plan) Close() {
	for _, m := range p.Modules {
		m.Image.Close()
	}
}

// Located is a module of the definition and its file at a source; an empty path means that the source does not have
// it.
type Located struct {
	Module accel.Module
	Path   string
}

// candidate is a module of the definition with its file, until it is planned or left out.
type candidate struct {
	Located
	image *Image // nil if it could not be opened, or is planned
	words []Parameter
}

// planner makes a plan: it opens, orders and judges the modules of a source and everything that must be loaded before
// them.
type planner struct {
	*inspection
	facts accel.Facts
	plan  *Plan
	out   map[string]*accel.Problem // modules of the definition that were left out, by name
	// alone means that only some of the definition's modules are judged; the others are assumed to be present.
	alone bool
	// seen receives every check, and no problem then ends the planning early. Nil if only the plan is needed.
	seen func(module, file string, c Check)
}

// MakePlan opens and judges the modules of a source and everything that must be loaded before them. A problem means
// that they are refused.
func MakePlan(t Target, where []Located) (*Plan, *accel.Problem) { return newPlanner(t).run(where) }

func newPlanner(t Target) *planner {
	return &planner{
		inspection: inspect(t), facts: t.Facts,
		plan: &Plan{Source: t.Source, Key: t.Key, ID: t.Key}, out: map[string]*accel.Problem{},
	}
}

func (p *planner) run(where []Located) (*Plan, *accel.Problem) {
	candidates, first := p.open(where)
	defer func() {
		for _, c := range candidates {
			c.image.Close() // a planned module is no longer a candidate, and stays open
		}
	}()
	if first == nil || p.seen != nil {
		sorted, problem := p.order(candidates)
		first = cmp.Or(first, problem)
		for _, c := range sorted {
			if first != nil && p.seen == nil {
				break
			}
			if c.image != nil {
				first = cmp.Or(first, p.leaveOut(c.Module, p.add(c)))
			}
		}
	}
	if first != nil {
		p.plan.Close()
		return nil, first
	}
	p.softAfter()
	if p.plan.ID == "" {
		p.plan.ID = PlanID(p.plan)
	}
	return p.plan, nil
}

// leaveOut notes the problem of a module. It returns the problem, or nil if the module is optional.
func (p *planner) leaveOut(m accel.Module, problem *accel.Problem) *accel.Problem {
	if problem == nil {
		return nil
	}
	p.out[Normal(m.Name)] = problem
	if !m.Optional {
		return problem
	}
	p.log.Warn("an optional module is left out", "kind", p.def.Kind, "module", m.Name, "problem", problem)
	return nil
}

// open opens the files of the definition's modules.
func (p *planner) open(where []Located) ([]*candidate, *accel.Problem) {
	var out []*candidate
	var first *accel.Problem
	for _, l := range where {
		c := &candidate{Located: l}
		var problem *accel.Problem
		if l.Path == "" {
			problem = accel.Problemf(accel.NoDriverSource, "module %q is not there", l.Module.Name)
		} else {
			c.image, problem = Open(p.h, l.Path)
		}
		if problem == nil {
			var words map[string]string
			if words, problem = template.Parameters(p.def, p.facts, l.Module); problem == nil {
				c.words = p.rules.merge(l.Module.Name, words)
				c.Module.Firmware, problem = template.Firmware(p.def, p.facts, l.Module)
			}
		}
		p.tell(l.Module.Name, l.Path, Check{Name: "file", Problem: problem})
		out = append(out, c)
		first = cmp.Or(first, p.leaveOut(l.Module, problem))
		if problem != nil && l.Module.Optional { // a good file must not be loaded without its parameters
			c.image.Close()
			c.image = nil
		}
		if first != nil && p.seen == nil {
			break
		}
	}
	return out, first
}

func (p *planner) tell(module, file string, c Check) {
	if p.seen != nil {
		p.seen(Normal(module), file, c)
	}
}

// order sorts the candidates so that each comes after the modules that it needs. Otherwise they keep the definition's
// order.
func (p *planner) order(candidates []*candidate) ([]*candidate, *accel.Problem) {
	var sorted []*candidate
	const onTheWay, done = 1, 2
	state := map[string]int{}
	var visit func(c *candidate, way []string) *accel.Problem
	visit = func(c *candidate, way []string) *accel.Problem {
		name := Normal(c.Module.Name)
		way = append(way, name)
		switch state[name] {
		case onTheWay:
			return accel.Problemf(accel.DefinitionInvalid, "the modules of %q need each other: %s", p.def.Kind,
				strings.Join(way[slices.Index(way, name):], " → "))
		case done:
			return nil
		}
		state[name] = onTheWay
		for _, need := range c.needs() {
			i := slices.IndexFunc(candidates, func(o *candidate) bool { return Normal(o.Module.Name) == Normal(need) })
			if i < 0 {
				continue
			}
			if problem := visit(candidates[i], way); problem != nil {
				return problem
			}
		}
		state[name] = done
		sorted = append(sorted, c)
		return nil
	}
	for _, c := range candidates {
		if problem := visit(c, nil); problem != nil {
			return nil, problem
		}
	}
	return sorted, nil
}

// needs are the modules that must be live before this one.
func (c *candidate) needs() []string {
	if c.image == nil {
		return c.Module.After
	}
	return slices.Concat(c.Module.After, c.image.Depends)
}

// add adds one module and its dependencies to the plan.
func (p *planner) add(c *candidate) *accel.Problem {
	m := c.image
	before := len(p.plan.Modules)
	problem := p.addNeeded(c)
	p.tell(c.Module.Name, c.Path, Check{Name: "dependencies", Detail: strings.Join(c.needs(), ", "), Problem: problem})
	if problem == nil || p.seen != nil {
		s := &subject{Image: m, wants: c.Module.Name, words: c.words, firmware: c.Module.Firmware}
		problem = cmp.Or(problem, p.verify(s, p.teller(c.Module.Name, c.Path)))
		c.words = s.words
	}
	if problem != nil {
		for _, prior := range p.plan.Modules[before:] {
			prior.Image.Close()
		}
		p.plan.Modules = p.plan.Modules[:before]
		return problem
	}
	p.provide(m.Info)
	p.plan.Modules = append(p.plan.Modules, Planned{Image: m, Parameters: asMap(c.words), Optional: c.Module.Optional})
	c.image = nil
	return nil
}

func (p *planner) teller(module, file string) func(Check) {
	if p.seen == nil {
		return nil
	}
	return func(c Check) { p.tell(module, file, c) }
}

// provide notes the symbols that a module provides to later modules.
func (p *planner) provide(m *Info) {
	for name := range m.defined {
		p.ours[name] = 0
	}
	for name, crc := range m.exports {
		p.ours[name] = crc
	}
}

// addNeeded adds the modules that must be live before a candidate: the definition's "after", the file's own
// dependencies and, if they are installed, its soft dependencies.
func (p *planner) addNeeded(c *candidate) *accel.Problem {
	soft, _ := p.rules.soft(c.Module.Name, c.image.Info)
	for _, name := range soft {
		p.addSoft(name, c.Module.Name)
	}
	for _, name := range c.needs() {
		if problem := p.addChain(name, c.Module.Name); problem != nil {
			return problem
		}
	}
	return nil
}

// addSoft adds a soft dependency. It leaves out a module that is not installed, or that is refused.
func (p *planner) addSoft(name, wants string) {
	if p.index.chain(name) == nil {
		return
	}
	if problem := p.addChain(name, wants); problem != nil {
		p.log.Warn("a soft dependency is left out", "module", wants, "dependency", name, "problem", problem)
	}
}

// softAfter adds the soft dependencies that must be loaded after the modules. They are optional: if one fails, the
// plan does not.
func (p *planner) softAfter() {
	for _, m := range p.plan.Modules {
		_, after := p.rules.soft(m.Name, m.Info)
		for _, name := range after {
			before := len(p.plan.Modules)
			p.addSoft(name, m.Name)
			for i := range p.plan.Modules[before:] {
				p.plan.Modules[before+i].Optional = true
			}
		}
	}
}

// addChain adds the installed module name with everything it needs, unless it is provided already or, if alone is
// set, part of the definition.
func (p *planner) addChain(name, wants string) *accel.Problem {
	if p.provided(name) {
		return nil
	}
	if p.alone && slices.ContainsFunc(p.def.Driver.Modules,
		func(m accel.Module) bool { return Normal(m.Name) == Normal(name) }) {
		return nil
	}
	if why, ok := p.out[Normal(name)]; ok {
		return accel.Problemf(accel.DependencyMissing, "module %q needs module %q, which is left out: %s", wants, name,
			why.Message)
	}
	chain := p.index.chain(name)
	for _, other := range p.rules.alias(name) {
		if chain == nil {
			chain = p.index.chain(other)
		}
	}
	if chain == nil {
		return accel.Problemf(accel.DependencyMissing, "module %q needs module %q, which is neither loaded nor in %q",
			wants, name, p.index.dir)
	}
	before := len(p.plan.Modules)
	for _, file := range chain {
		base, _ := NameOf(file)
		if p.provided(base) {
			continue
		}
		if problem := p.addInstalled(file, base); problem != nil {
			for _, prior := range p.plan.Modules[before:] {
				prior.Image.Close()
			}
			p.plan.Modules = p.plan.Modules[:before]
			return problem
		}
	}
	return nil
}

// addInstalled adds one module of /lib/modules.
func (p *planner) addInstalled(file, base string) *accel.Problem {
	m, problem := Open(p.h, file)
	if problem != nil {
		return problem
	}
	if m.Name != "" {
		base = m.Name // the file name may differ
	}
	s := &subject{Image: m, wants: base, words: p.rules.merge(base, nil)}
	in := *p.inspection
	in.flags = "" // it came with the kernel
	if problem := in.verify(s, p.teller(base, file)); problem != nil {
		m.Close()
		return problem
	}
	p.provide(m.Info)
	p.plan.Modules = append(p.plan.Modules, Planned{Image: m, Prior: true, Parameters: asMap(s.words)})
	return nil
}

// provided reports whether a required module is already present, or will be.
func (p *planner) provided(name string) bool {
	if p.index.inKernel(name) || slices.ContainsFunc(p.plan.Modules,
		func(m Planned) bool { return m.Name == Normal(name) }) {
		return true
	}
	if !p.running {
		return false // what is live now says nothing about another kernel
	}
	if live, ok := Live(p.h, name); ok {
		if live.State == StateLive {
			p.learn(live)
		}
		return live.State == StateLive
	}
	// Built-in code that has parameters has a directory without a state.
	return p.index.chain(name) == nil && p.h.Exists("/sys/module/"+Normal(name))
}

// learn notes the symbols of a live module, whose file it must find to know their versions. It skips the kernel's own
// modules, whose symbols are in Module.symvers.
func (p *planner) learn(live accel.LoadedModule) {
	file, ok := p.index.file(live.Name)
	if !ok || p.index.ownFile(file) {
		return
	}
	m, problem := Open(p.h, file)
	if problem != nil {
		return
	}
	defer m.Close()
	if Same(live, m.BuildID, m.SrcVersion, m.Version) {
		p.provide(m.Info)
	}
}

// PlanID identifies a driver that has no key, by the build-ids and versions of its modules.
func PlanID(p *Plan) string {
	var parts []string
	for _, m := range p.Modules {
		if !m.Prior {
			parts = append(parts, m.Name+":"+m.BuildID+":"+m.SrcVersion+":"+m.Version)
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return string(p.Source) + "-" + hex.EncodeToString(sum[:])[:32]
}

// Version is the driver's version, as its modules report it.
func (p *Plan) Version() string {
	for _, m := range p.Modules {
		if !m.Prior && m.Image.Version != "" {
			return m.Image.Version
		}
	}
	return ""
}
