package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// errNoAnswer is the outcome of an operation that a device did not end in its time.
var errNoAnswer = errors.New("it did not answer")

// Prove runs the definition's check on every accelerator that is present and healthy, all at once, and returns one
// sentence for people. A definition without a check proves nothing and says so.
func (d *Driver) Prove(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) (string, *accel.Problem) {
	if def.Check == nil {
		return "the definition has no check", nil
	}
	var ids []string
	for _, a := range accs {
		if a.Health.Usable() || a.Health.State == "" {
			ids = append(ids, a.ID)
		}
	}
	if len(ids) == 0 {
		return "", accel.Problemf(accel.DeviceUnhealthy, "no accelerator of %q is healthy", def.Kind)
	}
	problems := make([]*accel.Problem, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { problems[i] = d.proveOne(ctx, def, id) })
	}
	all.Wait()
	var messages []string
	for _, p := range problems {
		if p != nil {
			messages = append(messages, p.Message)
		}
	}
	if len(messages) > 0 {
		return "", accel.Problemf(accel.CheckFailed, "%s", strings.Join(messages, "; "))
	}
	if def.Check.Sentence != "" {
		return def.Check.Sentence, nil
	}
	return fmt.Sprintf("%q gave %q for %q", def.Check.File, def.Check.Want, def.Check.Write), nil
}

// proveOne makes one device compute.
func (d *Driver) proveOne(ctx context.Context, def *accel.Definition, id string) *accel.Problem {
	c := def.Check
	name := path.Join(functionDir(id), c.File)
	got := make(chan string, 1)
	err := d.within(ctx, "check "+id, func() error {
		if c.Write != "" {
			if err := d.h.WriteAttribute(name, c.Write); err != nil {
				return err
			}
		}
		text, err := d.h.ReadString(name)
		got <- text
		return err
	})
	if err != nil {
		return accel.Problemf(accel.CheckFailed, "device %q was asked %q through %q: %v", id, c.Write, c.File, err)
	}
	if text := <-got; text != c.Want {
		return accel.Problemf(accel.CheckFailed, "device %q was asked %q through %q and gave %q instead of %q", id, c.Write, c.File, text, c.Want)
	}
	return nil
}

// within runs an operation on a device that may hang in the kernel, where nothing can call it off: it is left there,
// and the same operation is not started again before it comes back.
func (d *Driver) within(ctx context.Context, name string, do func() error) error {
	return d.withinTime(ctx, deviceDeadline, name, do)
}

// withinTime is within with a deadline of its own.
func (d *Driver) withinTime(ctx context.Context, deadline time.Duration, name string, do func() error) error {
	d.mu.Lock()
	done, hangs := d.asked[name]
	if !hangs {
		done = make(chan error, 1)
		d.asked[name] = done
	}
	d.mu.Unlock()
	if hangs && len(done) == 0 {
		return fmt.Errorf("%w in time, and still does not", errNoAnswer)
	}
	if hangs { // it came back meanwhile: its answer is for a question of the past
		d.answered(name)
		return d.withinTime(ctx, deadline, name, do)
	}
	go func() { done <- do() }()
	limit := time.NewTimer(deadline)
	defer limit.Stop()
	select {
	case err := <-done:
		d.answered(name)
		return err
	case <-limit.C:
		return fmt.Errorf("%w within %v", errNoAnswer, deadline)
	case <-ctx.Done():
		return errors.Join(errors.New("called off"), ctx.Err())
	}
}

func (d *Driver) answered(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.asked, name)
}
