package build

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

// job is one build in progress.
type job struct {
	def              *accel.Definition
	facts            accel.Facts
	source           template.BuildSource
	system           accel.BuildSystem
	dkms             *dkmsConf // nil for other build systems
	headers          string
	index            *kmod.Index
	make             string   // path of the program
	extra            []string // arguments that the kernel's compiler requires
	*store.Workspace          // its work directory has the copy of the source
	scope            *host.Scope
	user             int             // the user id that the build runs as
	steps            int             // of the whole build: copying the source, the programs, and what follows them
	counted          int             // progress lines of the output
	signer           *signing.Signer // nil if modules are not signed
}

// Outcome is the result of working on a build source.
type Outcome string

// The outcomes. Those of a build that failed are also verdicts of a source, by the same names.
const (
	Built       Outcome = "built"       // or the store had it already
	Unavailable Outcome = "unavailable" // something that only an operator can provide is missing
	Refused     Outcome = "refused"
	Failed      Outcome = "failed"
	CalledOff   Outcome = "called off" // by the gate
)

// Build builds from one build source. The outcome is Unavailable if something is missing that only an operator can
// provide (source, headers, compiler), or if the source is not for this kernel. If gate is not nil, it is called
// before the compiler runs, with the key of the entry that the build would make. If gate returns false, the build is
// called off without a problem.
func (b *Builder) Build(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source,
	gate func(context.Context, string) bool,
) (store.Entry, Outcome, *accel.Problem) {
	source, problem := template.Source(def, facts, s, anywhere)
	if problem != nil {
		return store.Entry{}, Refused, problem
	}
	if !b.h.Exists(source.Path) {
		return store.Entry{}, Unavailable, accel.Problemf(accel.SourceMissing, "the source of %q is not at %q",
			def.Kind, source.Path)
	}
	j := &job{
		def: def, facts: facts, source: source, system: b.system(source),
		index: kmod.NewIndex(b.h, facts.Kernel.Release),
	}
	at := ""
	if j.system == accel.BuildDKMS {
		if j.dkms, problem = b.readDKMS(source.Path); problem != nil {
			return store.Entry{}, Refused, problem
		}
		at = j.dkms.work()
	}
	w, done, problem := b.store.Workspace(at)
	if problem != nil {
		return store.Entry{}, Failed, problem
	}
	defer done()
	j.Workspace = w
	tree, problem := b.copySource(ctx, j)
	if problem != nil {
		return store.Entry{}, Failed, problem
	}
	signers, problem := b.signed(j, tree)
	if problem != nil {
		return store.Entry{}, Refused, problem
	}
	if j.signer, problem = signing.Open(b.h, def); problem != nil {
		return store.Entry{}, Refused, problem
	}
	id := store.Identity{
		Kind: def.Kind, Signer: j.signer.Identity(), Version: def.Driver.Version, SourceDigest: tree,
		Arch: facts.Kernel.Arch, KernelRelease: facts.Kernel.Release, KernelID: store.KernelID(facts.Kernel),
		Make: source.Make, ModuleNames: store.ModuleNames(def),
	}
	m := store.Manifest{
		Schema: store.Schema, Key: id.Key(), Identity: id, Source: accel.SourceBuild, Origin: source.Path,
		SignedBy: signers,
	}
	release, problem := b.store.LockKey(ctx, def.Kind, m.Key)
	if problem != nil {
		return store.Entry{}, Failed, problem
	}
	defer release()
	dir := b.store.EntryDir(m.Key)
	if m, err := b.store.Manifest(m.Key); err == nil && b.store.Trusted(def, m) == nil {
		return store.Entry{Manifest: m, Path: dir}, Built, nil
	}
	if problem := b.equip(ctx, j, s); problem != nil {
		return store.Entry{}, Unavailable, problem
	}
	if b.o.Trust.Require && !agrees(source.Make, j.source.Make, j.headers) {
		return store.Entry{}, Refused, accel.Problemf(accel.SignatureInvalid,
			"driver.sources.make of %q gives other arguments than were signed: %q", def.Kind, j.source.Make)
	}
	if gate != nil && !gate(ctx, m.Key) {
		return store.Entry{}, CalledOff, nil
	}
	if problem := b.compile(ctx, j, &m); problem != nil {
		b.keepLog(j, m.Key, problem)
		return store.Entry{}, Failed, problem
	}
	return store.Entry{Manifest: m, Path: dir}, Built, nil
}

// equip finds what else the build needs on the host, and checks whether the source is for this kernel.
func (b *Builder) equip(ctx context.Context, j *job, s accel.Source) (problem *accel.Problem) {
	if j.headers, problem = b.headers(j.facts); problem != nil {
		return problem
	}
	if j.source, problem = template.Source(j.def, j.facts, s, j.headers); problem != nil {
		return problem
	}
	config := kmod.KernelConfig(b.h, j.headers)
	if j.make, j.extra, problem = b.compiler(ctx, j.facts, config, s.AnyCompiler); problem != nil {
		return problem
	}
	if j.dkms == nil {
		return nil
	}
	j.dkmsFacts(b.o.Jobs)
	return j.dkms.exclusive(j.facts.Kernel, config)
}

