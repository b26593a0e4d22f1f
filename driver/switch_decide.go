package driver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// A device is given out with another driver (VFIO) for as long as a claim has it. The decision is made from what the
// machine shows, one step at a time, so that an interrupted switch goes on or back from wherever it was. Only the
// journal says whose the device is: see accel.Switched.

// switchStep is the next step of a switch.
type switchStep string

// The steps. Each can be repeated.
const (
	switchDone    switchStep = ""
	switchNote    switchStep = "write the journal"
	switchLoad    switchStep = "load the modules"
	switchKeep    switchStep = "keep the device for the driver"
	switchUnbind  switchStep = "unbind the device"
	switchBind    switchStep = "bind the device"
	switchAwait   switchStep = "wait for the node of the group"
	switchRestore switchStep = "restore driver_override"
	switchForget  switchStep = "remove the journal"
)

// switchSight is what the machine shows about a device that changes its driver.
type switchSight struct {
	Present bool
	// Bound is the driver that the device has, and Kept the only one that may bind it, by driver_override.
	Bound, Kept string
	// Group is the IOMMU group; -1 for none. Others are its other functions that are no bridges.
	Group  int
	Others []groupMember
	// Node is whether the node of the group is there, and Target whether the driver for VFIO and its modules are live.
	Node, Target bool
	// Home is whether the driver that the device goes back to is live.
	Home bool
	// Functions is how many virtual functions the device has.
	Functions int
	// Divided is whether the device is divided for claims, or may be.
	Divided bool
	// Barred says why the device must not lose its driver, Use what the host itself uses it for, and Users who has it
	// open.
	Barred, Use string
	Users       []accel.Holder
	// Journal is nil for a device with its kind's driver.
	Journal *accel.Switched
	// Unknown is what could not be read, without which nothing may be done.
	Unknown error
	// Refused means that the driver that the device goes back to has just refused it.
	Refused bool
}

// groupMember is another function of an IOMMU group.
type groupMember struct {
	Address, Driver string
	// Known is whether acceld gives the function out by itself.
	Known bool
}

// away decides the next step of giving a device to VFIO for a claim. The problem says why it cannot be had; if Journal
// is the claim's own, what was changed has to be undone.
func away(def *accel.Definition, id, claim string, s switchSight) (switchStep, *accel.Problem) {
	j := s.Journal
	switch {
	case s.Unknown != nil:
		return "", accel.Problemf(accel.ProbeUnanswered, "device %q is not given out with vfio: %v", id, s.Unknown)
	case !s.Present:
		return "", accel.Problemf(accel.DeviceGone, "device %q is not on the bus", id)
	case j != nil && j.Claim != claim:
		return "", accel.Problemf(accel.SwitchRefused, "device %q is given out with %s to %s", id, j.Use, j.For())
	case j != nil && s.Bound == j.Driver && s.Node:
		return switchDone, nil
	case j != nil && s.Bound == j.Driver:
		return switchAwait, nil
	case def.VFIO == nil:
		return "", accel.Problemf(accel.SwitchRefused, "kind %q does not give devices out with vfio", def.Kind)
	}
	if problem := against(def, id, s); problem != nil {
		return "", problem
	}
	switch {
	case j == nil:
		return switchNote, nil
	case !s.Target:
		return switchLoad, nil
	case s.Kept != j.Driver:
		return switchKeep, nil
	case s.Bound != "":
		return switchUnbind, nil
	}
	return switchBind, nil
}

// against says why a device with its kind's driver, or with none, cannot be given to VFIO now; nil if it can.
func against(def *accel.Definition, id string, s switchSight) *accel.Problem {
	cannot := func(reason accel.Reason, format string, args ...any) *accel.Problem {
		return accel.Problemf(reason, "device %q cannot be given out with vfio: %s", id, fmt.Sprintf(format, args...))
	}
	own := s.Journal != nil
	switch {
	case s.Group < 0:
		return cannot(accel.NoIOMMUGroup, "it is in no IOMMU group")
	case s.Bound != "" && s.Bound != def.Driver.Binds:
		return cannot(accel.ConflictDriver, "driver %q has it", s.Bound)
	case !own && s.Kept != "" && s.Kept != def.Driver.Binds:
		return cannot(accel.ConflictDriver, "it is kept for driver %q by driver_override", s.Kept)
	case s.Barred != "":
		return cannot(accel.SwitchRefused, "%s", s.Barred)
	case s.Functions > 0:
		return cannot(accel.SwitchRefused, "it has %d virtual functions, which would go with its driver", s.Functions)
	case s.Divided:
		return cannot(accel.SwitchRefused, "it is divided for claims")
	case s.Use != "":
		return cannot(accel.InUse, "this host itself uses it: %s", s.Use)
	}
	if i := slices.IndexFunc(s.Others, groupMember.hinders); i >= 0 {
		return cannot(accel.GroupShared, "IOMMU group %d also has %s", s.Group, s.Others[i])
	}
	if problem := accel.InUseProblem(fmt.Sprintf("device %q", id), s.Users); problem != nil {
		return problem
	}
	return nil
}

// hinders reports whether a group with this function cannot be given away: a driver of the host has the function, so
// that the kernel refuses, or others may get it.
func (m groupMember) hinders() bool {
	return m.Known || !slices.Contains([]string{"", "pci-stub", "pcieport"}, m.Driver)
}

// String is for people.
func (m groupMember) String() string {
	switch {
	case m.Known && strings.Contains(m.Driver, "vfio"):
		return fmt.Sprintf("device %q, which is given out with %q", m.Address, m.Driver)
	case m.Known:
		return fmt.Sprintf("device %q, which is given out by itself", m.Address)
	}
	return fmt.Sprintf("function %q, which driver %q has", m.Address, m.Driver)
}

// back decides the next step of giving a device back to the driver of its kind. The journal goes last.
func back(id string, s switchSight) (switchStep, *accel.Problem) {
	j := s.Journal
	switch {
	case s.Unknown != nil:
		return "", accel.Problemf(accel.NotGivenBack, "device %q is not given back: %v", id, s.Unknown)
	case j == nil:
		return switchDone, nil
	case !s.Present:
		return switchForget, nil
	case s.Bound == j.Driver && len(s.Users) > 0:
		held := accel.InUseProblem(fmt.Sprintf("device %q", id), s.Users)
		return "", accel.Problemf(accel.NotGivenBack, "%s, after it was given out with %s", held.Message, j.Use)
	case s.Bound == j.Driver:
		return switchUnbind, nil
	case s.Kept == j.Driver:
		return switchRestore, nil
	case s.Bound == "" && j.From != "" && s.Home && !s.Refused:
		return switchBind, nil
	}
	return switchForget, nil // without a driver, it is for the kind's next Ensure
}
