package driver

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

func TestProve(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := ko.Definition()
	def.Check.Write = "3628800" // a plain file gives back what was written
	m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "")
	if sentence, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || sentence != def.Check.Sentence {
		t.Fatal(sentence, problem)
	}
	def.Check.Want = "7"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed || !strings.Contains(problem.Message, `gave "3628800" instead of "7"`) {
		t.Fatal(problem)
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
