package proof

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
)

// verdict is what a kind of fault means for a device.
type verdict struct {
	kind   accel.ProofFaultKind
	reason accel.Reason
	// says goes on after "device … ".
	says string
	// todo is what to do if the program does not say.
	todo string
}

// verdicts is the table of all kinds of faults.
func verdicts() []verdict {
	return []verdict{
		{
			accel.FaultNoLibrary, accel.CheckNotRun, "cannot compute: a library is not on the host",
			"install the driver's user space, or set check.program.optional if it is in the images of containers",
		},
		{
			accel.FaultUserSpace, accel.CheckNotRun, "cannot compute: the driver's user space is incomplete or unfit",
			"install all of it in the version of the driver",
		},
		{
			accel.FaultNoDevice, accel.CheckNotRun, "is not seen by the driver's user space",
			"check its device nodes and their permissions, and that it is not hidden from programs",
		},
		{
			accel.FaultBusy, accel.CheckNotRun, "is unavailable, although no process has it open",
			"check whether its mode forbids all computing, and how much of its memory is free",
		},
		{
			accel.FaultSkew, accel.LibraryMismatch, "cannot compute: the library has another version than the driver",
			"install both in the same version, or reboot into the new driver",
		},
		{
			accel.FaultRefused, accel.CheckNotRun, "cannot compute: the operating system refused a call",
			"check its device nodes and their permissions",
		},
		{
			accel.FaultNotReady, accel.CheckNotRun, "is not ready to compute",
			"check that the services that belong to the driver run, in its version",
		},
		{accel.FaultDevice, accel.CheckFailed, "failed while it computed", "see what the kernel log says about it"},
		{accel.FaultWrong, accel.CheckFailed, "computed wrongly", "take it out of use"},
		{
			accel.FaultUnknown, accel.CheckNotRun, "did not compute, for a reason that is not known",
			"see what the kernel log says about it",
		},
	}
}

func known(kind accel.ProofFaultKind) bool { return verdictOf(kind).kind == kind }

// verdictOf returns the row of a kind, or the last one, that of the unknown.
func verdictOf(kind accel.ProofFaultKind) verdict {
	all := verdicts()
	for _, v := range all {
		if v.kind == kind {
			return v
		}
	}
	return all[len(all)-1]
}

// judge says what an answer means.
func (p *Prover) judge(c *accel.CheckProgram, d Device, line accel.ProofLine) Outcome {
	f := line.Fault
	switch {
	case f == nil:
		return Outcome{Line: line}
	// A host can have OpenCL's loader without the implementation that knows the device.
	case c.Optional && (f.Kind == accel.FaultNoLibrary || f.Kind == accel.FaultNoDevice && c.API == "opencl"):
		return Outcome{Line: line, Skipped: f.Message}
	case f.Kind == accel.FaultBusy:
		if user := p.user(d); user != "" {
			return Outcome{Line: line, Skipped: fmt.Sprintf("%s uses it and leaves nothing for others (%s)", user,
				evidence(f))}
		}
	}
	v := verdictOf(f.Kind)
	o := failed(v.reason, "device %q %s (%s): %s", cmp.Or(d.ID, line.Name, "the only one"), v.says, evidence(f),
		cmp.Or(f.Message, v.todo))
	o.Line = line
	return o
}

// evidence names the call that failed, and what it returned.
func evidence(f *accel.ProofFault) string {
	if f.Call == "" {
		return cmp.Or(f.Name, string(f.Kind))
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %d %s", f.Call, f.Code, f.Name))
}

// user names a process that has the device open and is not one of acceld's; empty if there is none.
func (p *Prover) user(d Device) string {
	for _, holder := range p.o.Host.Processes().Holders(d.Nodes) {
		if !p.ours(holder.PID) {
			return holder.String()
		}
	}
	return ""
}
