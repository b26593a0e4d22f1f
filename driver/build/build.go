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
	"github.com/acceld/acceld/driver/toolchain"
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
	headersIn        *host.Host // the file system that they are in: the machine's, or that of one of needs
	needs            []needed   // packages that the machine lacked
	index            *kmod.Index
	make             string   // path of the program
	extra            []string // arguments that the kernel's compiler requires
	*store.Workspace          // its work directory has the copy of the source
	scope            *host.Scope
	user             int             // the user id that the build runs as
	tools            tools           // what it runs
	image            toolchain.Image // that it runs in; the zero value for the machine
	root             *host.Root      // the file system of the image; nil for the machine's
	config           string          // the kernel's configuration
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

// Result is what became of a build.
type Result struct {
	Entry   store.Entry // if it was built
	Outcome Outcome
	Problem *accel.Problem // nil if it was built or called off
	// Note says for people that a builder image is used which no registry confirmed; empty otherwise.
	Note string
}

// Build builds from one build source. The outcome is Unavailable if something is missing that only an operator can
// provide (source, headers, compiler, builder image), or if the source is not for this kernel. If gate is not nil, it
// is called before the compiler runs, with the key of the entry that the build would make. If gate returns false, the
// build is called off without a problem.
func (b *Builder) Build(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source,
	gate func(context.Context, string) bool,
) Result {
	j, done, outcome, problem := b.start(ctx, def, facts, s)
	if problem != nil {
		return Result{Outcome: outcome, Problem: problem}
	}
	defer done()
	e, outcome, problem := b.build(ctx, j, s, gate)
	if outcome == Built && j.image.Digest != "" {
		b.o.Images.Collect(ctx, def, facts)
	}
	return Result{e, outcome, problem, j.image.Note}
}

// start begins the job of a build source: it knows its builder image and has a copy of the source.
func (b *Builder) start(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source) (j *job,
	done func(), outcome Outcome, problem *accel.Problem,
) {
	source, problem := template.Source(def, facts, s, anywhere)
	if problem != nil {
		return nil, nil, Refused, problem
	}
	needs, problem := b.needs(ctx, def, facts, s, source.Path)
	if problem != nil {
		return nil, nil, withoutImage(problem), problem
	}
	if source.Path = b.locate(needs, source.Path); !b.h.Exists(source.Path) {
		return nil, nil, Unavailable, accel.Problemf(accel.SourceMissing, "the source of %q is not at %q", def.Kind,
			source.Path)
	}
	j = &job{
		def: def, facts: facts, source: source, system: b.system(source), needs: needs,
		index: kmod.NewIndex(b.h, facts.Kernel.Release), tools: machineTools(b.h),
	}
	at := ""
	if j.system == accel.BuildDKMS {
		if j.dkms, problem = b.readDKMS(source.Path); problem != nil {
			return nil, nil, Refused, problem
		}
		at = j.dkms.work()
	}
	if s.Image != "" {
		if outcome, problem = b.findImage(ctx, j, s); problem != nil {
			return nil, nil, outcome, problem
		}
	}
	if j.Workspace, done, problem = b.store.Workspace(at); problem != nil {
		return nil, nil, Failed, problem
	}
	return j, done, "", nil
}

// build does the work of a job that has begun.
func (b *Builder) build(ctx context.Context, j *job, s accel.Source,
	gate func(context.Context, string) bool,
) (store.Entry, Outcome, *accel.Problem) {
	tree, problem := b.copySource(ctx, j)
	if problem != nil {
		return store.Entry{}, Failed, problem
	}
	signers, problem := b.signed(j, tree)
	if problem != nil {
		return store.Entry{}, Refused, problem
	}
	if j.signer, problem = signing.Open(b.h, j.def); problem != nil {
		return store.Entry{}, Refused, problem
	}
	id := store.Identity{
		Kind: j.def.Kind, Signer: j.signer.Identity(), Version: j.def.Driver.Version, SourceDigest: tree,
		Arch: j.facts.Kernel.Arch, KernelRelease: j.facts.Kernel.Release, KernelID: store.KernelID(j.facts.Kernel),
		Make: j.source.Make, ModuleNames: store.ModuleNames(j.def), Builder: j.image.Digest,
	}
	m := store.Manifest{
		Schema: store.Schema, Key: id.Key(), Identity: id, Source: accel.SourceBuild, Origin: j.source.Path,
		SignedBy: signers,
	}
	release, problem := b.store.LockKey(ctx, j.def.Kind, m.Key)
	if problem != nil {
		return store.Entry{}, Failed, problem
	}
	defer release()
	dir := b.store.EntryDir(m.Key)
	if m, err := b.store.Manifest(m.Key); err == nil && b.store.Trusted(j.def, m) == nil {
		return store.Entry{Manifest: m, Path: dir}, Built, nil
	}
	signed := j.source.Make
	if problem := b.equip(ctx, j, s); problem != nil {
		return store.Entry{}, Unavailable, problem
	}
	if b.o.Trust.Require && !agrees(signed, j.source.Make, j.headers) {
		return store.Entry{}, Refused, accel.Problemf(accel.SignatureInvalid,
			"driver.sources.make of %q gives other arguments than were signed: %q", j.def.Kind, j.source.Make)
	}
	if gate != nil && !gate(ctx, m.Key) {
		return store.Entry{}, CalledOff, nil
	}
	closeScope, outcome, problem := b.enter(ctx, j, s)
	defer closeScope()
	if problem != nil {
		return store.Entry{}, outcome, problem
	}
	if problem := b.compile(ctx, j, &m); problem != nil {
		b.keepLog(j, m.Key, problem)
		return store.Entry{}, Failed, problem
	}
	return store.Entry{Manifest: m, Path: dir}, Built, nil
}

// equip finds what else the build needs on the host, and checks whether the source is for this kernel. The programs of
// a builder image are looked at later, when it is here.
func (b *Builder) equip(ctx context.Context, j *job, s accel.Source) (problem *accel.Problem) {
	if j.headers, j.headersIn, problem = b.findHeaders(j); problem != nil {
		return problem
	}
	if j.image.Digest != "" { // an image need not have the links on the way to them
		var err error
		if j.headers, err = j.headersIn.Follow(j.headers); err != nil {
			return accel.ProblemOr(err, accel.HeadersMissing, "cannot find the headers %q", j.headers)
		}
	}
	if j.source, problem = template.Source(j.def, j.facts, s, j.headers); problem != nil {
		return problem
	}
	j.source.Path = b.locate(j.needs, j.source.Path)
	j.config = kmod.KernelConfig(j.headersIn, j.headers)
	if j.image.Digest == "" {
		if j.make, j.extra, problem = j.tools.compiler(ctx, j.facts, j.config, s.AnyCompiler); problem != nil {
			return problem
		}
	}
	if j.dkms == nil {
		return nil
	}
	j.dkmsFacts(b.o.Jobs)
	return j.dkms.exclusive(j.facts.Kernel, j.config)
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
	b.log.Info("driver build started", "kind", j.def.Kind, "source", j.source.Path, "headers", j.headers, "key", m.Key,
		"image", j.image.Name)
	problem := b.runCommands(ctx, j, log)
	if problem != nil {
		return problem
	}
	m.Built, m.Steps = time.Now().UTC(), j.counted
	if m.Modules, problem = b.harvestAll(ctx, j); problem != nil {
		return problem
	}
	if m.Firmware, problem = b.firmware(j); problem != nil {
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
	if strip, err := j.tools.find("strip"); err == nil {
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
