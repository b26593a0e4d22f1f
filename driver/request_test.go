package driver

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

func TestRequested(t *testing.T) {
	m := newMachine(t)
	const dir = "/var/lib/acceld"
	def := wants("1.0.0")
	if got, problem := Requested(m.Host, dir, def); problem != nil || got != def {
		t.Fatal(got, problem)
	}
	asked := time.Unix(5, 0).UTC()
	if problem := Ask(m.Host, dir, def.Kind, Request{
		Version: "2.0.0", Holders: accel.HoldersWait, Adopt: true,
		Over: "1.0.0", Asked: asked,
	}); problem != nil {
		t.Fatal(problem)
	}
	got, problem := Requested(m.Host, dir, def)
	if u := got.Driver.Upgrade; problem != nil || got.Driver.Version != "2.0.0" || u.Holders != accel.HoldersWait ||
		!u.Adopt || !u.Asked.Equal(asked) || def.Driver.Version != "1.0.0" {
		t.Errorf("%+v %v", got.Driver, problem)
	}
	later := wants("3.0.0") // a changed configuration overrides the request
	if got, problem := Requested(m.Host, dir, later); problem != nil || got.Driver.Version != "3.0.0" ||
		got.Driver.Upgrade.Adopt {
		t.Errorf("%+v %v", got.Driver, problem)
	}
	m.Write(dir+"/requests/qemu-edu.json", "{")
	if got, problem := Requested(m.Host, dir, def); problem == nil || problem.Reason != accel.ConfigInvalid ||
		got != def {
		t.Error(got, problem)
	}
}
