package driver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
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

// candidate is a module of the definition with its file, until it is planned or left out.
type candidate struct {
	located
	image *image // nil when problem says why
	words []Parameter
}

// planner makes a plan: it opens, orders and judges the modules of a source and everything that must be loaded before
// them.
type planner struct {
	*inspection
	facts accel.Facts
	plan  *plan
	out   map[string]*accel.Problem // modules of the definition that were left out, by name
	// alone is set where only some of the definition's modules are judged: the others are taken for granted.
	alone bool
	// seen is told of every check; then nothing ends at the first problem. Nil: only the plan is wanted.
	seen func(module, file string, c Check)
}

// makePlan opens and judges the modules of a source and everything that must be loaded before them. The problem, when
// there is one, is a refusal.
func makePlan(t target, where []located) (*plan, *accel.Problem) { return newPlanner(t).run(where) }

func newPlanner(t target) *planner {
	return &planner{
		inspection: inspect(t), facts: t.facts,
		plan: &plan{source: t.source, key: t.key, id: t.key}, out: map[string]*accel.Problem{},
	}
}

func (p *planner) run(where []located) (*plan, *accel.Problem) {
	candidates, first := p.open(where)
	defer func() {
		for _, c := range candidates {
			c.image.close() // what was planned is no candidate any more
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
				first = cmp.Or(first, p.leaveOut(c.module, p.add(c)))
			}
		}
	}
	if first != nil {
		p.plan.close()
		return nil, first
	}
	p.softAfter()
	if p.plan.id == "" {
		p.plan.id = planID(p.plan)
	}
	return p.plan, nil
}

// leaveOut notes the problem of an optional module and returns that of another one.
func (p *planner) leaveOut(m accel.Module, problem *accel.Problem) *accel.Problem {
	if problem == nil {
		return nil
	}
	p.out[normal(m.Name)] = problem
	if !m.Optional {
		return problem
	}
	p.log.Warn("an optional module is left out", "kind", p.def.Kind, "module", m.Name, "problem", problem)
	return nil
}

// open opens the files of the definition's modules.
func (p *planner) open(where []located) ([]*candidate, *accel.Problem) {
	var out []*candidate
	var first *accel.Problem
	for _, l := range where {
		c := &candidate{located: l}
		var problem *accel.Problem
		if l.path == "" {
			problem = accel.Problemf(accel.NoDriverSource, "module %q is not there", l.module.Name)
		} else {
			c.image, problem = openImage(p.h, l.path)
		}
		if problem == nil {
			var words map[string]string
			if words, problem = template.Parameters(p.def, p.facts, l.module); problem == nil {
				c.words = p.rules.merge(l.module.Name, words)
				c.module.Firmware, problem = template.Firmware(p.def, p.facts, l.module)
			}
		}
		p.tell(l.module.Name, l.path, Check{Name: "file", Problem: problem})
		out = append(out, c)
		first = cmp.Or(first, p.leaveOut(l.module, problem))
		if first != nil && p.seen == nil {
			break
		}
	}
	return out, first
}

func (p *planner) tell(module, file string, c Check) {
	if p.seen != nil {
		p.seen(normal(module), file, c)
	}
}

