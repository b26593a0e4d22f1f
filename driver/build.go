package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/signing"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/host"
)

// Build compiles the driver of def from the first build source that is there and puts it into the store, without
// loading it. When the store has exactly what would come out, no compiler runs.
func (d *Driver) Build(ctx context.Context, def *accel.Definition, facts accel.Facts) (store.Entry, *accel.Problem) {
	last := accel.Problemf(accel.NoDriverSource, "the definition of %q has no build source", def.Kind)
	var tried []string
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			continue
		}
		e, a := d.build(ctx, def, facts, s, nil)
		if a.verdict == satisfied {
			return e, nil
		}
		tried = append(tried, sentence("build from "+s.Path, a.verdict, a.problem))
		last = a.problem
		if a.verdict != unavailable {
			break
		}
	}
	last.Tried = tried
	return store.Entry{}, last
}

// job is one build at work.
type job struct {
	def              *accel.Definition
	facts            accel.Facts
	source           template.BuildSource
	system           accel.BuildSystem
	dkms             *dkmsConf // for that system
	headers          string
	index            *kmod.Index
	make             string   // the program
	extra            []string // what the kernel's compiler asks of make
	*store.Workspace          // the copy of the source is in its work directory
	scope            *host.Scope
	user             int             // that the build runs as
	steps            int             // of the build, with the copying before its programs and what follows them
	counted          int             // lines of progress
	signer           *signing.Signer // nil when modules are not signed
}

// build answers for one build source. Only what an operator can put there is unavailable: source, headers, compiler.
// Gate, when there is one, is asked before the compiler runs.
func (d *Driver) build(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source, gate func(context.Context, string) *answer) (store.Entry, answer) {
	const anywhere = "/headers" // where they are changes nothing of what comes out
	source, problem := template.Source(def, facts, s, anywhere)
	if problem != nil {
		return store.Entry{}, answer{verdict: refused, problem: problem}
	}
	if !d.h.Exists(source.Path) {
		return store.Entry{}, answer{verdict: unavailable, problem: accel.Problemf(accel.SourceMissing, "the source of %q is not at %q", def.Kind, source.Path)}
	}
	j := &job{def: def, facts: facts, source: source, system: d.system(source), index: kmod.NewIndex(d.h, facts.Kernel.Release)}
	at := ""
	if j.system == accel.BuildDKMS {
		if j.dkms, problem = d.readDKMS(source.Path); problem != nil {
			return store.Entry{}, answer{verdict: refused, problem: problem}
		}
		if at, problem = j.dkms.work(); problem != nil {
			return store.Entry{}, answer{verdict: failed, problem: problem}
		}
	}
	w, done, problem := d.store.Workspace(at)
	if problem != nil {
		return store.Entry{}, answer{verdict: failed, problem: problem}
	}
	defer done()
	j.Workspace = w
	tree, problem := d.copySource(j)
	if problem != nil {
		return store.Entry{}, answer{verdict: failed, problem: problem}
	}
	if j.signer, problem = signing.Open(d.h, def); problem != nil {
		return store.Entry{}, answer{verdict: refused, problem: problem}
	}
	id := store.Identity{
		Kind: def.Kind, Signer: j.signer.Identity(), Version: def.Driver.Version, SourceDigest: tree, Arch: facts.Kernel.Arch,
		KernelRelease: facts.Kernel.Release, KernelID: store.KernelID(facts.Kernel), Make: source.Make,
	}
	release, problem := d.store.LockKey(ctx, def.Kind, id.Key())
	if problem != nil {
		return store.Entry{}, answer{verdict: failed, problem: problem}
	}
	defer release()
	if m, err := d.store.Manifest(id.Key()); err == nil {
		return store.Entry{Manifest: m, Path: d.store.EntryDir(id.Key())}, answer{verdict: satisfied}
	}
	if problem := d.equip(ctx, j, s); problem != nil {
		return store.Entry{}, answer{verdict: unavailable, problem: problem}
	}
	if gate != nil {
		if a := gate(ctx, id.Key()); a != nil {
			return store.Entry{}, *a
		}
	}
	m, problem := d.compile(ctx, j, id)
	if problem != nil {
		d.keepLog(j, id.Key(), problem)
		return store.Entry{}, answer{verdict: failed, problem: problem}
	}
	return store.Entry{Manifest: m, Path: d.store.EntryDir(m.Key)}, answer{verdict: satisfied}
}

// equip finds what the build needs on the host besides the source, and whether the source is for this kernel.
func (d *Driver) equip(ctx context.Context, j *job, s accel.Source) (problem *accel.Problem) {
	if j.headers, problem = d.headers(j.facts); problem != nil {
		return problem
	}
	if j.source, problem = template.Source(j.def, j.facts, s, j.headers); problem != nil {
		return problem
	}
	config := kmod.KernelConfig(d.h, j.headers)
	if j.make, j.extra, problem = d.compiler(ctx, j.facts, config, s.AnyCompiler); problem != nil {
		return problem
	}
	if j.dkms == nil {
		return nil
	}
	j.dkmsFacts(d.o.Jobs)
	return j.dkms.exclusive(j.facts.Kernel, config)
}

