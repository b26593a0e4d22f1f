package build

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

// User ids that nobody has: systemd's documentation of user ids leaves 1879048192 to 2147483647 unused. Each job has
// its own, so that no other unprivileged process can change what root will load.
const (
	firstUser = 1879048192
	users     = 1 << 27
)

// openScope opens the scope in which a job's programs run. It gives the job's files to an unprivileged user if that
// user can do the work; otherwise the error says why it cannot, and the programs run as the agent's user.
func (b *Builder) openScope(ctx context.Context, j *job) (done func(), cannot error) {
	scope, err := b.h.Programs().OpenScope(ctx, host.ScopeOptions{
		Name:        "acceld-build-" + path.Base(j.Dir),
		Description: "acceld: build of the driver of " + j.def.Kind,
		CPUWeight:   b.o.CPUWeight, MemoryBytes: b.o.Memory,
	})
	if err != nil {
		b.log.Debug("a build is less limited than it could be", "kind", j.def.Kind, "limits", scope.Limits(), "error",
			err)
	}
	j.scope = scope
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, j.Dir) // a hash never fails
	user := firstUser + int(sum.Sum32()%users)
	if cannot = b.hand(j, user); cannot != nil {
		b.log.Debug("a build has no user of its own", "kind", j.def.Kind, "error", cannot)
	} else if cannot = b.tryUser(ctx, j, user); cannot != nil {
		b.log.Info("a build has no user of its own: that cannot read what it needs", "kind", j.def.Kind, "headers",
			j.headers, "error", cannot)
		j.user = 0
	}
	return func() {
		if err := scope.Close(); err != nil {
			b.log.Warn("cannot end the scope of a build", "kind", j.def.Kind, "error", err)
		}
	}, cannot
}

// hand gives the files of a job to the user and makes their parent directories passable. The store next to them stays
// closed.
func (b *Builder) hand(j *job, user int) error {
	for _, dir := range []string{path.Dir(b.store.BuildDir()), b.store.BuildDir(), j.Dir} {
		const pass = 0o011
		st, err := b.h.Stat(dir)
		if err != nil {
			return err
		}
		if mode := st.Mode().Perm(); mode&pass != pass {
			if err := b.h.Chmod(dir, mode|pass); err != nil {
				return err
			}
		}
	}
	return errors.Join(b.h.Give(j.Work, user), b.h.Chmod(j.Work, 0o700), b.h.Give(path.Join(j.Dir, "tmp"), user))
}

// tryUser checks, as the user, that it can read the headers and write its files.
func (b *Builder) tryUser(ctx context.Context, j *job, user int) error {
	shell, err := j.tools.find("sh")
	if err != nil {
		return err
	}
	const look = `[ -w "$1" ] && [ -w "$TMPDIR" ] && [ -r "$2/Makefile" ]`
	j.user = user
	return j.inScope(ctx, command{path: shell, args: []string{"-c", look, "sh", j.Work, j.headers}}, io.Discard)
}

// inScope runs one program of a job.
func (j *job) inScope(ctx context.Context, c command, output io.Writer) error {
	return j.scope.Run(ctx, host.Program{
		Path: c.path, Args: c.args, Env: slices.Concat(j.environment(), c.env), Dir: j.Work, User: j.user,
		Output: output, Root: j.root,
	})
}

// runCommands runs the programs of a build: without network, with the lowest priority, and all of them end with its
// timeout.
func (b *Builder) runCommands(ctx context.Context, j *job, log io.Writer) (problem *accel.Problem) {
	commands, problem := b.commands(j)
	if problem != nil {
		return problem
	}
	limited, cancel := context.WithTimeout(ctx, b.o.Timeout)
	defer cancel()
	j.steps = len(commands) + 2 // plus copying the source before them and harvesting the modules after them
	expected := b.store.ExpectedSteps(j.def.Kind)
	at := b.tell.Begin(accel.Progress{
		Kind: j.def.Kind, Stage: accel.StageBuild, Step: 2, Steps: j.steps,
		Total: expected, Guessed: expected > 0,
	})
	defer func() { at.End(problem) }()
	words := newDiagnosis(log, j.Work, func(done int, command string) {
		if int64(done) > at.Total {
			at.Total, at.Guessed = 0, false // the estimate was too low
		}
		at.At(done, command)
	})
	for i, c := range commands {
		at.Step = i + 2
		at.At(words.counted, c.name)
		err := j.inScope(limited, c, words)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return accel.Problemf(accel.BuildTimeout, "the build of %q was called off: %v", j.def.Kind, ctx.Err())
		case limited.Err() != nil:
			return accel.Problemf(accel.BuildTimeout, "the build of %q did not end within %v", j.def.Kind, b.o.Timeout)
		case errors.Is(err, fs.ErrNotExist):
			return accel.Problemf(accel.CompilerMissing, "cannot build the driver of %q: %v", j.def.Kind, err)
		case err != nil && j.scope.OutOfMemory():
			return accel.Problemf(accel.BuildOutOfMemory, "the build of %q used more than its %d MiB of memory",
				j.def.Kind, b.o.Memory>>20)
		case errors.As(err, &exit):
			return words.problem(c.name, err)
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
