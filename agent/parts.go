package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
)

// parts divides devices for claims that ask for a part of one, and makes them whole again when the last of these claims
// is over. How a device is divided, its journal says (accel.Divided); that its parts are needed, the records of claims
// (dra.NeededParts). Nothing else is remembered, so a new agent goes on from there.
type parts struct {
	*Agent
	poked chan struct{}

	mu sync.Mutex
	// problems say, by PCI address, why a device could not be made whole, or divided again after its driver lost it.
	problems map[string]*accel.Problem
}

func newParts(a *Agent) *parts {
	return &parts{Agent: a, poked: make(chan struct{}, 1), problems: map[string]*accel.Problem{}}
}

// poke says that claims may be over.
func (p *parts) poke() {
	select {
	case p.poked <- struct{}{}:
	default:
	}
}

// awaitPart is how long a part may take to appear once its device is divided: udev and the CDI spec follow the kernel.
const awaitPart = 20 * time.Second

// needed reports whether claims need the parts of a division.
func (p *parts) needed(id string) func(accel.Divided) bool {
	return func(j accel.Divided) bool {
		return dra.NeededParts(p.Host, p.Config.StateDir, j.Kind)(id, j.Profile)
	}
}

// shape makes a part of a device for a claim, whose record is on the disk, or makes a device whole for it; see
// dra.Config.
func (p *parts) shape(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string) (
	accel.Accelerator, *accel.Problem,
) {
	if x.Parent == "" {
		return p.whole(ctx, def, x)
	}
	device, known := unit(p.machine(), def.Kind, x.Parent)
	if !known || !device.Present() {
		return x, accel.Problemf(accel.DeviceGone, "device %q is not on the bus", x.Parent)
	}
	r := p.request(def, device, x.Profile, claim, name)
	r.AsIs = x.Bound != ""
	if problem := p.divide(ctx, r); problem != nil {
		return x, problem
	}
	got, problem := p.await(ctx, def, x.ID)
	if problem == nil {
		problem = p.prove(ctx, def, got)
	}
	return got, problem
}

// request returns a request to divide a device into parts of a profile.
func (p *parts) request(def *accel.Definition, device accel.Accelerator, profile, claim, name string,
) driver.DivideRequest {
	return driver.DivideRequest{
		Def: def, Device: device, Profile: profile, Claim: claim, Name: name, Needed: p.needed(device.ID),
		Divider: p.divider(def, device.ID),
	}
}

// divide divides a device.
func (p *parts) divide(ctx context.Context, r driver.DivideRequest) *accel.Problem {
	if r.Divider == nil {
		defer p.programs.Pause(ctx, r.Def.Kind)() // it may have the device open
	}
	defer p.wake(true)
	return driver.NewDivisions(p.driver).Make(ctx, r)
}

// whole makes a device whole that was divided for claims that are over.
func (p *parts) whole(ctx context.Context, def *accel.Definition, x accel.Accelerator) (accel.Accelerator,
	*accel.Problem,
) {
	if j, err := p.Host.Devices().DividedOf(x.ID); j == nil && err == nil {
		return x, nil
	}
	problem := driver.NewDivisions(p.driver).Return(ctx, x.ID, p.divider(def, x.ID), p.needed(x.ID))
	p.wake(true)
	if problem != nil {
		return x, problem
	}
	return p.await(ctx, def, x.ID)
}

// divider returns what divides a device if the probe program of its kind does; nil for an attribute.
func (p *parts) divider(def *accel.Definition, id string) driver.Divider {
	if def == nil || !def.Makes() || !def.Partitions.Make.Program {
		return nil
	}
	return programDivider{p.programs, def.Kind, id}
}

// await waits until a part, or a whole device, is there and offered, as the host has it now.
func (p *parts) await(ctx context.Context, def *accel.Definition, id string) (accel.Accelerator, *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, awaitPart)
	defer cancel()
	var x accel.Accelerator
	known := false
	if p.until(ctx, func(m accel.Machine) bool {
		x, known = unit(m, def.Kind, id)
		return known && x.ReadyForClaims() && (x.Parent != "" || x.Divided == nil) && p.current(def, m, x)
	}) {
		p.gate.open(p.machine)
		return x, nil
	}
	if known && x.Present() && !x.ReadyForClaims() {
		reason, message := x.Refusal()
		return x, accel.Problemf(reason, "%q is not offered: %s", id, message)
	}
	return x, accel.Problemf(accel.DivisionFailed, "device divided, and there is no %q", id)
}

