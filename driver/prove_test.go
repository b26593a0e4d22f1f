package driver

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/driver/devices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

func TestProve(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := ko.Definition()
	def.Check.Write = "3628800" // a plain file returns what was written
	m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "")
	if sentence, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || sentence != def.Check.Sentence {
		t.Fatal(sentence, problem)
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
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem != nil {
		t.Fatal(problem)
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
