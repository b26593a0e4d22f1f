package driver

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/proof"
	"github.com/acceld/acceld/guard"
)

// Prove runs the definition's self-test on every present and healthy accelerator, all at once, or on each partition of
// one that is divided. A definition without a self-test proves nothing, and there is no sentence.
func (d *Driver) Prove(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) (accel.Proof,
	*accel.Problem,
) {
	return selfTest{d, false}.run(ctx, def, accs)
}

// selfTest carries out self-tests.
type selfTest struct {
	*Driver
	// fresh means that the devices were reset or have got a new driver since they were found, and that their partitions
	// went with that.
	fresh bool
}

// run is [Driver.Prove].
func (t selfTest) run(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) (accel.Proof,
	*accel.Problem,
) {
	if def.Check == nil {
		return accel.Proof{}, nil
	}
	var usable []accel.Accelerator
	for _, a := range t.devices.Ordinary(accs) {
		if a.Health.Usable() || a.Health.State == "" {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return accel.Proof{}, accel.Problemf(accel.DeviceUnhealthy, "no accelerator of %q is healthy", def.Kind)
	}
	var each func(int) proof.Outcome
	if def.Check.Program != nil {
		about := t.devicesOf(def, usable)
		each = func(i int) proof.Outcome { return t.compute(ctx, def.Check.Program, about[i]) }
	} else {
		each = func(i int) proof.Outcome { return proof.Outcome{Problem: t.askAttribute(ctx, def.Check, usable[i].ID)} }
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

// compute lets a device compute, or its partitions, one after another: each of them could take as long as a device.
func (t selfTest) compute(ctx context.Context, c *accel.CheckProgram, all []proof.Device) proof.Outcome {
	out, skipped := proof.Outcome{}, ""
	for _, one := range all {
		if out = t.prover.Prove(ctx, c, one); out.Problem != nil {
			return out
		}
		if out.Skipped != "" && one.Part {
			out.Skipped = one.ID + ": " + out.Skipped
		}
		skipped = cmp.Or(skipped, out.Skipped)
	}
	if len(all) == 0 {
		skipped = "none of its partitions is healthy"
	}
	out.Skipped = skipped
	return out
}

// devicesOf describes each device, or its partitions, to the program that lets them compute.
func (t selfTest) devicesOf(def *accel.Definition, accs []accel.Accelerator) [][]proof.Device {
	nodes := map[string][]accel.DeviceNode{}
	for _, v := range t.devices.Observe(def, accs) {
		nodes[v.ID] = v.Nodes
	}
	shared, libraries := t.devices.Shared(def), t.halves.libraries(def)
	var out [][]proof.Device
	for _, a := range accs {
		divided := a.Partitioned() && def.Check.Program.ByUUID()
		whole := proof.Device{
			ID: a.ID, UUID: a.UUID, Divided: divided, Nodes: nodes[a.ID], Shared: shared, Libraries: libraries,
		}
		if t.fresh || !divided {
			out = append(out, []proof.Device{whole})
			continue
		}
		var parts []proof.Device
		for _, p := range a.Partitions {
			if p.Health.Usable() || p.Health.State == "" {
				parts = append(parts, proof.Device{
					ID: p.ID, UUID: p.UUID, Part: true, Nodes: p.Nodes, Shared: shared, Libraries: libraries,
				})
			}
		}
		out = append(out, parts)
	}
	return out
}

// askAttribute runs a self-test of a device that an attribute carries out.
func (t selfTest) askAttribute(ctx context.Context, c *accel.Check, id string) *accel.Problem {
	name := path.Join(t.h.Devices().Dir(id), c.File)
	got := make(chan string, 1)
	err := t.operations.Do(ctx, "check "+id, func() error {
		if c.Write != "" {
			if err := t.h.WriteAttribute(name, c.Write); err != nil {
				return err
			}
		}
		text, err := t.h.ReadAttribute(name)
		got <- text
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil: // this says nothing about the device
		return accel.Problemf(accel.CheckNotRun, "the self-test of device %q was not finished: %v", id, err)
	case err != nil:
		return accel.Problemf(accel.CheckFailed, "device %q was asked %q through %q: %v", id, c.Write, c.File, err)
	}
	if text := <-got; text != c.Want {
		return accel.Problemf(accel.CheckFailed, "device %q was asked %q through %q and gave %q instead of %q", id,
			c.Write, c.File, text, c.Want)
	}
	return nil
}
