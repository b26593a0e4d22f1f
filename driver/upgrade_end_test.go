package driver

import (
	"context"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestUpgradeCalledOff: an agent that is stopped at any point of an upgrade leaves a driver that serves. Once the old
// one is unloaded, that is the new one.
func TestUpgradeCalledOff(t *testing.T) {
	for n := 0; ; n++ {
		m, d := serving(t)
		def := wants("2.0.0")
		ctx, cancel := context.WithCancel(t.Context())
		passed, where := 0, ""
		at := func(name string) {
			if passed++; passed == n+1 {
				where = name
				cancel()
			}
		}
		m.before, d.stopAt = at, at
		_, problem := d.Upgrade(ctx, def, m.Facts(), m.accs())
		cancel()
		m.before, d.stopAt = nil, nil
		have, _ := d.Probe(def, m.Facts(), m.accs())
		if !have.Serves || len(m.unloads) > 0 && have.Version != "2.0.0" {
			t.Errorf("called off at %d (%s): %+v %v", n, where, have, problem)
		}
		if where == "" {
			break
		}
	}
}

// TestUpgradeThatHangs: a driver whose load does not end is not tried a third time, although it was rolled back each
// time.
func TestUpgradeThatHangs(t *testing.T) {
	m, d := serving(t)
	def := wants("2.0.0")
	m.onLoad = func(string) {
		delete(m.refuse, "edu")
		if len(m.loads)%2 == 1 { // the new driver; the next load is the old one
			m.refuse["edu"] = context.DeadlineExceeded
		}
	}
	for i := range int64(2) {
		def.Driver.Upgrade.Asked = time.Unix(i+1, 0)
		if have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
			problem.Reason != accel.RolledBack || have.Version != "1.0.0" {
			t.Fatalf("%+v %v", have, problem)
		}
	}
	def.Driver.Upgrade.Asked = time.Unix(3, 0)
	if have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.Quarantined || !have.Serves || len(m.loads) != 4 {
		t.Errorf("%+v %v, loads %v", have, problem, m.loads)
	}
}

// TestUpgradeThatWasAskedForFails: a request that was carried out and failed is not retried by itself.
func TestUpgradeThatWasAskedForFails(t *testing.T) {
	m, d := serving(t)
	m.bad["2.0.0"] = "wrong"
	m.Install("updates/edu.ko", version("2.0.0"))
	def := wants("") // whatever the sources have
	def.Driver.Upgrade.Asked = time.Unix(10, 0)
	if have, _ := d.Probe(def, m.Facts(), m.accs()); have.Upgrade == nil {
		t.Fatalf("%+v", have)
	}
	if have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.RolledBack || have.Version != "1.0.0" {
		t.Fatalf("%+v %v", have, problem)
	}
	if have, problem := d.Probe(def, m.Facts(), m.accs()); problem != nil || !have.Serves || have.Upgrade != nil {
		t.Errorf("it is still pending: %+v %v", have, problem)
	}
}
