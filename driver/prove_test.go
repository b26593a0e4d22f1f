package driver

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/proof"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

func TestProve(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := ko.Definition()
	def.Check.Write = "3628800" // a plain file returns what was written
	m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "")
	if got, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || got.Sentence != def.Check.Sentence {
		t.Fatal(got, problem)
	}
	def.Check.Want = "7"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed ||
		!strings.Contains(problem.Message, `gave "3628800" instead of "7"`) {
		t.Fatal(problem)
	}
	def.Check.Want = "3628801"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed {
		t.Fatal("a digit is wrong:", problem)
	}
	def.Check.File = "nothing"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed {
		t.Fatal(problem)
	}
	sick := m.accs()
	sick[0].Health.State = accel.Unhealthy
	if _, problem := d.Prove(t.Context(), def, sick); problem == nil || problem.Reason != accel.DeviceUnhealthy {
		t.Fatal(problem)
	}
	def.Check = nil
	if sentence, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || sentence.Sentence != "" {
		t.Fatal(sentence, problem)
	}
}

// TestProveEach: one device that computes wrongly is named, whatever the others return.
func TestProveEach(t *testing.T) {
	m := newMachine(t)
	m.AddDevice("0000:02:00.0")
	def := ko.Definition()
	def.Check.Write = ""
	m.Write(devices.Dir(ko.Device)+"/factorial", "3628800\n")
	m.Write(devices.Dir("0000:02:00.0")+"/factorial", "0\n")
	if _, problem := m.driver(Options{}).Prove(t.Context(), def, m.accs()); problem == nil ||
		problem.Reason != accel.CheckFailed || !strings.Contains(problem.Message, "0000:02:00.0") {
		t.Error(problem)
	}
}

// TestProveProgram: where the program cannot run, a check that is optional was not made, and another one has a reason.
func TestProveProgram(t *testing.T) {
	m := newMachine(t)
	def := ko.Definition()
	def.Check = &accel.Check{Program: &accel.CheckProgram{API: "x", Optional: true}}
	d := m.driver(Options{Beside: t.TempDir()})
	got, problem := d.Prove(t.Context(), def, m.accs())
	if problem != nil || got.Sentence != "" ||
		!strings.Contains(got.Skipped[ko.Device], "acceld-prove is not beside acceld") {
		t.Error(got, problem)
	}
	def.Check.Program.Optional = false
	if got, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckNotRun {
		t.Error(got, problem)
	}
}

// TestProveTogether: what failed decides before what did not run; what was skipped is neither.
func TestProveTogether(t *testing.T) {
	failed := func(r accel.Reason, text string) proof.Outcome {
		return proof.Outcome{Problem: accel.Problemf(r, "%s", text)}
	}
	good := proof.Outcome{Line: accel.ProofLine{Name: "a card", Driver: "1.2", Items: 7, Milliseconds: 34}}
	skipped := proof.Outcome{Skipped: "it is in use"}
	notRun, wrong := failed(accel.CheckNotRun, "a service does not run"), failed(accel.CheckFailed, "it is wrong")
	check := &accel.Check{Program: &accel.CheckProgram{API: "x"}}
	const computed = "7 random numbers computed through x: a card, driver 1.2, 34 ms"
	for name, c := range map[string]struct {
		outcomes        []proof.Outcome
		sentence, skips string
		reason          accel.Reason
		message         string
	}{
		"all computed":     {[]proof.Outcome{good, good}, computed, "", "", ""},
		"one was skipped":  {[]proof.Outcome{skipped, good}, computed, "it is in use", "", ""},
		"nothing was made": {[]proof.Outcome{skipped}, "", "it is in use", "", ""},
		"one did not run":  {[]proof.Outcome{good, notRun}, "", "", accel.CheckNotRun, "a service does not run"},
		"one is wrong": {
			[]proof.Outcome{notRun, wrong, skipped}, "", "", accel.CheckFailed, "a service does not run; it is wrong",
		},
		"the first is": {
			[]proof.Outcome{wrong, notRun}, "", "", accel.CheckFailed, "it is wrong; a service does not run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := together(check, []string{"0", "1", "2"}, c.outcomes)
			if problem == nil {
				problem = &accel.Problem{}
			}
			if got.Sentence != c.sentence || got.Skipped["0"] != c.skips || problem.Reason != c.reason ||
				problem.Message != c.message {
				t.Errorf("%+v %v", got, problem)
			}
		})
	}
	check.Sentence = "it computes"
	if got, _ := together(check, []string{"0"}, []proof.Outcome{good}); got.Sentence !=
		"it computes: a card, driver 1.2, 34 ms" {
		t.Error(got)
	}
}