// current reports whether a part that acceld finds by itself has the nodes that the machine's reading says: parts that
// were made again may have others.
func (p *parts) current(def *accel.Definition, m accel.Machine, x accel.Accelerator) bool {
	if def.Partitions.Told || x.Parent == "" {
		return true
	}
	function := m.Facts.Function(x.Parent)
	for _, device := range detect.Accelerators(p.Host, def, []accel.PCIDevice{function}) {
		for _, now := range device.Partitions {
			if now.ID == x.ID {
				return slices.Equal(now.Nodes, x.Nodes)
			}
		}
	}
	return false
}

// prove lets a device that was just divided pass its self-test: each part, or the device by its attributes. A self-test
// that opens the undivided device cannot run.
func (p *parts) prove(ctx context.Context, def *accel.Definition, part accel.Accelerator) *accel.Problem {
	d := driver.NewDivisions(p.driver)
	if def.Check == nil || d.Proven(part.Parent) {
		return nil
	}
	device, _ := unit(p.machine(), def.Kind, part.Parent)
	switch program := def.Check.Program; {
	case program == nil:
		device.Partitions = nil
	case program.ByUUID():
		for _, have := range p.machine().Have[def.Kind].Accelerators {
			if have.ID == part.Parent {
				device = have
			}
		}
	default:
		return nil
	}
	if problem := (checks{p.Agent}).one(ctx, def, device); problem != nil {
		return problem
	}
	return d.Prove(part.Parent)
}

// unit returns a device or a partition as it can be given out.
func unit(m accel.Machine, kind, id string) (accel.Accelerator, bool) {
	for _, x := range accel.Offer(m, kind) {
		if x.ID == id {
			return x, true
		}
	}
	return accel.Accelerator{}, false
}

// enrich says which devices are divided for claims, and why one could not be made whole. The result is accs.
func (p *parts) enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	if !def.Makes() {
		return accs
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range accs {
		a := &accs[i]
		j, err := p.Host.Devices().DividedOf(a.ID)
		switch problem := p.problems[a.ID]; {
		case err != nil:
			a.Withheld = &accel.Withheld{By: accel.ByPartitioning, Reason: accel.ProbeUnanswered, Message: err.Error()}
		case j == nil:
		case problem != nil && a.Withheld == nil:
			a.Withheld = &accel.Withheld{By: accel.ByPartitioning, Reason: problem.Reason, Message: problem.Message}
		}
		a.Divided = j
	}
	return accs
}

// run makes devices whole whose claims are over, until ctx ends.
func (p *parts) run(ctx context.Context) error {
	return again(ctx, p.loop, p.poked, p.pass)
}

// pass makes whole what can be made whole, divides again what its driver has lost, and reports whether something could
// not be done.
func (p *parts) pass(ctx context.Context) (left bool) {
	all, err := p.Host.Devices().Divided()
	if err != nil {
		p.Log.Debug("devices divided for claims", "error", err) // the devices have it as a reason
	}
	problems := map[string]*accel.Problem{}
	for _, id := range sorted(all) {
		j := all[id]
		def := p.machine().Want.Kinds[j.Kind]
		var problem *accel.Problem
		switch {
		case !p.needed(id)(j):
			problem = driver.NewDivisions(p.driver).Return(ctx, id, p.divider(def, id), p.needed(id))
			p.wake(true)
		case lost(p.machine(), def, id, j):
			device, _ := unit(p.machine(), j.Kind, id)
			problem = p.divide(ctx, p.request(def, device, j.Profile, j.Claim, j.Name))
		}
		if problem != nil {
			problems[id] = problem
		}
	}
	p.note(problems)
	return len(problems) > 0
}

// lost reports whether a device that is to be divided has its driver and is whole, as after a reload of the driver.
func lost(m accel.Machine, def *accel.Definition, id string, j accel.Divided) bool {
	if def == nil || !def.Makes() || j.File == "" {
		return false
	}
	device, known := unit(m, j.Kind, id)
	return known && device.Divided != nil && device.Divided.Value == j.Value && device.Offered()
}

// note replaces the problems, and logs those that are new.
func (p *parts) note(problems map[string]*accel.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, problem := range problems {
		if old := p.problems[id]; old == nil || old.Message != problem.Message {
			p.Log.Warn("a divided device is not as claims need it", "device", id, "reason", problem.Reason, "message",
				problem.Message)
		}
	}
	p.problems = problems
}
