package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
)

// Build compiles the driver of def from the first build source that is there and puts it into the store, without
// loading it. When the store has exactly what would come out, no compiler runs.
func (d *Driver) Build(ctx context.Context, def *accel.Definition, facts accel.Facts) (Entry, *accel.Problem) {
	last := accel.Problemf(accel.NoDriverSource, "the definition of %q has no build source", def.Kind)
	var tried []string
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			continue
		}
		e, a := d.build(ctx, def, facts, s)
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
	return Entry{}, last
}

// job is one build at work.
type job struct {
	def     *accel.Definition
	facts   accel.Facts
	source  buildSource
	headers string
	index   *moduleIndex
	make    string   // the program
	extra   []string // what the kernel's compiler asks of make
	dir     string   // <StateDir>/build/<random>
	work    string   // the copy of the source in it
	entry   string   // the entry of the store in it, until it is published
}

// build answers for one build source. Only what an operator can put there is unavailable: source, headers, compiler.
func (d *Driver) build(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source) (Entry, answer) {
	source, problem := d.expandSource(def, facts, s)
	if problem != nil {
		return Entry{}, answer{verdict: refused, problem: problem}
	}
	if !d.h.Exists(source.path) {
		return Entry{}, answer{verdict: unavailable, problem: accel.Problemf(accel.SourceMissing, "the source of %q is not at %q", def.Kind, source.path)}
	}
	j := &job{def: def, facts: facts, source: source, index: d.modulesOf(facts.Kernel.Release)}
	done, problem := d.openJob(j)
	if problem != nil {
		return Entry{}, answer{verdict: failed, problem: problem}
	}
	defer done()
	tree, err := copyTree(d.h, source.path, j.work)
	if err != nil {
		return Entry{}, answer{verdict: failed, problem: problemAs(err, accel.SourceMissing, "cannot copy the source %q", source.path)}
	}
	id := Identity{
		Kind: def.Kind, Version: def.Driver.Version, SourceDigest: tree, Arch: facts.Kernel.Arch,
		KernelRelease: facts.Kernel.Release, KernelID: kernelID(facts.Kernel), Make: source.make,
	}
	release, problem := d.lockKey(ctx, id.key())
	if problem != nil {
		return Entry{}, answer{verdict: failed, problem: problem}
	}
	defer release()
	if m, err := d.manifest(id.key()); err == nil {
		return Entry{Manifest: m, Path: d.entryDir(id.key())}, answer{verdict: satisfied}
	}
	if j.headers, problem = d.headers(facts); problem != nil {
		return Entry{}, answer{verdict: unavailable, problem: problem}
	}
	if j.make, j.extra, problem = d.compiler(facts, j.headers); problem != nil {
		return Entry{}, answer{verdict: unavailable, problem: problem}
	}
	m, problem := d.compile(ctx, j, id)
	if problem != nil {
		d.keepLog(j, id.key(), problem)
		return Entry{}, answer{verdict: failed, problem: problem}
	}
	return Entry{Manifest: m, Path: d.entryDir(m.Key)}, answer{verdict: satisfied}
}

// problemAs is problemOf with a reason for errors without a telling errno.
func problemAs(err error, otherwise accel.Reason, format string, args ...any) *accel.Problem {
	p := problemOf(err, format, args...)
	if p.Reason == accel.InternalError {
		p.Reason = otherwise
	}
	return p
}

// openJob makes the job's directories. Done removes them; a crash leaves that to the next [New], which takes the lock
// beside the directory.
func (d *Driver) openJob(j *job) (done func(), problem *accel.Problem) {
	for _, dir := range []string{d.storeDir(), d.buildDir()} {
		if err := d.h.MkdirAll(dir, 0o700); err != nil {
			return nil, problemOf(err, "cannot make %q", dir)
		}
	}
	dir, err := d.h.MakeTemp(d.buildDir(), "")
	if err != nil {
		return nil, problemOf(err, "cannot make a directory in %q", d.buildDir())
	}
	release, err := d.h.TryLock(dir+".lock", lockText(d.h))
	if err != nil {
		return nil, problemOf(err, "cannot lock %q", dir)
	}
	j.dir, j.work, j.entry = dir, path.Join(dir, "work"), path.Join(dir, "entry")
	done = func() {
		if err := errors.Join(d.h.RemoveAll(dir), d.h.Remove(dir+".lock")); err != nil {
			d.log.Warn("cannot remove a build", "directory", dir, "error", err)
		}
		release()
	}
	for _, sub := range []string{j.work, j.entry, path.Join(dir, "tmp")} {
		if err := d.h.MkdirAll(sub, 0o700); err != nil {
			done()
			return nil, problemOf(err, "cannot make %q", sub)
		}
	}
	return done, nil
}

