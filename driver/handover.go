package driver

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// scrubTime is how long a device may take to be scrubbed.
const scrubTime = 2 * time.Minute

// Cleaner cleans devices for their next tenant.
type Cleaner struct{ *Driver }

// NewCleaner returns what cleans the devices of a driver manager.
func NewCleaner(d *Driver) Cleaner { return Cleaner{d} }

// Users returns the processes that have one of a device's own nodes open or mapped, without the driver's daemons. The
// nodes that all devices of the kind share say nothing about one of them.
func (d Cleaner) Users(def *accel.Definition, a accel.Accelerator) []accel.Holder {
	nodes := d.devices.ForeignNodes(a.ID)
	for _, x := range accel.Flat([]accel.Accelerator{a}) {
		nodes = append(nodes, x.Nodes...)
	}
	for _, v := range d.devices.Observe(def, []accel.Accelerator{a}) {
		nodes = append(nodes, v.Nodes...)
	}
	users := d.companions.Without(def.Kind, d.devices.Processes(nodes))
	return slices.DeleteFunc(users, func(u accel.Holder) bool {
		return def.Handover != nil && d.beside(def.Handover.Beside, u.PID, u.PodUID)
	})
}

// beside reports whether a process belongs to somebody who may have devices open whoever has them. A pod's namespace is
// known by the directory of its logs, which the kubelet makes: <namespace>_<name>_<uid> (pkg/kubelet/kuberuntime/
// helpers.go, BuildPodLogsDirectory).
func (d Cleaner) beside(all []string, pid int, pod string) bool {
	return slices.ContainsFunc(all, func(who string) bool {
		if namespace, ok := strings.CutPrefix(who, accel.BesideNamespace); ok {
			return pod != "" && len(d.h.Glob("/var/log/pods", namespace+"_*_"+pod)) > 0
		}
		return d.h.Processes().InUnit(pid, who)
	})
}

// Expected reports whether a process may have devices of a kind open whoever has them, as the definition says, or is a
// daemon of a driver.
func (d Cleaner) Expected(def *accel.Definition, pid int, pod string) bool {
	var beside []string
	if def.Handover != nil {
		beside = slices.Clone(def.Handover.Beside)
	}
	if def.Unrequested != nil {
		beside = append(beside, def.Unrequested.Beside...)
	}
	return d.beside(beside, pid, pod) || d.companions.Is(pid, "*")
}

// SharedNodes returns the nodes that the devices of a kind share.
func (d Cleaner) SharedNodes(def *accel.Definition) []accel.DeviceNode { return d.devices.Shared(def) }

// Clean removes what a former tenant has left on a device that nobody has open, as its definition says, and lets the
// device pass its self-test. Ready is that of [Driver.Reset].
func (d Cleaner) Clean(ctx context.Context, def *accel.Definition, facts accel.Facts, a accel.Accelerator,
	ready func(context.Context) *accel.Problem,
) *accel.Problem {
	var err error
	switch h := def.Handover; h.Scrub {
	case accel.ScrubReset:
		return d.Reset(ctx, facts, []ResetTarget{{Def: def, Device: a}}, ready) // it proves the device
	case accel.ScrubAttribute:
		err = d.operations.Within(ctx, scrubTime, "scrub "+a.ID, func() error {
			return d.h.WriteAttribute(path.Join(d.h.Devices().Dir(a.ID), h.File), cmp.Or(h.Write, "1"))
		})
	case accel.ScrubProgram:
		limited, cancel := context.WithTimeout(ctx, scrubTime)
		defer cancel()
		var argv []string
		for _, arg := range h.Argv {
			argv = append(argv, strings.ReplaceAll(arg, accel.AddressTemplate, a.ID))
		}
		err = d.operations.Within(limited, scrubTime, "scrub "+a.ID, func() error {
			return d.steps.Exec(limited, argv)
		})
	}
	if err != nil {
		return accel.Problemf(accel.ScrubFailed, "device %q was not scrubbed: %v", a.ID, err)
	}
	_, problem := d.Prove(ctx, def, []accel.Accelerator{{ID: a.ID}})
	return problem
}
