package driver

import (
	"path"
	"testing"

	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/test/ko"

	"github.com/google/go-cmp/cmp"
)

// TestCopyIsNotChosen: the copy of an installed driver is only for a rollback; what is installed now is what is
// configured.
func TestCopyIsNotChosen(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	def := wants("")
	if have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
		have.Key == "" {
		t.Fatal(have, problem)
	}
	m.powerCut()
	next := ko.Edu()
	next.BuildID = "c2c2"
	m.Write("/lib/modules/"+ko.Release+"/updates/edu.ko", string(next.Bytes()))
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || len(have.Modules) != 1 || have.Modules[0].BuildID != "c2c2" {
		t.Errorf("%+v %v", have, problem)
	}
}

// TestInstalledReplaced: an installed driver without a copy counts as the one that served only while its files are
// the same.
func TestInstalledReplaced(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := wants("1.0.0")
	m.Install("updates/edu.ko", version("1.0.0"))
	p, _, problem := d.sources.Acquire(t.Context(), def, m.Facts(), source.Options{})
	if problem != nil {
		t.Fatal(problem)
	}
	served := store.GenerationOf(p, def)
	p.Close()
	for v, want := range map[string]source.Verdict{"1.0.0": source.Satisfied, "2.0.0": source.Unavailable} {
		m.Write("/lib/modules/"+ko.Release+"/updates/edu.ko", string(version(v).Bytes()))
		a := d.sources.Plan(def, m.Facts(), served)
		if a.Verdict != want {
			t.Errorf("with %s installed: %v, %v", v, a.Verdict, a.Problem)
		}
		if a.Plan != nil {
			a.Plan.Close()
		}
	}
}

// TestCollectLeaves: a store without room removes only what nobody can need.
func TestCollectLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testMachine, *Driver)
		want    []string
	}{
		"what serves and the youngest": {func(*testMachine, *Driver) {}, []string{"1.0.0", "2.0.0"}},
		"what served before": {func(m *testMachine, d *Driver) {
			if _, problem := d.Upgrade(m.T.Context(), wants("2.0.0"), m.Facts(), m.accs()); problem != nil {
				m.T.Fatal(problem)
			}
			m.enter(d, version("3.0.0"), 3)
		}, []string{"1.0.0", "2.0.0", "3.0.0"}},
		"what is loaded": {func(m *testMachine, _ *Driver) {
			m.Live(version("0.2.0"))
		}, []string{"0.2.0", "1.0.0", "2.0.0"}},
		"both ends of an upgrade": {func(m *testMachine, d *Driver) {
			unloaded := func(string) {
				if j := d.journals.read("qemu-edu"); j != nil && j.Step == StepLoad {
					panic(killed{})
				}
			}
			func() {
				defer func() { _ = recover() }()
				d.stopAt = unloaded
				_, _ = d.Upgrade(m.T.Context(), wants("2.0.0"), m.Facts(), m.accs())
			}()
			d.stopAt = nil
			if m.isLive("edu") {
				m.T.Fatal("the upgrade did not begin")
			}
			m.remove(path.Join(d.o.StateDir, "kmod/current")) // only the journal still names the driver that served
		}, []string{"1.0.0", "2.0.0"}},
	} {
		m, _ := serving(t)
		d := m.driver(Options{StoreEntries: -1})
		m.enter(d, version("0.1.0"), -2)
		m.enter(d, version("0.2.0"), -1)
		c.prepare(m, d)
		d.store.Collect(m.Facts(), d.journals.underway())
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
