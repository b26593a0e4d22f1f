package driver

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Users that nobody has: systemd's documentation of user ids leaves 1879048192 to 2147483647 unused. A job has one of its
// own, so that no other process without rights can change what root will load.
const (
	firstUser = 1879048192
	users     = 1 << 27
)

// openScope opens where the programs of a job run, and gives its files to a user without rights where that user can do
// the work.
func (d *Driver) openScope(ctx context.Context, j *job) (done func()) {
	scope, err := d.h.OpenScope(ctx, host.ScopeOptions{
		Name:        "acceld-build-" + path.Base(j.Dir),
		Description: "acceld: build of the driver of " + j.def.Kind,
		CPUWeight:   d.o.CPUWeight, MemoryBytes: d.o.BuildMemory,
	})
	if err != nil {
		d.log.Debug("a build is less limited than it could be", "kind", j.def.Kind, "limits", scope.Limits(), "error", err)
	}
	j.scope = scope
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, j.Dir) // it never fails
	user := firstUser + int(sum.Sum32()%users)
	if err := d.give(j, user); err != nil {
		d.log.Debug("a build keeps the agent's user", "kind", j.def.Kind, "error", err)
	} else if err := d.tryUser(ctx, j, user); err != nil {
		d.log.Info("a build keeps the agent's user: another cannot read what it needs", "kind", j.def.Kind, "headers", j.headers, "error", err)
	} else {
		j.user = user
	}
	return func() {
		if err := scope.Close(); err != nil {
			d.log.Warn("cannot end the scope of a build", "kind", j.def.Kind, "error", err)
		}
	}
}

// give makes the files of a job the user's, and the way to them passable. The store beside them is not.
func (d *Driver) give(j *job, user int) error {
	for _, dir := range []string{d.o.StateDir, d.store.BuildDir(), j.Dir} {
		const pass = 0o011
		st, err := d.h.Stat(dir)
		if err != nil {
			return err
		}
		if mode := st.Mode().Perm(); mode&pass != pass {
			if err := d.h.Chmod(dir, mode|pass); err != nil {
				return err
			}
		}
	}
	return errors.Join(d.h.Give(j.Work, user), d.h.Chmod(j.Work, 0o700), d.h.Give(path.Join(j.Dir, "tmp"), user))
}

// tryUser lets the user look whether it can read the headers and write its files.
func (d *Driver) tryUser(ctx context.Context, j *job, user int) error {
	shell, err := d.h.LookPath("sh")
	if err != nil {
		return err
	}
	const look = `[ -w "$1" ] && [ -w "$TMPDIR" ] && [ -r "$2/Makefile" ]`
	return j.scope.Run(ctx, host.Program{
		Path: shell, Args: []string{"-c", look, "sh", j.Work, j.headers}, Env: j.environment(), Dir: j.Work, User: user, Output: io.Discard,
	})
}

// inScope runs one program of a job.
func (d *Driver) inScope(ctx context.Context, j *job, s step, output io.Writer) error {
	return j.scope.Run(ctx, host.Program{
		Path: s.path, Args: s.args, Env: slices.Concat(j.environment(), s.env), Dir: j.Work, User: j.user, Output: output,
	})
}

// runSteps builds: no network, the lowest priority, and nothing of it is left when its time is over.
func (d *Driver) runSteps(ctx context.Context, j *job, log io.Writer) (problem *accel.Problem) {
	steps, problem := d.steps(j)
	if problem != nil {
		return problem
	}
	limited, cancel := context.WithTimeout(ctx, d.o.BuildTimeout)
	defer cancel()
	j.steps = len(steps) + 2 // copying the source comes before them, and harvesting the modules after
	expected := d.store.ExpectedSteps(j.def.Kind)
	at := d.tell.Begin(accel.Progress{Kind: j.def.Kind, Stage: accel.StageBuild, Step: 2, Steps: j.steps, Total: expected, Guessed: expected > 0})
	defer func() { at.End(problem) }()
	words := newDiagnosis(log, j.Work, func(done int, command string) {
		if int64(done) > at.Total {
			at.Total, at.Guessed = 0, false // nobody knows any more
		}
		at.At(done, command)
	})
	for i, s := range steps {
		at.Step = i + 2
		at.At(words.counted, s.name)
		err := d.inScope(limited, j, s, words)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return accel.Problemf(accel.BuildTimeout, "the build of %q was called off: %v", j.def.Kind, ctx.Err())
		case limited.Err() != nil:
			return accel.Problemf(accel.BuildTimeout, "the build of %q did not end within %v", j.def.Kind, d.o.BuildTimeout)
		case errors.Is(err, fs.ErrNotExist):
			return accel.Problemf(accel.CompilerMissing, "cannot build the driver of %q: %v", j.def.Kind, err)
		case err != nil && j.scope.OutOfMemory():
			return accel.Problemf(accel.BuildOutOfMemory, "the build of %q used more than its %d MiB of memory", j.def.Kind, d.o.BuildMemory>>20)
		case errors.As(err, &exit):
			return words.problem(s.name, err)
		case err != nil:
			return accel.ProblemOf(err, "cannot build the driver of %q", j.def.Kind)
		case words.err != nil:
			return accel.ProblemOf(words.err, "cannot write the build log of %q", j.def.Kind)
		}
	}
	j.counted = words.counted
	at.Total, at.Guessed = at.Done, false
	return nil
}
