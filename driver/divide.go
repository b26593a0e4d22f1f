package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// Divisions divides devices for claims, and makes them whole again.
type Divisions struct{ *Driver }

// NewDivisions returns what divides the devices of a driver manager's host.
func NewDivisions(d *Driver) Divisions { return Divisions{d} }

// Divider is what divides a device.
type Divider interface {
	// Value says how the device is divided now: what was last given to Divide, or what it is while the device is whole.
	Value(context.Context) (string, error)
	// Divide divides the device, or makes it whole.
	Divide(ctx context.Context, value string) error
}

// DivideRequest is a device of which a claim asks for a part.
type DivideRequest struct {
	Def    *accel.Definition
	Device accel.Accelerator
	// Profile is the profile of the part.
	Profile string
	// Claim is the UID of the claim, and Name its namespace and name.
	Claim, Name string
	// AsIs means that the part exists: a device that somebody else has divided stays as it is.
	AsIs bool
	// Divider divides the device; nil for the attribute that the definition names.
	Divider Divider
	// Needed reports whether claims need the parts into which the device is divided, and into which it would not be.
	Needed func(accel.Divided) bool
}

// divideTime is how long a device may take to be divided: a driver may reset it, or probe 64 functions.
const divideTime = 2 * time.Minute

// maxDivideSteps bounds a division: each step is needed at most twice.
const maxDivideSteps = 8

// Make divides a device, or goes on where an interrupted division has ended. It changes nothing if somebody has the
// device open. A device that is divided in another way for claims that are over is made whole first. If the division
// fails, the device is made whole again.
func (d Divisions) Make(ctx context.Context, r DivideRequest) *accel.Problem {
	release, problem := d.locks.Driver(ctx, r.Def.Kind)
	if problem != nil {
		return problem
	}
	defer release()
	id, value := r.Device.ID, r.Def.Partitions.MadeBy(r.Def.Profile(r.Profile))
	j, err := d.h.Devices().DividedOf(id)
	if r.Divider == nil {
		r.Divider = d.attribute(id, r.Def.Partitions.Make.File)
	}
	if err == nil && j != nil && j.Value != value && !r.Needed(*j) {
		if problem := d.restore(ctx, id, r.Divider); problem != nil {
			return problem
		}
		j = nil
	}
	problem = d.make(ctx, r, value)
	if problem == nil || err != nil || j != nil || ctx.Err() != nil { // with a journal, others may have its parts
		return problem
	}
	if stuck := d.restore(ctx, id, r.Divider); stuck != nil {
		problem.Message += "; " + stuck.Message
	}
	return problem
}

// make takes the steps of a division. The driver lock is held.
func (d Divisions) make(ctx context.Context, r DivideRequest, value string) *accel.Problem {
	id := r.Device.ID
	for range maxDivideSteps {
		s := d.see(ctx, id, r.Divider)
		step, problem := apart(r, value, s)
		switch {
		case problem != nil || step == divideDone:
			return problem
		case ctx.Err() != nil:
			return accel.Problemf(accel.DivisionFailed, "device %q: the division was called off before %q", id, step)
		}
		d.point("before: " + string(step))
		var err error
		switch step {
		case divideNote:
			err = d.h.Devices().Divide(id, accel.Divided{
				Kind: r.Def.Kind, Profile: r.Profile, File: r.Def.Partitions.Make.File, Value: value, Before: s.Value,
				Claim: r.Claim, Name: r.Name, Since: time.Now().UTC().Truncate(time.Second),
			})
		case divideWrite:
			err = d.divide(ctx, id, r.Divider, value)
		case divideRestore:
			err = d.divide(ctx, id, r.Divider, s.Journal.Before)
		}
		if err != nil {
			return accel.ProblemOr(err, accel.DivisionFailed, "cannot %s: device %q, profile %q", step, id, r.Profile)
		}
		d.point("after: " + string(step))
		if step == divideWrite {
			d.log.Info("device divided", "kind", r.Def.Kind, "device", id, "profile", r.Profile, "claim", r.Name)
		}
	}
	return accel.Problemf(accel.DivisionFailed, "device %q does not stay divided into parts of profile %q", id, r.Profile)
}

// Return makes a device whole, unless claims need its parts: needed is asked while nobody else divides devices. A nil
// divider stands for the attribute that has divided the device.
func (d Divisions) Return(ctx context.Context, id string, divider Divider, needed func(accel.Divided) bool,
) *accel.Problem {
	release, problem := d.locks.Driver(ctx, "")
	if problem != nil {
		return problem
	}
	defer release()
	j, err := d.h.Devices().DividedOf(id)
	if err != nil {
		return accel.ProblemOr(err, accel.NotUndivided, "device %q is not made whole", id)
	}
	if j == nil || needed(*j) {
		return nil
	}
	if divider == nil {
		divider = d.attribute(id, j.File)
	}
	return d.restore(ctx, id, divider)
}

