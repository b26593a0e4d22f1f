package driver

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/proof"
	"github.com/acceld/acceld/guard"
)

// Prove runs the definition's self-test on every present and healthy accelerator, all at once. A definition without a
// self-test proves nothing, and there is no sentence.
func (d *Driver) Prove(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) (accel.Proof,
	*accel.Problem,
) {
	if def.Check == nil {
		return accel.Proof{}, nil
	}
	var usable []accel.Accelerator
	for _, a := range accs {
		if a.Health.Usable() || a.Health.State == "" {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return accel.Proof{}, accel.Problemf(accel.DeviceUnhealthy, "no accelerator of %q is healthy", def.Kind)
	}
	var each func(int) proof.Outcome
	if def.Check.Program != nil {
		about := toProve(d.devices, def, usable, d.halves.libraries(def))
		each = func(i int) proof.Outcome { return d.prover.Prove(ctx, def.Check.Program, about[i]) }
	} else {
		each = func(i int) proof.Outcome { return proof.Outcome{Problem: d.askAttribute(ctx, def.Check, usable[i].ID)} }
	}
	ids, outcomes := make([]string, len(usable)), make([]proof.Outcome, len(usable))
	var all guard.Group
	for i, a := range usable {
		ids[i] = a.ID
		all.Go(func() { outcomes[i] = each(i) })
	}
	all.Wait()
	return together(def.Check, ids, outcomes)
}

// together is the outcome for all devices. The self-test of one that failed decides before one that did not run.
func together(c *accel.Check, ids []string, outcomes []proof.Outcome) (accel.Proof, *accel.Problem) {
	out := accel.Proof{Skipped: map[string]string{}}
	var failed *accel.Problem
	var messages []string
	for i, o := range outcomes {
		switch {
		case o.Problem != nil:
			messages = append(messages, o.Problem.Message)
			if failed == nil || o.Problem.Reason == accel.CheckFailed {
				failed = accel.Problemf(o.Problem.Reason, "")
			}
		case o.Skipped != "":
			out.Skipped[ids[i]] = o.Skipped
		case out.Sentence == "":
			out.Sentence = sentence(c, o.Line)
		}
	}
	if len(messages) > 0 {
		failed.Message = strings.Join(messages, "; ")
		return accel.Proof{}, failed
	}
	return out, nil
}

// sentence says what was proven.
func sentence(c *accel.Check, line accel.ProofLine) string {
	text := c.Sentence
	switch {
	case c.Program != nil:
		if text == "" {
			text = fmt.Sprintf("%d random numbers computed through %s", line.Items, c.Program.API)
		}
		return fmt.Sprintf("%s: %s, driver %s, %d ms", text, line.Name, line.Driver, line.Milliseconds)
	case text == "":
		text = fmt.Sprintf("%q gave %q for %q", c.File, c.Want, c.Write)
	}
	return text
}

// toProve describes the devices to the program that lets them compute.
func toProve(s *devices.Devices, def *accel.Definition, accs []accel.Accelerator, libraries string) []proof.Device {
	nodes := map[string][]accel.DeviceNode{}
	for _, v := range s.Observe(def, accs) {
		nodes[v.ID] = v.Nodes
	}
	shared := s.Shared(def)
	var out []proof.Device
	for _, a := range accs {
		out = append(out, proof.Device{ID: a.ID, Nodes: nodes[a.ID], Shared: shared, Libraries: libraries})
	}
	return out
}

// askAttribute runs a self-test of a device that an attribute carries out.
func (d *Driver) askAttribute(ctx context.Context, c *accel.Check, id string) *accel.Problem {
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
