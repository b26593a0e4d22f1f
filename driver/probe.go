package driver

import (
	"time"

	"github.com/acceld/acceld/accel"
)

// Probe reads what is true about the driver of one kind and changes nothing. Right means that every module that is not
// optional is live, is the chosen one and has the wanted parameters, and that every accelerator that is present is
// bound to it and has its nodes. The problem says why it is not right; nil without Right means: not loaded.
func (d *Driver) Probe(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	var have accel.DriverHave
	chosen, pointed := d.current(def, facts)
	if pointed {
		have.Key = chosen.Key
	}
	missing, died := false, d.taint()&taintDied != 0
	var problem *accel.Problem
	first := func(p *accel.Problem) {
		if problem == nil {
			problem = p
		}
	}
	for _, want := range def.Driver.Modules {
		m, ok := d.liveModule(want.Name)
		if !ok {
			d.settled(want.Name)
			missing = missing || !want.Optional
			continue
		}
		have.Modules = append(have.Modules, m)
		if have.Version == "" {
			have.Version = m.Version
		}
		if m.State != stateLive {
			missing = true
			if died || d.since(want.Name) > d.o.LoadTimeout {
				first(accel.Problemf(accel.RebootRequired, "module %q is stuck in state %q", m.Name, m.State))
			}
			continue
		}
		d.settled(want.Name)
		first(d.judgeModule(def, facts, want, m, chosen, pointed))
	}
	if !missing && problem == nil && def.Driver.Version != "" && have.Version == "" {
		first(accel.Problemf(accel.OtherModuleLoaded, "the loaded modules of %q have no version, wanted is %q", def.Kind, def.Driver.Version))
	}
	first(deviceProblem(def, d.observe(def, accs), !missing))
	first(d.sharedProblem(def, !missing))
	have.Right = problem == nil && !missing
	if len(have.Modules) > 0 {
		have.Source = string(accel.SourceLoaded)
		if pointed {
			have.Source = string(accel.SourceStore)
		}
	}
	if !have.Right && problem != nil && problem.Reason == accel.OtherModuleLoaded || len(have.Modules) == 0 {
		have.Key = ""
	}
	return have, problem
}

// judgeModule compares one live module with what is wanted.
func (d *Driver) judgeModule(def *accel.Definition, facts accel.Facts, want accel.Module, m accel.LoadedModule, chosen Manifest, pointed bool) *accel.Problem {
	if pointed {
		if s, ok := chosen.module(want.Name); ok && !sameModule(m, s.BuildID, s.SrcVersion, s.Version) {
			return accel.Problemf(accel.OtherModuleLoaded, "module %q is loaded with build-id %q, the chosen one has %q", m.Name, m.BuildID, s.BuildID)
		}
	}
	if v := def.Driver.Version; v != "" && m.Version != "" && m.Version != v {
		return accel.Problemf(accel.OtherModuleLoaded, "module %q is loaded in version %q, wanted is %q", m.Name, m.Version, v)
	}
	sentence, problem := d.differing(def, facts, want)
	if problem != nil {
		return problem
	}
	if sentence != "" {
		return accel.Problemf(accel.ParametersDiffer, "module %q: %s", m.Name, sentence)
	}
	return nil
}

// sameModule compares a live module with a file: by build-id, and where one has none by source version and version.
func sameModule(m accel.LoadedModule, buildID, srcVersion, version string) bool {
	if m.BuildID != "" && buildID != "" {
		return m.BuildID == buildID
	}
	return m.SrcVersion == srcVersion && m.Version == version
}

// since returns for how long a module has been seen neither live nor gone.
func (d *Driver) since(name string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.coming[name]; !ok {
		d.coming[name] = d.o.Now()
	}
	return d.o.Now().Sub(d.coming[name])
}

// settled forgets that a module was seen on its way.
func (d *Driver) settled(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.coming, name)
}
