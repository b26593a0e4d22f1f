package loop

import (
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// observe refreshes the facts about one kind from the probes.
func (w *worker) observe(k *kind, now time.Time, look depth) {
	k.have.Accelerators = w.accelerators(k, now, look)
	k.have.Contested = accel.Contested(k.def.Kind, w.rivals)
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
	k.judgeProof(w.o.Agent.Started)
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
