package build

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// findImage finds out which builder image a job has. Without headers none is of use, so they are looked for first.
func (b *Builder) findImage(ctx context.Context, j *job, s accel.Source) (outcome Outcome, problem *accel.Problem) {
	if _, _, problem = b.findHeaders(j); problem != nil {
		return Unavailable, problem
	}
	if j.image, problem = b.o.Images.Find(ctx, j.def, j.facts, s); problem != nil {
		return withoutImage(problem), problem
	}
	return "", nil
}

// withoutImage is the outcome of a build whose image cannot be had.
func withoutImage(p *accel.Problem) Outcome {
	switch p.Reason {
	case accel.ArtifactNotFound, accel.RegistryUnreachable, accel.RegistryDenied, accel.ArchMismatch,
		accel.CompilerMissing, accel.CompilerMismatch:
		return Unavailable
	case accel.NoSpace, accel.ReadOnly, accel.PermissionDenied, accel.InternalError, accel.BuildTimeout,
		accel.BuildFailed:
		return Failed
	}
	return Refused
}

// enter opens the scope of a job, in its builder image if it has one. Done closes it, even after a problem.
func (b *Builder) enter(ctx context.Context, j *job, s accel.Source) (done func(), outcome Outcome,
	problem *accel.Problem,
) {
	if j.image.Digest == "" {
		done, _ = b.openScope(ctx, j) // which says in the log what is less limited
		return done, "", nil
	}
	done = func() {}
	dir, problem := b.o.Images.Open(ctx, j.def, j.facts, s, j.image, j.Workspace)
	if problem == nil {
		problem = b.useImage(j, dir)
	}
	if problem != nil {
		return done, withoutImage(problem), problem
	}
	if _, err := j.tools.find("sh"); err != nil { // make needs it, too
		return done, Unavailable, j.tools.lacks("sh", "")
	}
	done, err := b.openScope(ctx, j)
	if err != nil {
		problem = accel.Problemf(accel.BuildFailed, "cannot build the driver of %q in the builder image %q: %v", j.def.Kind,
			j.image.Name, err)
	} else {
		j.make, j.extra, problem = j.tools.compiler(ctx, j.facts, j.config, s.AnyCompiler)
	}
	if problem != nil {
		outcome = withoutImage(problem)
	}
	return done, outcome, problem
}

// useImage makes the file system in dir that of a job's programs.
func (b *Builder) useImage(j *job, dir string) *accel.Problem {
	scratch := path.Join(j.Dir, "root")
	err := b.h.MkdirAll(scratch, 0o700)
	in := ""
	if err == nil {
		in, err = b.h.Path(dir)
	}
	if err == nil {
		j.tools.h, err = host.New(in)
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot use the builder image %q", j.image.Name)
	}
	j.root = &host.Root{Image: dir, Scratch: scratch, Binds: b.binds(j)}
	if j.headersIn != b.h {
		links, err := b.linkHeaders(j)
		if err != nil {
			return accel.ProblemOf(err, "cannot link to the headers")
		}
		j.root.Binds = append(j.root.Binds, links)
	}
	j.tools.image, j.tools.output = j.image.Name, j.output
	return nil
}

// output runs a program of an image, which is somebody else's, and returns the beginning of what it says.
func (j *job) output(ctx context.Context, program string, args ...string) (string, error) {
	const longest, timeout = 4096, time.Minute
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := &beginning{room: longest}
	err := j.inScope(ctx, command{path: program, args: args}, out)
	return out.text.String(), err
}

// beginning keeps as many bytes as it has room for.
type beginning struct {
	text strings.Builder
	room int
}

func (b *beginning) Write(p []byte) (int, error) {
	kept := p[:min(len(p), b.room-b.text.Len())]
	b.text.Write(kept)
	return len(p), nil
}

// binds are the parts of the machine that a build in an image needs: the kernel's headers with all that they link to
// and include, the source, and the job's own directories, which alone it may write to.
func (b *Builder) binds(j *job) []host.Bind {
	tmp := path.Join(j.Dir, "tmp")
	out := []host.Bind{{From: tmp, To: "/tmp", Write: true}, {From: tmp, To: "/var/tmp", Write: true}}
	add := func(name string, least int) {
		real, err := b.h.Follow(name)
		if st, err2 := b.h.Stat(name); errors.Join(err, err2) != nil || !st.IsDir() || depth(real) < least {
			return
		}
		for _, to := range slices.Compact([]string{name, real}) {
			if !bound(out, to) {
				out = append(out, host.Bind{From: real, To: to})
			}
		}
	}
	if j.headersIn == b.h {
		const ofPackage = 3 // directories on the way to one of a package, such as /usr/lib/linux-kbuild-6.1
		add("/usr/src", 2)
		add("/lib/modules/"+j.facts.Kernel.Release, ofPackage)
		add(j.headers, 1)
		for _, dir := range b.headerLinks(j.headers) {
			add(dir, ofPackage)
		}
	} else { // nothing of the machine may cover what packages brought
		for _, n := range j.needs {
			out = append(out, n.binds()...)
		}
	}
	add(j.source.Path, 2)
	return append(out, host.Bind{From: tmp, To: tmp, Write: true}, host.Bind{From: j.Work, To: j.Work, Write: true})
}

// depth counts the elements of a path.
func depth(name string) int { return strings.Count(path.Clean(name), "/") }

// bound reports whether a path is below one that is bound under its own name.
func bound(all []host.Bind, name string) bool {
	return slices.ContainsFunc(all, func(b host.Bind) bool {
		return b.To == name || b.From == b.To && strings.HasPrefix(name, b.To+"/")
	})
}

// headerLinks returns the directories that the headers link to, and those of the files that they include.
func (b *Builder) headerLinks(headers string) (out []string) {
	dirs := []string{headers}
	for _, file := range b.included(headers) {
		dirs = append(dirs, path.Dir(file))
	}
	for _, dir := range dirs {
		out = append(out, dir)
		entries, err := b.h.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.Type() != fs.ModeSymlink {
				continue
			}
			if to, err := b.h.Follow(path.Join(dir, e.Name())); err == nil {
				out = append(out, to)
			}
		}
	}
	return out
}
