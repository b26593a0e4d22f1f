package driver

import (
	"fmt"

	"github.com/acceld/acceld/accel"
)

// A device is divided for as long as a claim has a part of it. The decision is made from what the machine shows, one
// step at a time, so that an interrupted division goes on or back from wherever it was. What has to be undone, only the
// journal says: see accel.Divided.

// divideStep is the next step of a division.
type divideStep string

// The steps. Each can be repeated.
const (
	divideDone    divideStep = ""
	divideNote    divideStep = "write the journal"
	divideWrite   divideStep = "divide the device"
	divideRestore divideStep = "make the device whole"
	divideForget  divideStep = "remove the journal"
)

// divideSight is what the machine shows about a device that is divided.
type divideSight struct {
	Present bool
	// Bound is the driver that the device has, and Value what says how it is divided now.
	Bound, Value string
	// Switched is whether the device is given out with another driver.
	Switched bool
	// Use is what the host itself uses the device for, and Users are those who have it, or a part of it, open.
	Use   string
	Users []string
	// Journal is nil for a device that acceld has not divided.
	Journal *accel.Divided
	// Unknown is what could not be read, without which nothing may be done.
	Unknown error
}

// apart decides the next step of dividing a device, which wanted does. The problem says why that is impossible.
func apart(r DivideRequest, wanted string, s divideSight) (divideStep, *accel.Problem) {
	j, id, def := s.Journal, r.Device.ID, r.Def
	cannot := func(reason accel.Reason, format string, args ...any) (divideStep, *accel.Problem) {
		return "", accel.Problemf(reason, "device %q cannot be divided: %s", id, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Unknown != nil:
		return cannot(accel.ProbeUnanswered, "%v", s.Unknown)
	case !s.Present:
		return "", accel.Problemf(accel.DeviceGone, "device %q is not on the bus", id)
	case s.Switched:
		return cannot(accel.OtherUse, "it is given out with another driver")
	case s.Bound != def.Driver.Binds:
		return cannot(accel.DivisionRefused, "it has driver %q", s.Bound)
	case j != nil && j.Value != wanted:
		return cannot(accel.DivisionRefused, "it is divided into parts of profile %q for %s", j.Profile, j.For())
	case j != nil && s.Value == j.Value:
		return divideDone, nil
	case j == nil && s.Value != def.Partitions.Make.Whole && r.AsIs:
		return divideDone, nil
	case j == nil && s.Value != def.Partitions.Make.Whole:
		return cannot(accel.DivisionRefused, "somebody else has divided it (%.80q)", s.Value)
	case s.Use != "":
		return cannot(accel.InUse, "this host itself uses it: %s", s.Use)
	case len(s.Users) > 0:
		return cannot(accel.InUse, "it is in use by %s", few(s.Users))
	case j == nil:
		return divideNote, nil
	case s.Value != j.Before:
		return divideRestore, nil // something else was written meanwhile
	}
	return divideWrite, nil
}

// whole decides the next step of making a device whole again. The journal goes last.
func whole(id string, s divideSight) (divideStep, *accel.Problem) {
	j := s.Journal
	switch {
	case j == nil && s.Unknown == nil:
		return divideDone, nil
	case j != nil && !s.Present:
		return divideForget, nil
	case s.Unknown != nil:
		return "", accel.Problemf(accel.NotUndivided, "device %q is not made whole: %v", id, s.Unknown)
	case s.Value == j.Before:
		return divideForget, nil
	case s.Switched || s.Bound == "":
		return divideForget, nil // parts do not outlive their driver
	case len(s.Users) > 0:
		return "", accel.Problemf(accel.NotUndivided, "device %q is not made whole: it is in use by %s", id, few(s.Users))
	}
	return divideRestore, nil
}

// few names some of all.
func few(all []string) string {
	const most = 3
	text := ""
	for i, who := range all {
		switch {
		case i == most:
			return fmt.Sprintf("%s and %d more", text, len(all)-most)
		case i > 0:
			text += ", "
		}
		text += who
	}
	return text
}
