package driver

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/guard"
)

// Prove runs the definition's self-test on every present and healthy accelerator, all at once, and returns one
// sentence for people. A definition without a self-test proves nothing, and the sentence says so.
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
	var all guard.Group
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

// proveOne runs the self-test on one device.
func (d *Driver) proveOne(ctx context.Context, def *accel.Definition, id string) *accel.Problem {
	c := def.Check
	name := path.Join(devices.Dir(id), c.File)
	got := make(chan string, 1)
	err := d.operations.Do(ctx, "check "+id, func() error {
		if c.Write != "" {
			if err := d.h.WriteAttribute(name, c.Write); err != nil {
				return err
			}
		}
		text, err := d.h.ReadAttribute(name)
		got <- text
		return err
	})
	if err != nil {
		return accel.Problemf(accel.CheckFailed, "device %q was asked %q through %q: %v", id, c.Write, c.File, err)
	}
	if text := <-got; text != c.Want {
		return accel.Problemf(accel.CheckFailed, "device %q was asked %q through %q and gave %q instead of %q", id,
			c.Write, c.File, text, c.Want)
	}
	return nil
}