// order sorts the candidates so that what a module needs comes before it; otherwise they stay as the definition has them.
func (p *planner) order(candidates []*candidate) ([]*candidate, *accel.Problem) {
	var sorted []*candidate
	const onTheWay, done = 1, 2
	state := map[string]int{}
	var visit func(c *candidate, way []string) *accel.Problem
	visit = func(c *candidate, way []string) *accel.Problem {
		name := normal(c.module.Name)
		way = append(way, name)
		switch state[name] {
		case onTheWay:
			return accel.Problemf(accel.DefinitionInvalid, "the modules of %q need each other: %s", p.def.Kind, strings.Join(way[slices.Index(way, name):], " → "))
		case done:
			return nil
		}
		state[name] = onTheWay
		for _, need := range c.needs() {
			i := slices.IndexFunc(candidates, func(o *candidate) bool { return normal(o.module.Name) == normal(need) })
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
		return c.module.After
	}
	return slices.Concat(c.module.After, c.image.depends)
}

// add adds one module and what it needs to the plan.
func (p *planner) add(c *candidate) *accel.Problem {
	m := c.image
	before := len(p.plan.modules)
	problem := p.addNeeded(c)
	p.tell(c.module.Name, c.path, Check{Name: "dependencies", Detail: strings.Join(c.needs(), ", "), Problem: problem})
	if problem == nil || p.seen != nil {
		s := &subject{image: m, wants: c.module.Name, words: c.words, firmware: c.module.Firmware}
		problem = cmp.Or(problem, p.verify(s, p.teller(c.module.Name, c.path)))
		c.words = s.words
	}
	if problem != nil {
		for _, prior := range p.plan.modules[before:] {
			prior.image.close()
		}
		p.plan.modules = p.plan.modules[:before]
		return problem
	}
	p.provide(m.moduleFile)
	p.plan.modules = append(p.plan.modules, planned{image: m, parameters: asMap(c.words), optional: c.module.Optional})
	c.image = nil
	return nil
}

func (p *planner) teller(module, file string) func(Check) {
	if p.seen == nil {
		return nil
	}
	return func(c Check) { p.tell(module, file, c) }
}

// provide notes the symbols that a module will have for those after it.
func (p *planner) provide(m *moduleFile) {
	for name := range m.defined {
		p.ours[name] = 0
	}
	for name, crc := range m.exports {
		p.ours[name] = crc
	}
}

// addNeeded adds the modules that must be live before a candidate: the definition's "after", the file's own
// dependencies and, where they are installed, its soft ones.
func (p *planner) addNeeded(c *candidate) *accel.Problem {
	soft, _ := p.rules.soft(c.module.Name, c.image.moduleFile)
	for _, name := range soft {
		p.addSoft(name, c.module.Name)
	}
	for _, name := range c.needs() {
		if problem := p.addChain(name, c.module.Name); problem != nil {
			return problem
		}
	}
	return nil
}

// addSoft adds a soft dependency: what is not installed, or not good, is left out.
func (p *planner) addSoft(name, wants string) {
	if p.index.chain(name) == nil {
		return
	}
	if problem := p.addChain(name, wants); problem != nil {
		p.log.Warn("a soft dependency is left out", "module", wants, "dependency", name, "problem", problem)
	}
}

// softAfter adds the soft dependencies that modules want to have after them. They are extras: their failure is not the
// plan's.
func (p *planner) softAfter() {
	for _, m := range p.plan.modules {
		_, after := p.rules.soft(m.name, m.moduleFile)
		for _, name := range after {
			before := len(p.plan.modules)
			p.addSoft(name, m.name)
			for i := range p.plan.modules[before:] {
				p.plan.modules[before+i].optional = true
			}
		}
	}
}

// addChain adds the installed module name with everything it needs, unless it is live, part of the kernel or part of
// the definition.
func (p *planner) addChain(name, wants string) *accel.Problem {
	if p.provided(name) {
		return nil
	}
	if p.alone && slices.ContainsFunc(p.def.Driver.Modules, func(m accel.Module) bool { return normal(m.Name) == normal(name) }) {
		return nil
	}
	if why, ok := p.out[normal(name)]; ok {
		return accel.Problemf(accel.DependencyMissing, "module %q needs module %q, which is left out: %s", wants, name, why.Message)
	}
	chain := p.index.chain(name)
	for _, other := range p.rules.alias(name) {
		if chain == nil {
			chain = p.index.chain(other)
		}
	}
	if chain == nil {
		return accel.Problemf(accel.DependencyMissing, "module %q needs module %q, which is neither loaded nor in %q", wants, name, p.index.dir)
	}
	before := len(p.plan.modules)
	for _, file := range chain {
		base, _ := moduleBase(file)
		if p.provided(base) {
			continue
		}
		if problem := p.addInstalled(file, base); problem != nil {
			for _, prior := range p.plan.modules[before:] {
				prior.image.close()
			}
			p.plan.modules = p.plan.modules[:before]
			return problem
		}
	}
	return nil
}

// addInstalled adds one module of /lib/modules.
func (p *planner) addInstalled(file, base string) *accel.Problem {
	m, problem := openImage(p.h, file)
	if problem != nil {
		return problem
	}
	if m.name != "" {
		base = m.name // a file may be called otherwise
	}
	s := &subject{image: m, wants: base, words: p.rules.merge(base, nil)}
	in := *p.inspection
	in.flags = "" // it came with the kernel
	if problem := in.verify(s, p.teller(base, file)); problem != nil {
		m.close()
		return problem
	}
	p.provide(m.moduleFile)
	p.plan.modules = append(p.plan.modules, planned{image: m, prior: true, parameters: asMap(s.words)})
	return nil
}

// provided reports whether a module that is needed is there already or will be.
func (p *planner) provided(name string) bool {
	if p.index.inKernel(name) || slices.ContainsFunc(p.plan.modules, func(m planned) bool { return m.name == normal(name) }) {
		return true
	}
	if !p.running {
		return false // what is live now will not be then
	}
	if live, ok := liveModule(p.h, name); ok {
		if live.State == stateLive {
			p.learn(live)
		}
		return live.State == stateLive
	}
	// Code in the kernel that has parameters shows a directory without a state.
	return p.index.chain(name) == nil && p.h.Exists("/sys/module/"+normal(name))
}

// learn notes the symbols of a live module that is not one of the kernel's own, whose symbols Module.symvers has: it must
// be found as a file to know their versions.
func (p *planner) learn(live accel.LoadedModule) {
	file, ok := p.index.file(live.Name)
	if !ok || p.index.ownFile(file) {
		return
	}
	m, problem := openImage(p.h, file)
	if problem != nil {
		return
	}
	defer m.close()
	if sameModule(live, m.buildID, m.srcVersion, m.version) {
		p.provide(m.moduleFile)
	}
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
