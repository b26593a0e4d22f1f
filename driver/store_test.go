package driver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCopyIsNotChosen: the copy of an installed driver is to go back to; what is installed by now is what is wanted.
func TestCopyIsNotChosen(t *testing.T) {
	m := newMachine(t)
	m.install("updates/edu.ko", edu())
	def := wants("")
	if have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.facts(), m.accs()); problem != nil || have.Key == "" {
		t.Fatal(have, problem)
	}
	m.powerCut()
	next := edu()
	next.buildID = "c2c2"
	m.write("/lib/modules/"+testRelease+"/updates/edu.ko", string(next.bytes()))
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.facts(), m.accs())
	if problem != nil || len(have.Modules) != 1 || have.Modules[0].BuildID != "c2c2" {
		t.Errorf("%+v %v", have, problem)
	}
}

// TestInstalledReplaced: a driver that is installed and has no copy is the one that served only while its files are the same.
func TestInstalledReplaced(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := wants("1.0.0")
	m.install("updates/edu.ko", version("1.0.0"))
	p, _, problem := d.acquire(t.Context(), def, m.facts(), EnsureOptions{})
	if problem != nil {
		t.Fatal(problem)
	}
	served := p.generation(def)
	p.close()
	for v, want := range map[string]verdict{"1.0.0": satisfied, "2.0.0": unavailable} {
		m.write("/lib/modules/"+testRelease+"/updates/edu.ko", string(version(v).bytes()))
		a := d.planOf(def, m.facts(), served)
		if a.verdict != want {
			t.Errorf("with %s installed: %v, %v", v, a.verdict, a.problem)
		}
		if a.plan != nil {
			a.plan.close()
		}
	}
}

// TestCollectLeaves: what is removed from a store without room is what nobody can need.
func TestCollectLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testMachine, *Driver)
		want    []string
	}{
		"what serves and the youngest": {func(*testMachine, *Driver) {}, []string{"1.0.0", "2.0.0"}},
		"what is loaded":               {func(m *testMachine, _ *Driver) { m.live(version("0.2.0")) }, []string{"0.2.0", "1.0.0", "2.0.0"}},
		"both ends of an upgrade": {func(m *testMachine, d *Driver) {
			unloaded := func(string) {
				if j := d.journal("qemu-edu"); j != nil && j.Step == StepLoad {
					panic(killed{})
				}
			}
			func() {
				defer func() { _ = recover() }()
				d.stopAt = unloaded
				_, _ = d.Upgrade(m.t.Context(), wants("2.0.0"), m.facts(), m.accs())
			}()
			d.stopAt = nil
			if m.isLive("edu") {
				m.t.Fatal("the upgrade did not begin")
			}
			m.remove(d.currentDir()) // what served is in the journal alone
		}, []string{"1.0.0", "2.0.0"}},
	} {
		m, d := serving(t)
		d.o.StoreEntries = -1
		m.enter(d, version("0.1.0"), -2)
		m.enter(d, version("0.2.0"), -1)
		c.prepare(m, d)
		d.collect(m.facts())
		entries, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Version)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
