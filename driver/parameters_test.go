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
	if have, problem := d.Probe(def, m.Facts(), m.accs()); problem != nil || !have.Right {
		t.Fatal(have, problem)
	}
	def.Driver.Modules[0].Parameters["fail_probe"] = "0"
	if have, problem := d.Probe(def, m.Facts(), m.accs()); problem == nil || problem.Reason != accel.ParametersDiffer || have.Right {
		t.Fatal(have, problem)
	}
	unknown := m.Facts()
	unknown.Cluster.Unknown = true
	def.Driver.Modules[0].Parameters["fail_probe"] = `{{if eq .ClusterVersion "1.37"}}0{{else}}1{{end}}`
	if have, problem := d.Probe(def, unknown, m.accs()); problem != nil || !have.Right || have.Upgrade != nil {
		t.Errorf("a driver that serves while nobody knows what is wanted: %+v, %v", have, problem)
	}
	if _, problem := template.Parameters(def, unknown, def.Driver.Modules[0]); problem == nil || problem.Reason != accel.APIUnreachable {
		t.Errorf("what is not known is taken for something: %v", problem)
	}
	for _, bad := range []string{`a"b`, "a\nb", "{{.Nope}}", "{{"} {
		def.Driver.Modules[0].Parameters["fail_probe"] = bad
		if _, problem := d.Probe(def, m.Facts(), m.accs()); problem == nil || problem.Reason != accel.DefinitionInvalid {
			t.Errorf("%q: %v", bad, problem)
		}
	}
}

func TestHeadersPackage(t *testing.T) {
	for _, c := range [][3]string{
		{"debian", "6.1.0-56-amd64", "linux-headers-6.1.0-56-amd64"},
		{"ubuntu", "5.15.0-1-generic", "linux-headers-5.15.0-1-generic"},
		{"rhel", "5.14.0-1.el9.x86_64", "kernel-devel-5.14.0-1.el9.x86_64"},
		{"fedora", "6.9.1-200.fc40.x86_64", "kernel-devel-6.9.1-200.fc40.x86_64"},
		{"ol", "5.15.0-1.el8uek.x86_64", "kernel-uek-devel-5.15.0-1.el8uek.x86_64"},
		{"sles", "6.4.0-150600.23-default", "kernel-default-devel"},
		{"alpine", "6.6.52-0-lts", "linux-lts-dev"},
		{"strange", "1", "the build headers of kernel 1"},
	} {
		if got := headersPackage(accel.OS{ID: c[0]}, c[1]); got != c[2] {
			t.Errorf("%v: %q", c, got)
		}
	}
}
