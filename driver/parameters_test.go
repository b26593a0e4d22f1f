package driver

import (
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/test/ko"
)

func TestParametersDiffer(t *testing.T) {
	m := newMachine(t)
	m.Live(ko.Edu())
	m.Write("/sys/module/edu/parameters/fail_probe", "Y\n")
	m.probe()
	d := m.driver(Options{})
	def := ko.Definition()
	def.Driver.Modules[0].Parameters = map[string]string{"fail_probe": "1", "hidden": "7"}
	if have, problem := d.Probe(def, m.Facts(), m.accs()); problem != nil || !have.Serves {
		t.Fatal(have, problem)
	}
	def.Driver.Modules[0].Parameters["fail_probe"] = "0"
	if have, problem := d.Probe(def, m.Facts(), m.accs()); problem == nil || problem.Reason != accel.ParametersDiffer ||
		have.Serves {
		t.Fatal(have, problem)
	}
	unknown := m.Facts()
	unknown.Cluster.Unknown = true
	def.Driver.Modules[0].Parameters["fail_probe"] = `{{if eq .ClusterVersion "1.37"}}0{{else}}1{{end}}`
	if have, problem := d.Probe(def, unknown, m.accs()); problem != nil || !have.Serves || have.Upgrade != nil {
		t.Errorf("a driver that serves while nobody knows what is wanted: %+v, %v", have, problem)
	}
	if _, problem := template.Parameters(def, unknown, def.Driver.Modules[0]); problem == nil ||
		problem.Reason != accel.APIUnreachable {
		t.Errorf("what is not known is taken for something: %v", problem)
	}
	for _, bad := range []string{`a"b`, "a\nb", "{{.Nope}}", "{{"} {
		def.Driver.Modules[0].Parameters["fail_probe"] = bad
		if _, problem := d.Probe(def, m.Facts(), m.accs()); problem == nil ||
			problem.Reason != accel.DefinitionInvalid {
			t.Errorf("%q: %v", bad, problem)
		}
	}
}
