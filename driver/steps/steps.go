package steps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/guard"
)

// stepTimeout is the timeout of a step that does not set one.
const stepTimeout = "30s"

// Run runs the definition's own steps for one published state and moment, in order, until one fails. The problem
// StepFailed then names the step, the cause and the end of its output. Without such steps Run does nothing.
func (r *Steps) Run(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	state accel.Published, moment accel.Moment,
) *accel.Problem {
	if len(def.StepsAt(state, moment)) == 0 {
		return nil
	}
	expanded, problem := template.Expand(def, facts)
	if problem != nil {
		return problem
	}
	asked := def.StepsAt(state, moment)
	for i, s := range expanded.StepsAt(state, moment) {
		if asked[i].When != "" && !holds(s.When) {
			continue
		}
		started := time.Now()
		if err := r.runStep(ctx, expanded, s, accs); err != nil {
			return accel.Problemf(accel.StepFailed, "step %q %s %s of %q: %v", s.Name, moment, state, def.Kind, err)
		}
		r.log.Info("step done", "kind", def.Kind, "state", state, "moment", moment, "step", s.Name, "took",
			time.Since(started).Round(time.Millisecond))
	}
	return nil
}

// holds reports whether a filled condition is true: it is none of the values for no.
func holds(when string) bool {
	return !slices.Contains([]string{"", "false", "0", "no"}, strings.TrimSpace(when))
}

// runStep runs one step within its timeout. Whatever the step has begun ends with its context.
func (r *Steps) runStep(ctx context.Context, def *accel.Definition, s accel.CustomStep,
	accs []accel.Accelerator,
) error {
	limit, err := time.ParseDuration(cmp.Or(s.Timeout, stepTimeout))
	if err != nil {
		return fmt.Errorf("timeout: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = r.stepForm(limited, def, s, accs)
	if err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not done after %v: %w", limit, err)
	}
	return err
}

func (r *Steps) stepForm(ctx context.Context, def *accel.Definition, s accel.CustomStep,
	accs []accel.Accelerator,
) error {
	switch {
	case s.Run != nil:
		_, err := r.runProgram(ctx, s.Run.Argv, s.Run.User)
		return err
	case s.Wait != nil:
		return r.waitFor(ctx, *s.Wait)
	case s.WaitForLogs != nil:
		return r.waitForLogs(ctx, *s.WaitForLogs)
	case s.Validate != nil:
		return r.validate(ctx, def, *s.Validate, accs)
	}
	return errors.New("it says nothing to do")
}

// runProgram runs a program of the host to completion and returns its output.
func (r *Steps) runProgram(ctx context.Context, argv []string, user string) (*output, error) {
	cmd, err := r.program(ctx, argv, user)
	if err != nil {
		return nil, err
	}
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // background processes that it leaves may keep its output open
	err = cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return &out, nil
	}
	if text := out.String(); text != "" {
		return nil, fmt.Errorf("%q: %w; it said: %s", argv[0], err, text)
	}
	return nil, fmt.Errorf("%q: %w", argv[0], err)
}

// Exec runs a program of the host to completion. The error has the end of what it said.
func (r *Steps) Exec(ctx context.Context, argv []string) error {
	_, err := r.runProgram(ctx, argv, "")
	return err
}

// program prepares a program of the host, without a shell.
func (r *Steps) program(ctx context.Context, argv []string, user string) (*exec.Cmd, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("no program is named")
	}
	name := argv[0]
	if !strings.Contains(name, "/") {
		var err error
		if name, err = r.h.Programs().LookPath(name); err != nil {
			return nil, err
		}
	}
	cmd := r.h.Programs().Command(ctx, name, argv[1:]...)
	if user != "" {
		if err := r.h.Programs().AsUser(cmd, user); err != nil {
			return nil, err
		}
	}
	return cmd, nil
}

// validate compares a result with the expected one.
func (r *Steps) validate(ctx context.Context, def *accel.Definition, v accel.ValidateStep,
	accs []accel.Accelerator,
) error {
	if len(v.Argv) > 0 {
		return r.validateOutput(ctx, v, accs)
	}
	want, err := regexp.Compile(`^(?:` + v.Want + `)$`)
	if err != nil {
		return fmt.Errorf("want: %w", err)
	}
	for _, a := range accs {
		if !a.Present() {
			continue
		}
		var text string
		err := r.operations.Do(ctx, "validate "+a.ID, func() (err error) {
			text, err = r.h.Devices().Of(def).Attribute(a.ID, v.File)
			return err
		})
		if err != nil {
			return fmt.Errorf("device %q: %w", a.ID, err)
		}
		if !want.MatchString(text) {
			return fmt.Errorf("device %q: %q is %q, wanted is %q", a.ID, v.File, text, v.Want)
		}
	}
	return nil
}

// validateOutput runs a program and looks at what it prints. If its arguments name a device, it runs once for each
// device that is present, all at once: what works with one device says nothing about the others.
func (r *Steps) validateOutput(ctx context.Context, v accel.ValidateStep, accs []accel.Accelerator) error {
	want, err := regexp.Compile(v.Output)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if !slices.ContainsFunc(v.Argv, func(arg string) bool { return strings.Contains(arg, accel.AddressTemplate) }) {
		return r.prints(ctx, v.Argv, v.User, want)
	}
	errs := make([]error, len(accs))
	var all guard.Group
	for i, a := range accs {
		if !a.Present() {
			continue
		}
		var argv []string
		for _, arg := range v.Argv {
			argv = append(argv, accel.DeviceText(arg, a.ID, -1))
		}
		all.Go(func() {
			if err := r.prints(ctx, argv, v.User, want); err != nil {
				errs[i] = fmt.Errorf("device %q: %w", a.ID, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// prints runs a program, which must print what matches.
func (r *Steps) prints(ctx context.Context, argv []string, user string, want *regexp.Regexp) error {
	out, err := r.runProgram(ctx, argv, user)
	if err != nil {
		return err
	}
	if !want.Match(bytes.TrimSpace(out.text)) {
		return fmt.Errorf("%q printed nothing that matches %q: %s", argv[0], want, out)
	}
	return nil
}

// outputSize is how many bytes of a program's output are compared with what is expected: a program that prints without
// end must not fill the agent's memory.
const outputSize = 1 << 20

// output is what a program printed: text is its beginning, and the tail is for messages.
type output struct {
	text []byte
	tail
}

func (o *output) Write(b []byte) (int, error) {
	o.text = append(o.text, b[:min(len(b), outputSize-len(o.text))]...)
	return o.tail.Write(b)
}

// tail keeps the end of what is written to it, as one line.
type tail struct{ b []byte }

// tailSize is how many bytes of a program's output an error message can hold.
const tailSize = 1000

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if extra := len(t.b) - tailSize; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(t.b), ""), func(r rune) bool { return r < ' ' }),
		" | ")
}
