package kmod

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/host"
)

// Plan is a driver that was found and judged good, ready to load: its files are open and in load order.
type Plan struct {
	Source  accel.SourceType
	Key     string // in the store; empty for other sources
	ID      string // of its load attempts
	Modules []Planned
	// Live are the modules that are not in the plan because they were live when it was made.
	Live []string
}

// Gone returns the first module that the plan relies on and that is no longer live; empty if there is none. The plan
// must then be made again.
func (p *Plan) Gone(h *host.Host) string {
	for _, name := range p.Live {
		if m, ok := Live(h, name); !ok || m.State != StateLive {
			return name
		}
	}
	return ""
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
		m.Close()
	}
}

// Located is a module of the definition and its file at a source; an empty path means that the source does not have
// it.
type Located struct {
	Module accel.Module
	Path   string
}

// candidate is a module with its file, until it is planned or left out.
type candidate struct {
	*Image // nil if it could not be opened, or is planned
	module accel.Module
	prior  bool   // not part of the definition: a dependency of one of its modules
	flags  string // the vermagic flags that it must have; empty if they need not be compared
	words  []Parameter
}

// planner makes a plan: it opens, orders and judges the modules of a source and everything that must be loaded before
// them.
type planner struct {
	inspection
	plan *Plan
	out  map[string]*accel.Problem // modules of the definition that were left out, by name
	// alone means that only some of the definition's modules are judged; the others are assumed to be present.
	alone bool
	// seen receives every check; nil if only the plan is needed.
	seen func(module, file string, c Check)
}

// MakePlan opens and judges the modules of a source and everything that must be loaded before them. A problem means
// that they are refused.
func MakePlan(t Target, where []Located) (*Plan, *accel.Problem) { return newPlanner(t).run(where) }

func newPlanner(t Target) *planner {
	return &planner{
		inspection: inspect(t), plan: &Plan{Source: t.Source, Key: t.Key, ID: t.Key},
		out: map[string]*accel.Problem{},
	}
}