// compile runs the build, completes m, which describes its result, and publishes that.
func (b *Builder) compile(ctx context.Context, j *job, m *store.Manifest) *accel.Problem {
	name := path.Join(j.Entry, "build.log")
	log, err := b.h.Create(name, 0o600)
	if err != nil {
		return accel.ProblemOf(err, "cannot make %q", name)
	}
	defer log.Close()
	start := time.Now()
	b.log.Info("driver build started", "kind", j.def.Kind, "source", j.source.Path, "headers", j.headers, "key", m.Key)
	closeScope := b.openScope(ctx, j)
	defer closeScope()
	problem := b.runCommands(ctx, j, log)
	if problem != nil {
		return problem
	}
	m.Built, m.Steps = time.Now().UTC(), j.counted
	if m.Modules, problem = b.harvestAll(ctx, j); problem != nil {
		return problem
	}
	err = b.store.Describe(j.Workspace, *m)
	if err == nil {
		err = errors.Join(log.Sync(), b.store.Publish(j.Workspace, j.def, m.Key))
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot put the build of %q into the store", j.def.Kind)
	}
	if err := b.h.Remove(b.store.FailedLog(m.Key)); err != nil {
		b.log.Warn("cannot remove the log of an earlier build", "error", err)
	}
	b.log.Info("driver built", "kind", j.def.Kind, "key", m.Key, "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// harvestAll harvests every module of the definition.
func (b *Builder) harvestAll(ctx context.Context, j *job) (out []store.Module, problem *accel.Problem) {
	at := b.tell.Begin(accel.Progress{
		Kind: j.def.Kind, Stage: accel.StageFinish, Step: j.steps, Steps: j.steps,
		Total: int64(len(j.def.Driver.Modules)),
	})
	defer func() { at.End(problem) }()
	for i, want := range j.def.Driver.Modules {
		at.At(i, want.Name)
		s, problem := b.harvest(ctx, j, want)
		if problem == nil {
			out = append(out, s)
			continue
		}
		if !want.Optional {
			return nil, problem
		}
		b.log.Warn("an optional module is left out", "kind", j.def.Kind, "module", want.Name, "problem", problem)
	}
	if len(out) == 0 {
		return nil, accel.Problemf(accel.BuildFailed, "the build of %q made no module", j.def.Kind)
	}
	at.At(len(j.def.Driver.Modules), "")
	return out, nil
}

// harvest strips one module of debug information, which keeps its build-id, then signs it, judges it and copies it
// into the entry.
func (b *Builder) harvest(ctx context.Context, j *job, want accel.Module) (store.Module, *accel.Problem) {
	built, problem := b.builtModule(j, want.Name)
	if problem != nil {
		return store.Module{}, problem
	}
	if built == "" {
		return store.Module{}, accel.Problemf(accel.BuildFailed, "the build of %q made no module %q", j.def.Kind,
			want.Name)
	}
	if strip, err := b.h.Programs().LookPath("strip"); err == nil {
		var out strings.Builder
		if err := j.inScope(ctx, command{path: strip, args: []string{"-g", built}}, &out); err != nil {
			b.log.Warn("cannot strip a module", "module", want.Name, "error", err, "output", out.String())
		}
	}
	if problem := signing.Sign(b.h, j.signer, built); problem != nil {
		return store.Module{}, problem
	}
	m, problem := kmod.Open(b.h, built)
	if problem != nil {
		return store.Module{}, problem
	}
	defer m.Close()
	if p := kmod.CheckVermagic(m, j.facts.Kernel, j.index.Flags()); p != nil {
		p.Message = fmt.Sprintf("the headers in %q are not of the wanted kernel: %s", j.headers, p.Message)
		return store.Module{}, p
	}
	if v := j.def.Driver.Version; v != "" && m.Version != "" && m.Version != v {
		return store.Module{}, accel.Problemf(accel.SourceMissing, "the source in %q is of version %q, wanted is %q",
			j.source.Path, m.Version, v)
	}
	s := store.Module{
		Name: kmod.Normal(want.Name), File: path.Base(built), BuildID: m.BuildID,
		SrcVersion: m.SrcVersion, Vermagic: m.Vermagic, Depends: m.Depends, Version: m.Version,
	}
	if s.SHA256, problem = b.store.Copy(m.Content, path.Join(j.Entry, s.File)); problem != nil {
		return store.Module{}, problem
	}
	return s, nil
}

// builtModule returns the file of a module that the build made, empty if there is none.
func (b *Builder) builtModule(j *job, name string) (string, *accel.Problem) {
	if j.dkms != nil {
		file, problem := j.dkms.module(name)
		if problem != nil {
			return "", problem
		}
		file = path.Join(j.Work, file)
		if st, err := b.h.Stat(file); err == nil && st.Mode().IsRegular() {
			return file, nil
		}
	}
	return b.findModule(j.Work, name, 0), nil
}

// findModule finds a module's file below dir; empty if there is none.
func (b *Builder) findModule(dir, name string, depth int) string {
	const deepest = 16
	entries, err := b.h.ReadDir(dir)
	if err != nil || depth > deepest {
		return ""
	}
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".ko"); ok && e.Type().IsRegular() &&
			kmod.Normal(base) == kmod.Normal(name) {
			return path.Join(dir, e.Name())
		}
	}
	for _, e := range entries {
		if e.IsDir() {
			if found := b.findModule(path.Join(dir, e.Name()), name, depth+1); found != "" {
				return found
			}
		}
	}
	return ""
}

// keepLog keeps the log of a failed build and names it in the problem.
func (b *Builder) keepLog(j *job, key string, problem *accel.Problem) {
	to := b.store.FailedLog(key)
	if err := errors.Join(b.h.MkdirAll(path.Dir(to), 0o700), b.h.Rename(path.Join(j.Entry, "build.log"),
		to)); err != nil {
		if !errors.Is(err, syscall.ENOENT) {
			b.log.Warn("cannot keep a build log", "kind", j.def.Kind, "error", err)
		}
		return
	}
	problem.Message += "; log: " + to
}