// restore takes the steps back to a whole device. The driver lock is held.
func (d Divisions) restore(ctx context.Context, id string, divider Divider) *accel.Problem {
	ctx = context.WithoutCancel(ctx) // once begun, each step is bounded
	for range maxDivideSteps {
		s := d.see(ctx, id, divider)
		step, problem := whole(id, s)
		if problem != nil || step == divideDone {
			return problem
		}
		d.point("before: " + string(step))
		var err error
		switch step {
		case divideRestore:
			err = d.divide(ctx, id, divider, s.Journal.Before)
		case divideForget:
			err = d.h.Devices().Undivide(id)
		}
		if err != nil {
			return accel.ProblemOr(err, accel.NotUndivided, "cannot %s: device %q", step, id)
		}
		d.point("after: " + string(step))
		if step == divideForget {
			d.log.Info("device whole again", "kind", s.Journal.Kind, "device", id, "profile", s.Journal.Profile)
		}
	}
	return accel.Problemf(accel.NotUndivided, "device %q does not stay whole", id)
}

// divide divides a device, which may hang.
func (d Divisions) divide(ctx context.Context, id string, divider Divider, value string) error {
	return d.operations.Within(ctx, divideTime, "divide "+id, func() error { return divider.Divide(ctx, value) })
}

// see reads what the machine shows about a device.
func (d Divisions) see(ctx context.Context, id string, divider Divider) (s divideSight) {
	s.Journal, s.Unknown = d.h.Devices().DividedOf(id)
	s.Present = d.h.Exists(d.h.Devices().Dir(id))
	if !s.Present {
		return s
	}
	s.Bound = d.takeover.bound(id)
	s.Switched = Switches(d).switched(id)
	s.Users = d.usersOf(id)
	if servesHost(s.Bound) && len(Functions(d).Of(id)) == 0 {
		use, err := d.devices.HostUse(id)
		s.Use = use
		if err != nil {
			s.Unknown = errors.Join(s.Unknown, fmt.Errorf("whether this host itself uses it is not known: %w", err))
		}
	}
	switch {
	case s.Bound == "":
		return s
	case divider == nil:
		s.Unknown = errors.Join(s.Unknown, errors.New("only the program of its kind knows how it is divided"))
		return s
	}
	err := d.operations.Do(ctx, "read the division of "+id, func() (err error) {
		s.Value, err = divider.Value(ctx)
		return err
	})
	if err != nil {
		s.Value, s.Unknown = "", errors.Join(s.Unknown, fmt.Errorf("how it is divided is not known: %w", err))
	}
	return s
}

// usersOf names who has a device, or a part of it, open, apart from acceld and the companions of drivers.
func (d Divisions) usersOf(id string) (all []string) {
	for _, h := range Switches(d).usersOf(id) {
		all = append(all, h.String())
	}
	return append(all, Functions(d).Users(id)...)
}

// attribute returns what divides a device by an attribute; nil without one.
func (d Divisions) attribute(id, file string) Divider {
	if file == "" {
		return nil
	}
	return attributeDivider{d, path.Join(d.h.Devices().Dir(id), file)}
}

// attributeDivider divides a device by an attribute.
type attributeDivider struct {
	Divisions
	file string
}

func (a attributeDivider) Value(context.Context) (string, error) { return a.h.ReadAttribute(a.file) }

func (a attributeDivider) Divide(_ context.Context, value string) error {
	return a.ledger.Attribute(a.file, value)
}

// purge makes all devices whole that acceld has divided, as far as an attribute does that. The driver lock is held.
func (d Divisions) purge(ctx context.Context, o PurgeOptions) (out []ledger.Outcome) {
	all, err := d.h.Devices().Divided()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		out = append(out, leftBecause(host.DividedDir, accel.ProblemOf(err, "a device may be divided")))
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, d.purgeOne(ctx, id, all[id], o))
	}
	return out
}

// purgeOne makes one device whole.
func (d Divisions) purgeOne(ctx context.Context, id string, j accel.Divided, o PurgeOptions) ledger.Outcome {
	result := ledger.Outcome{Path: d.h.Devices().Dir(id), Action: ledger.Restored, Detail: "it is whole again"}
	divider := d.attribute(id, j.File)
	switch _, problem := whole(id, d.see(ctx, id, divider)); {
	case o.KeepDrivers:
		result.Action, result.Detail = ledger.Kept, fmt.Sprintf("it stays divided into parts of profile %q", j.Profile)
	case problem != nil:
		return leftBecause(result.Path, problem)
	case !o.DryRun:
		if problem := d.restore(ctx, id, divider); problem != nil {
			return leftBecause(result.Path, problem)
		}
	}
	return result
}

// Proven reports whether a device has passed its self-test since acceld divided it. One that acceld has not divided
// needs none.
func (d Divisions) Proven(id string) bool {
	j, err := d.h.Devices().DividedOf(id)
	return err == nil && (j == nil || !j.Proven.IsZero())
}

// Prove notes that a device has passed its self-test since it was divided.
func (d Divisions) Prove(id string) *accel.Problem {
	release, problem := d.locks.Driver(context.Background(), "")
	if problem != nil {
		return problem
	}
	defer release()
	j, err := d.h.Devices().DividedOf(id)
	if err == nil && j != nil {
		j.Proven = time.Now().UTC().Truncate(time.Second)
		err = d.h.Devices().Divide(id, *j)
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot note that device %q has passed its self-test", id)
	}
	return nil
}