func (p *planner) run(where []Located) (*Plan, *accel.Problem) {
	candidates, first := p.open(where)
	defer func() {
		for _, c := range candidates {
			c.Image.Close() // a planned module is no longer a candidate, and stays open
		}
	}()
	sorted, problem := p.order(candidates)
	first = cmp.Or(first, problem)
	for _, c := range sorted {
		if c.Image != nil {
			first = cmp.Or(first, p.leaveOut(c.module, p.add(c)))
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
	p.Log.Warn("an optional module is left out", "kind", p.Def.Kind, "module", m.Name, "problem", problem)
	return nil
}

// open opens the files of the definition's modules.
func (p *planner) open(where []Located) ([]*candidate, *accel.Problem) {
	var out []*candidate
	var first *accel.Problem
	for _, l := range where {
		c := &candidate{module: l.Module}
		var problem *accel.Problem
		if l.Path == "" {
			problem = accel.Problemf(accel.NoDriverSource, "module %q is not there", l.Module.Name)
		} else {
			c.Image, problem = Open(p.Host, l.Path)
		}
		if problem == nil {
			var words map[string]string
			if words, problem = template.Parameters(p.Def, p.Facts, l.Module); problem == nil {
				c.words = p.rules.merge(l.Module.Name, words)
				c.module.Firmware, problem = template.Firmware(p.Def, p.Facts, l.Module)
			}
		}
		p.tell(l.Module.Name, l.Path, Check{Name: "file", Problem: problem})
		out = append(out, c)
		first = cmp.Or(first, p.leaveOut(l.Module, problem))
		if problem != nil && l.Module.Optional { // a good file must not be loaded without its parameters
			c.Image.Close()
			c.Image = nil
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
		name := Normal(c.module.Name)
		way = append(way, name)
		switch state[name] {
		case onTheWay:
			return accel.Problemf(accel.DefinitionInvalid, "the modules of %q need each other: %s", p.Def.Kind,
				strings.Join(way[slices.Index(way, name):], " → "))
		case done:
			return nil
		}
		state[name] = onTheWay
		for _, need := range c.needs() {
			i := slices.IndexFunc(candidates, func(o *candidate) bool { return Normal(o.module.Name) == Normal(need) })
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
	if c.Image == nil {
		return c.module.After
	}
	return slices.Concat(c.module.After, c.Depends)
}

// add adds one module and its dependencies to the plan.
func (p *planner) add(c *candidate) *accel.Problem {
	before := len(p.plan.Modules)
	problem := p.addNeeded(c)
	p.tell(c.module.Name, c.Path, Check{Name: "dependencies", Detail: strings.Join(c.needs(), ", "), Problem: problem})
	// A module of the store was compared when it was built, and its key identifies this kernel.
	if p.Source != accel.SourceStore {
		c.flags = p.index.Flags()
	}
	if problem = cmp.Or(problem, p.verify(c)); problem != nil {
		p.cut(before)
		return problem
	}
	p.admit(c)
	return nil
}

// admit adds a module that was judged good to the plan.
func (p *planner) admit(c *candidate) {
	maps.Copy(p.ours, c.exports)
	m := Planned{Image: c.Image, Parameters: map[string]string{}, Optional: c.module.Optional, Prior: c.prior}
	for _, w := range c.words {
		m.Parameters[w.Name] = w.Value
	}
	p.plan.Modules = append(p.plan.Modules, m)
	c.Image = nil
}

// cut removes all but the first n modules from the plan.
func (p *planner) cut(n int) {
	for _, m := range p.plan.Modules[n:] {
		m.Close()
	}
	p.plan.Modules = p.plan.Modules[:n]
}

// addNeeded adds the modules that must be live before a candidate: the definition's "after", the file's own
// dependencies and, if they are installed, its soft dependencies.
func (p *planner) addNeeded(c *candidate) *accel.Problem {
	soft, _ := p.rules.soft(c.module.Name, c.Info)
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

// addSoft adds a soft dependency. It leaves out a module that is not installed, or that is refused.
func (p *planner) addSoft(name, wants string) {
	if p.index.chain(name) == nil {
		return
	}
	if problem := p.addChain(name, wants); problem != nil {
		p.Log.Warn("a soft dependency is left out", "module", wants, "dependency", name, "problem", problem)
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
	if p.alone && slices.ContainsFunc(p.Def.Driver.Modules,
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
			p.cut(before)
			return problem
		}
	}
	return nil
}

// addInstalled adds one module of /lib/modules.
func (p *planner) addInstalled(file, base string) *accel.Problem {
	m, problem := Open(p.Host, file)
	if problem != nil {
		return problem
	}
	base = cmp.Or(m.Name, base) // the file name may differ
	c := &candidate{Image: m, module: accel.Module{Name: base}, prior: true, words: p.rules.merge(base, nil)}
	if problem := p.verify(c); problem != nil {
		m.Close()
		return problem
	}
	p.admit(c)
	return nil
}

// provided reports whether a required module is already present, or will be.
func (p *planner) provided(name string) bool {
	if p.index.inKernel(name) || slices.ContainsFunc(p.plan.Modules,
		func(m Planned) bool { return m.Name == Normal(name) }) {
		return true
	}
	if p.kernel.NotRunning {
		return false // what is live now says nothing about another kernel
	}
	if live, ok := Live(p.Host, name); ok {
		if live.State == StateLive {
			p.learn(live)
			p.plan.Live = append(p.plan.Live, live.Name)
		}
		return live.State == StateLive
	}
	// Built-in code that has parameters has a directory without a state.
	return p.index.chain(name) == nil && p.Host.Exists("/sys/module/"+Normal(name))
}

// learn notes the symbols of a live module, whose file it must find to know their versions. It skips the kernel's own
// modules, whose symbols are in Module.symvers.
func (p *planner) learn(live accel.LoadedModule) {
	file, ok := p.index.file(live.Name)
	if !ok || p.index.ownFile(file) {
		return
	}
	m, problem := Open(p.Host, file)
	if problem != nil {
		return
	}
	defer m.Close()
	if Same(live, m.BuildID, m.SrcVersion, m.Version) {
		maps.Copy(p.ours, m.exports)
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
	return string(p.Source) + "-" + Fingerprint([]byte(strings.Join(parts, "\n")))
}

// Fingerprint identifies a driver by a text about it: the first 32 hexadecimal digits of the SHA-256.
func Fingerprint(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
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