// lockKey makes this the only builder of a key on the host.
func (d *Driver) lockKey(ctx context.Context, key string) (release func(), problem *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, d.o.BuildTimeout)
	defer cancel()
	name := path.Join(d.storeDir(), "lock", key)
	if err := d.h.MkdirAll(path.Dir(name), 0o700); err != nil {
		return nil, problemOf(err, "cannot make %q", path.Dir(name))
	}
	release, err := d.h.Lock(ctx, name, lockText(d.h))
	if err != nil {
		return nil, problemAs(err, accel.BuildTimeout, "another build of %q has not ended", key)
	}
	return release, nil
}

// compile runs make and publishes what came out.
func (d *Driver) compile(ctx context.Context, j *job, id Identity) (Manifest, *accel.Problem) {
	name := path.Join(j.entry, "build.log")
	log, err := d.h.Create(name, 0o600)
	if err != nil {
		return Manifest{}, problemOf(err, "cannot make %q", name)
	}
	defer log.Close()
	start := time.Now()
	d.log.Info("driver build started", "kind", j.def.Kind, "source", j.source.path, "headers", j.headers, "key", id.key())
	if problem := d.runMake(ctx, j, log); problem != nil {
		return Manifest{}, problem
	}
	m := Manifest{Schema: storeSchema, Identity: id, Built: d.o.Now().UTC()}
	for _, want := range j.def.Driver.Modules {
		s, problem := d.harvest(ctx, j, want)
		if problem != nil {
			if want.Optional {
				d.log.Warn("an optional module is left out", "kind", j.def.Kind, "module", want.Name, "problem", problem)
				continue
			}
			return Manifest{}, problem
		}
		m.Modules = append(m.Modules, s)
	}
	if len(m.Modules) == 0 {
		return Manifest{}, accel.Problemf(accel.BuildFailed, "the build of %q made no module", j.def.Kind)
	}
	m.Key = id.key()
	b, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = d.h.WriteFile(path.Join(j.entry, "manifest.json"), append(b, '\n'), 0o600)
	}
	if err == nil {
		err = errors.Join(log.Sync(), d.publish(j.entry, m.Key))
	}
	if err != nil {
		return Manifest{}, problemOf(err, "cannot put the build of %q into the store", j.def.Kind)
	}
	if err := d.h.Remove(d.failedLog(m.Key)); err != nil {
		d.log.Warn("cannot remove the log of an earlier build", "error", err)
	}
	d.log.Info("driver built", "kind", j.def.Kind, "key", m.Key, "took", time.Since(start).Round(time.Millisecond))
	return m, nil
}

// makeArguments are the arguments of make. Paths and builder are fixed so that equal sources give equal bytes on every
// host of a fleet.
func (d *Driver) makeArguments(j *job) []string {
	flags := "-ffile-prefix-map=" + j.work + "=."
	var rest []string
	for _, a := range slices.Concat(j.extra, j.source.make) {
		if more, ok := strings.CutPrefix(a, "KCFLAGS="); ok {
			flags += " " + more
			continue
		}
		rest = append(rest, a)
	}
	args := []string{
		"-C", j.headers, "M=" + j.work, fmt.Sprintf("-j%d", d.o.Jobs), "KCFLAGS=" + flags,
		"KBUILD_BUILD_USER=acceld", "KBUILD_BUILD_HOST=acceld", "KBUILD_BUILD_TIMESTAMP=1970-01-01 00:00:00 +0000",
	}
	return append(append(args, rest...), "modules")
}

