package loop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// observe refreshes the facts about one kind from the probes.
func (w *worker) observe(k *kind, now time.Time, look depth) {
	k.have.Accelerators = w.accelerators(k, now, look)
	k.have.Contested = accel.Contested(k.def.Kind, w.rivals)
	k.have.SharedNode = accel.SharedNode(k.def, k.have.Accelerators)
	if look == deep {
		w.observeHost(k)
	}
	k.have.Probe = w.o.Probes.Program(k.def.Kind)
	if k.plugin != nil {
		k.have.Plugin = k.plugin.State()
	}
	k.have.Driver.Next = k.next
	w.observeUpgrade(k, now)
	w.observeReport(k)
	k.reportRepair(w.handshake(k), w.want.PoliciesUnknown)
	k.judgeProof()
	w.offer(k, now)
	w.observeLabels(k)
	w.observeSteps(k)
	w.observePrerequisite(k, now)
	if f := k.have.Failure; f != nil && k.running == accel.StepNone && w.passedStep(k, f.Step) {
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
		// So do those of a device that is being reset.
		others := slices.DeleteFunc(present(k.have.Accelerators), beingReset)
		driver, _ := l.o.Probes.Driver(k.def, l.facts, others)
		if driver.Source == "" {
			driver.Source = k.have.Driver.Source
		}
		k.have.Driver = driver
		l.observeServed(k)
	}
	if k.running == accel.StepUpgrade {
		return // the spec names nodes that are briefly absent, on purpose
	}
	run, problem := l.o.Probes.Runtime(k.def, k.have.Accelerators, l.want)
	if problem == nil || problem.Reason != accel.ProbeUnanswered {
		k.have.Runtime = run
	}
}

// judgeProof sets Driver.Proven when every device that is usable and not withheld has passed its self-test with
// exactly the driver that is live now, and Driver.Unchecked when there is no self-test, that of a device could not take
// place, or no device could be tested since the agent started. Driver.ProofSkipped then explains it.
func (k *kind) judgeProof() {
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
	for id := range k.skipped {
		if _, ok := k.proven[id]; !ok {
			delete(k.skipped, id)
		}
	}
	d := &k.have.Driver
	d.Proven, d.Proof, d.ProofSkipped, d.Unchecked = time.Time{}, "", "", d.Serves && k.def.Check == nil
	if !d.Serves || d.Unchecked || len(unproven(k)) > 0 {
		return
	}
	if k.at.IsZero() && slices.ContainsFunc(k.have.Accelerators, accel.Accelerator.AwaitsReport) {
		return // whether it can be tested is known in a moment
	}
	d.ProofSkipped = notChecked(k.skipped)
	if d.ProofSkipped == "" && k.at.IsZero() {
		d.ProofSkipped = "no device can be tested now"
	}
	if d.Unchecked = d.ProofSkipped != ""; !d.Unchecked {
		d.Proven, d.Proof = k.at, k.proof
	}
}

// passed reports whether no self-test keeps a device back: it has passed, or the definition has none.
func (k *kind) passed(id string) bool {
	_, ok := k.proven[id]
	return ok || k.def.Check == nil
}

// notChecked says why devices were not checked, each reason once; empty if all were.
func notChecked(skipped map[string]string) string {
	devices := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(skipped)) {
		devices[skipped[id]] = append(devices[skipped[id]], id)
	}
	var all []string
	for _, why := range slices.Sorted(maps.Keys(devices)) {
		all = append(all, fmt.Sprintf("%s: %s", strings.Join(devices[why], ", "), why))
	}
	return strings.Join(all, "; ")
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
		if a.Offered() && !k.passed(a.ID) {
			out = append(out, a)
		}
	}
	return out
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
	i := slices.IndexFunc(table(), func(r row) bool { return r.step == step })
	return i >= 0 && table()[i].passed(accel.Machine{Want: l.want}, k.have)
}