// compile runs make and publishes what came out.
func (d *Driver) compile(ctx context.Context, j *job, id store.Identity) (store.Manifest, *accel.Problem) {
	name := path.Join(j.Entry, "build.log")
	log, err := d.h.Create(name, 0o600)
	if err != nil {
		return store.Manifest{}, accel.ProblemOf(err, "cannot make %q", name)
	}
	defer log.Close()
	start := time.Now()
	d.log.Info("driver build started", "kind", j.def.Kind, "source", j.source.Path, "headers", j.headers, "key", id.Key())
	closeScope := d.openScope(ctx, j)
	defer closeScope()
	problem := d.runSteps(ctx, j, log)
	if problem != nil {
		return store.Manifest{}, problem
	}
	m := store.Manifest{Schema: store.Schema, Identity: id, Built: d.o.Now().UTC(), Steps: j.counted}
	if m.Modules, problem = d.harvestAll(ctx, j); problem != nil {
		return store.Manifest{}, problem
	}
	m.Key = id.Key()
	err = d.store.Describe(j.Workspace, m)
	if err == nil {
		err = errors.Join(log.Sync(), d.store.Publish(j.Workspace, m.Key))
	}
	if err != nil {
		return store.Manifest{}, accel.ProblemOf(err, "cannot put the build of %q into the store", j.def.Kind)
	}
	if err := d.h.Remove(d.store.FailedLog(m.Key)); err != nil {
		d.log.Warn("cannot remove the log of an earlier build", "error", err)
	}
	d.log.Info("driver built", "kind", j.def.Kind, "key", m.Key, "took", time.Since(start).Round(time.Millisecond))
	return m, nil
}

// harvestAll is harvest of each module of the definition.
func (d *Driver) harvestAll(ctx context.Context, j *job) (out []store.Module, problem *accel.Problem) {
	at := d.tell.Begin(accel.Progress{Kind: j.def.Kind, Stage: accel.StageFinish, Step: j.steps, Steps: j.steps, Total: int64(len(j.def.Driver.Modules))})
	defer func() { at.End(problem) }()
	for i, want := range j.def.Driver.Modules {
		at.At(i, want.Name)
		s, problem := d.harvest(ctx, j, want)
		if problem == nil {
			out = append(out, s)
			continue
		}
		if !want.Optional {
			return nil, problem
		}
		d.log.Warn("an optional module is left out", "kind", j.def.Kind, "module", want.Name, "problem", problem)
	}
	if len(out) == 0 {
		return nil, accel.Problemf(accel.BuildFailed, "the build of %q made no module", j.def.Kind)
	}
	at.At(len(j.def.Driver.Modules), "")
	return out, nil
}

// harvest strips one module of debug information, which leaves its build-id, judges it and copies it into the entry.
func (d *Driver) harvest(ctx context.Context, j *job, want accel.Module) (store.Module, *accel.Problem) {
	built, problem := d.builtModule(j, want.Name)
	if problem != nil {
		return store.Module{}, problem
	}
	if built == "" {
		return store.Module{}, accel.Problemf(accel.BuildFailed, "the build of %q made no module %q", j.def.Kind, want.Name)
	}
	if strip, err := d.h.LookPath("strip"); err == nil {
		var out strings.Builder
		if err := d.inScope(ctx, j, step{path: strip, args: []string{"-g", built}}, &out); err != nil {
			d.log.Warn("cannot strip a module", "module", want.Name, "error", err, "output", out.String())
		}
	}
	if problem := signing.Sign(d.h, j.signer, built); problem != nil {
		return store.Module{}, problem
	}
	m, problem := kmod.Open(d.h, built)
	if problem != nil {
		return store.Module{}, problem
	}
	defer m.Close()
	if p := kmod.CheckVermagic(m, j.facts.Kernel, j.index.Flags()); p != nil {
		p.Message = fmt.Sprintf("the headers in %q are not of the wanted kernel: %s", j.headers, p.Message)
		return store.Module{}, p
	}
	if v := j.def.Driver.Version; v != "" && m.Version != "" && m.Version != v {
		return store.Module{}, accel.Problemf(accel.SourceMissing, "the source in %q is of version %q, wanted is %q", j.source.Path, m.Version, v)
	}
	s := store.Module{Name: kmod.Normal(want.Name), File: path.Base(built), BuildID: m.BuildID, SrcVersion: m.SrcVersion, Vermagic: m.Vermagic, Depends: m.Depends, Version: m.Version}
	if s.SHA256, problem = d.store.Copy(m.Content, path.Join(j.Entry, s.File)); problem != nil {
		return store.Module{}, problem
	}
	return s, nil
}

// builtModule returns the file of a module that the build left, empty when there is none.
func (d *Driver) builtModule(j *job, name string) (string, *accel.Problem) {
	if j.dkms != nil {
		file, ok, problem := j.dkms.module(name)
		if problem != nil {
			return "", problem
		}
		if st, err := d.h.Stat(path.Join(j.Work, file)); ok && err == nil && st.Mode().IsRegular() {
			return path.Join(j.Work, file), nil
		}
	}
	built, _ := d.findModule(j.Work, name, 0)
	return built, nil
}

// findModule finds the file of a module below dir.
func (d *Driver) findModule(dir, name string, depth int) (string, bool) {
	const deepest = 16
	entries, err := d.h.ReadDir(dir)
	if err != nil || depth > deepest {
		return "", false
	}
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".ko"); ok && e.Type().IsRegular() && kmod.Normal(base) == kmod.Normal(name) {
			return path.Join(dir, e.Name()), true
		}
	}
	for _, e := range entries {
		if e.IsDir() {
			if found, ok := d.findModule(path.Join(dir, e.Name()), name, depth+1); ok {
				return found, true
			}
		}
	}
	return "", false
}

// keepLog keeps the log of a build that failed and names it in the problem.
func (d *Driver) keepLog(j *job, key string, problem *accel.Problem) {
	to := d.store.FailedLog(key)
	if err := errors.Join(d.h.MkdirAll(path.Dir(to), 0o700), d.h.Rename(path.Join(j.Entry, "build.log"), to)); err != nil {
		if !errors.Is(err, syscall.ENOENT) {
			d.log.Warn("cannot keep a build log", "kind", j.def.Kind, "error", err)
		}
		return
	}
	problem.Message += "; log: " + to
}