// runMake runs the build: no shell, no network, the lowest priority, its process group killed when its time is over.
func (d *Driver) runMake(ctx context.Context, j *job, log io.Writer) *accel.Problem {
	limited, cancel := context.WithTimeout(ctx, d.o.BuildTimeout)
	defer cancel()
	words := newDiagnosis(log, j.work, func(line string) { d.o.Progress(j.def.Kind, line) })
	cmd, err := d.h.StartQuietly(func() *exec.Cmd {
		cmd := d.h.Command(limited, j.make, d.makeArguments(j)...)
		cmd.Env = append(cmd.Env, "TMPDIR="+path.Join(j.dir, "tmp"), "HOME="+path.Join(j.dir, "tmp"))
		cmd.Stdout, cmd.Stderr = words, words
		cmd.WaitDelay = 5 * time.Second // for what a killed compiler leaves in the pipe
		return cmd
	})
	if errors.Is(err, fs.ErrNotExist) {
		return accel.Problemf(accel.CompilerMissing, "cannot build the driver of %q: %v", j.def.Kind, err)
	}
	if err != nil {
		return problemOf(err, "cannot build the driver of %q", j.def.Kind)
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return accel.Problemf(accel.BuildTimeout, "the build of %q was called off: %v", j.def.Kind, ctx.Err())
	case limited.Err() != nil:
		return accel.Problemf(accel.BuildTimeout, "the build of %q did not end within %v", j.def.Kind, d.o.BuildTimeout)
	case err != nil:
		return words.problem(err)
	case words.err != nil:
		return problemOf(words.err, "cannot write the build log of %q", j.def.Kind)
	}
	return nil
}

// harvest strips one module of debug information, which leaves its build-id, judges it and copies it into the entry.
func (d *Driver) harvest(ctx context.Context, j *job, want accel.Module) (StoredModule, *accel.Problem) {
	built, ok := d.findModule(j.work, want.Name, 0)
	if !ok {
		return StoredModule{}, accel.Problemf(accel.BuildFailed, "the build of %q made no module %q", j.def.Kind, want.Name)
	}
	if strip, err := d.h.LookPath("strip"); err == nil {
		if out, err := d.h.Command(ctx, strip, "-g", built).CombinedOutput(); err != nil {
			d.log.Warn("cannot strip a module", "module", want.Name, "error", err, "output", string(out))
		}
	}
	m, problem := openImage(d.h, built)
	if problem != nil {
		return StoredModule{}, problem
	}
	defer m.close()
	if p := checkVermagic(m, j.facts.Kernel, j.index.flags()); p != nil {
		p.Message = fmt.Sprintf("the headers in %q are not of the running kernel: %s", j.headers, p.Message)
		return StoredModule{}, p
	}
	if v := j.def.Driver.Version; v != "" && m.version != "" && m.version != v {
		return StoredModule{}, accel.Problemf(accel.SourceMissing, "the source in %q is of version %q, wanted is %q", j.source.path, m.version, v)
	}
	s := StoredModule{Name: normal(want.Name), File: path.Base(built), BuildID: m.buildID, SrcVersion: m.srcVersion, Vermagic: m.vermagic, Depends: m.depends, Version: m.version}
	if s.SHA256, problem = d.store(m.file, path.Join(j.entry, s.File)); problem != nil {
		return StoredModule{}, problem
	}
	return s, nil
}

// store copies an open file to name, on the disk when it returns, and returns its digest.
func (d *Driver) store(from *os.File, name string) (string, *accel.Problem) {
	to, err := d.h.Create(name, 0o600)
	if err != nil {
		return "", problemOf(err, "cannot make %q", name)
	}
	_, err = from.Seek(0, io.SeekStart)
	sum := ""
	if err == nil {
		sum, err = digest(io.TeeReader(from, to))
	}
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return "", problemOf(err, "cannot write %q", name)
	}
	return sum, nil
}

// findModule finds the file of a module below dir.
func (d *Driver) findModule(dir, name string, depth int) (string, bool) {
	const deepest = 16
	entries, err := d.h.ReadDir(dir)
	if err != nil || depth > deepest {
		return "", false
	}
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".ko"); ok && e.Type().IsRegular() && normal(base) == normal(name) {
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
	to := d.failedLog(key)
	if err := errors.Join(d.h.MkdirAll(path.Dir(to), 0o700), d.h.Rename(path.Join(j.entry, "build.log"), to)); err != nil {
		if !errors.Is(err, syscall.ENOENT) {
			d.log.Warn("cannot keep a build log", "kind", j.def.Kind, "error", err)
		}
		return
	}
	problem.Message += "; log: " + to
}
