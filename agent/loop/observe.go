package loop

import (
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// tombstoneFor is how long a vanished device stays listed as "gone": as long as the kubelet keeps a plugin's resource
// after its stream ended (endpointStopGracePeriod in pkg/kubelet/cm/devicemanager/types.go, Kubernetes 1.37).
const tombstoneFor = 5 * time.Minute

// observe refreshes the facts about one kind from the probes.
func (l *Loop) observe(k *kind, now time.Time, look depth) {
	k.have.Accelerators = l.accelerators(k, now, look)
	if look == deep {
		l.observeHost(k)
	}
	if l.o.Probes.Program != nil {
		k.have.Probe = l.o.Probes.Program(k.def.Kind)
	}
	k.have.Driver.Next = k.next
	l.observeUpgrade(k, now)
	l.observeReport(k)
	k.judgeProof(l.o.Agent.Started)
	l.observePlugin(k, now)
	l.observeLabels(k)
	l.observeSteps(k)
	l.observePrerequisite(k, now)
	if f := k.have.Failure; f != nil && k.running == accel.StepNone && l.passedStep(k, f.Step) {
		k.have.Failure = nil // the machine got past this state without the step
	}
}

// observeHost refreshes what modules and files show. A change of them causes an event, and an event causes a deep
// pass.
func (l *Loop) observeHost(k *kind) {
	if accel.CountPresent(k.have.Accelerators) == 0 {
		k.have.Driver = accel.DriverHave{}
	} else if k.running != accel.StepDriver && k.running != accel.StepUpgrade {
		// While a driver step runs, modules come and go on purpose. Only its outcome matters.
		driver, _ := l.o.Probes.Driver(k.def, l.facts, present(k.have.Accelerators))
		if driver.Source == "" {
			driver.Source = k.have.Driver.Source
		}
		k.have.Driver = driver
	}
	if k.running == accel.StepUpgrade {
		return // the spec names nodes that are briefly absent, on purpose
	}
	run, problem := l.o.Probes.Runtime(k.def, k.have.Accelerators, l.want)
	if problem == nil || problem.Reason != accel.ProbeUnanswered {
		k.have.Runtime = run
	}
}

// accelerators merges the devices on the bus with the tombstones of devices that left it. Attributes change without an
// event, so no reading is kept for longer than SampleEvery, and none from during a reset.
func (l *Loop) accelerators(k *kind, now time.Time, look depth) []accel.Accelerator {
	reset := slices.ContainsFunc(k.have.Accelerators, func(a accel.Accelerator) bool {
		return a.WithheldBy(accel.ByReset)
	})
	if look != verdicts || reset || now.Sub(k.read) >= l.o.SampleEvery {
		l.o.Probes.Read(k.def, l.facts.PCI)
		k.read = now
	}
	found := l.o.Probes.Accelerators(k.def, l.facts.PCI)
	before := map[string]accel.Accelerator{}
	for _, a := range k.have.Accelerators {
		before[a.ID] = a
	}
	for i, a := range found {
		old, known := before[a.ID]
		delete(before, a.ID)
		delete(k.vanished, a.ID)
		if a.Health.State == "" && known && old.Present() && (a.Withheld != nil || !old.WithheldBy(accel.ByReset)) {
			// the probe could not answer: keep the last health, unless the device has been reset since
			found[i].Health = old.Health
		}
		if found[i].Health.State == "" {
			found[i].Health.State = accel.Healthy
		}
		found[i].Health.Since = since(old.Health, found[i].Health, now)
		if a.Metrics == nil {
			found[i].Metrics = old.Metrics
		}
		found[i].Partitions = partitions(found[i], old, now)
	}
	for id, a := range before {
		if _, known := k.vanished[id]; !known {
			k.vanished[id] = now
		}
		if a.Present() {
			a.Health = accel.Health{
				State: accel.Gone, Reason: accel.DeviceGone, Message: "no longer on the PCI bus",
				Since: now,
			}
			a.Bound, a.Nodes, a.Metrics, a.Withheld = "", nil, nil, nil
			a.Partitions = partitions(accel.Accelerator{Health: a.Health}, a, now)
		}
		if now.Sub(k.vanished[id]) < tombstoneFor {
			found = append(found, a)
		} else {
			delete(k.vanished, id)
		}
	}
	accel.SortByID(found)
	return found
}

// partitions merges the partitions of a device with the tombstones of its former partitions. A partition without a
// health of its own gets the device's health.
func partitions(device, before accel.Accelerator, now time.Time) []accel.Accelerator {
	there := map[string]bool{}
	var list []accel.Accelerator
	for _, p := range device.Partitions {
		there[p.ID] = true
		p.Health = p.Health.Below(device.Health)
		for _, old := range before.Partitions {
			if old.ID == p.ID {
				p.Health.Since = since(old.Health, p.Health, now)
			}
		}
		if p.Health.Since.IsZero() {
			p.Health.Since = now
		}
		list = append(list, p)
	}
	for _, p := range before.Partitions {
		if there[p.ID] {
			continue
		}
		if p.Present() {
			p.Health = accel.Health{
				State: accel.Gone, Reason: accel.DeviceGone, Message: "the device is not divided in this way any more",
				Since: now,
			}
			if !device.Present() {
				p.Health.Message = device.Health.Message
			}
			p.Bound, p.Nodes, p.Env, p.Withheld = "", nil, nil, nil
		}
		if now.Sub(p.Health.Since) < tombstoneFor {
			list = append(list, p)
		}
	}
	accel.SortByID(list)
	return list
}

// since returns the time of the old health if the new one is the same, and at otherwise.
func since(old, now accel.Health, at time.Time) time.Time {
	if old.State == now.State && old.Reason == now.Reason && old.Message == now.Message && !old.Since.IsZero() {
		return old.Since
	}
	return at
}

// judgeProof sets Driver.Proven when every device that is usable and not withheld has passed its self-test with
// exactly the driver that is live now. started is when the agent started.
func (k *kind) judgeProof(started time.Time) {
	identity := driverIdentity(k.have.Driver)
	for id := range k.proven {
		if k.proven[id] != identity {
			delete(k.proven, id)
		}
	}
	for _, a := range k.have.Accelerators {
		if !a.Offered() {
			delete(k.proven, a.ID) // it must pass its self-test again before it is trusted
		}
	}
	k.have.Driver.Proven, k.have.Driver.Proof = time.Time{}, ""
	if k.have.Driver.Serves && len(unproven(k)) == 0 {
		k.have.Driver.Proven, k.have.Driver.Proof = k.at, k.proof
		if k.at.IsZero() { // no device can be tested: there is nothing to prove
			k.have.Driver.Proven = started
		}
	}
}

// driverIdentity changes when another module is live, never when the agent restarts.
func driverIdentity(d accel.DriverHave) string {
	var b strings.Builder
	for _, m := range d.Modules {
		b.WriteString(m.Name + "@" + m.BuildID + m.SrcVersion + ";")
	}
	return b.String()
}

// unproven returns the devices that are usable and not withheld but have not passed their self-test with the live
// driver.
func unproven(k *kind) []accel.Accelerator {
	var out []accel.Accelerator
	for _, a := range k.have.Accelerators {
		if _, ok := k.proven[a.ID]; a.Offered() && !ok {
			out = append(out, a)
		}
	}
	return out
}

func present(accs []accel.Accelerator) []accel.Accelerator {
	return slices.DeleteFunc(slices.Clone(accs), func(a accel.Accelerator) bool { return !a.Present() })
}

// inventory returns the devices of a kind, each with what withholds it now. k.have already contains what the probes
// withhold; the rest follows from the state of the kind.
func (k *kind) inventory() []accel.Accelerator {
	return accel.Withhold(k.have.Accelerators, k.have, func(id string) bool {
		_, passed := k.proven[id]
		return passed
	})
}

// observePlugin takes over the plugin's state and gives it the inventory. Devices are withheld one by one, so that a
// hot-plugged device never delays the others.
func (l *Loop) observePlugin(k *kind, now time.Time) {
	if k.plugin == nil {
		return
	}
	k.have.Plugin = k.plugin.State()
	k.plugin.Update(accel.Units(k.inventory()))
	if f := k.have.Failure; f != nil && (!waits(f.Step) || f.Reason == accel.StepFailed) {
		return // the failure of an earlier step, or of an own step, takes precedence
	}
	step := accel.StepRegister
	if k.have.Plugin.Registered {
		step = accel.StepAwait
	}
	k.note(step, k.plugin.Problem(), now)
}

// observeLabels takes over what the API server has. Once labels were read back, they count as present: if a later
// write has to wait for the API server, LabelProblem reports that, and the devices stay usable.
func (l *Loop) observeLabels(k *kind) {
	if l.o.KubeSync == nil {
		return
	}
	s := l.o.KubeSync()
	k.have.Monitoring.Labelled = k.have.Monitoring.Labelled || s.Labelled
	k.have.Monitoring.LabelProblem = ""
	if s.Problem != nil {
		k.have.Monitoring.LabelProblem = s.Problem.Message
	}
}

// passedStep reports whether the kind is past the state that step leaves.
func (l *Loop) passedStep(k *kind, step accel.Step) bool {
	m := accel.Machine{Want: l.want}
	for _, r := range table() {
		if r.step == step {
			return r.passed(m, k.have)
		}
	}
	return false
}
