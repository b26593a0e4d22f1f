package driver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/test/ko"
)

// version is a good module file of a version; its build-id is derived from the version.
func version(v string) ko.Module {
	x := ko.Edu()
	x.Version, x.BuildID = v, fmt.Sprintf("%040x", []byte(v))
	return x
}

// wants is the definition with a configured version and a self-test that only reads.
func wants(v string) *accel.Definition {
	def := ko.Definition()
	def.Driver.Version = v
	def.Check = &accel.Check{File: "factorial", Want: "3628800"}
	return def
}

// serving is a machine on which acceld loaded version 1.0.0, with a store that also has 2.0.0.
func serving(t *testing.T) (*testMachine, *Driver) {
	t.Helper()
	m := newMachine(t)
	m.bad = map[string]string{}
	d := m.driver(Options{})
	m.enter(d, version("1.0.0"), 1)
	m.enter(d, version("2.0.0"), 2)
	if _, problem := d.Ensure(t.Context(), wants("1.0.0"), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.loads = nil
	return m, d
}

func (m *testMachine) liveVersion() string {
	b, _ := os.ReadFile(m.Path("/sys/module/edu/version"))
	return strings.TrimSpace(string(b))
}

// TestUpgradeToPrepared: the driver that was prepared comes from the store, whatever its sources have by now. If it is
// not there any more, it is prepared again, and nothing is unloaded before that.
func TestUpgradeToPrepared(t *testing.T) {
	for _, kept := range []bool{true, false} {
		m, d := serving(t)
		def := wants("2.0.0")
		to, problem := d.Prepare(t.Context(), def, m.Facts())
		if problem != nil || to.Key == "" {
			t.Fatal(to, problem)
		}
		def.Driver.Sources = nil // no source has it any more
		if !kept {
			if err := os.RemoveAll(m.Path(d.store.EntryDir(to.Key))); err != nil {
				t.Fatal(err)
			}
		}
		have, problem := d.UpgradeTo(t.Context(), def, m.Facts(), m.accs(), to)
		if kept && (problem != nil || have.Version != "2.0.0" || have.Key != to.Key || len(m.loads) != 1) {
			t.Errorf("%+v %v, loads %v", have, problem, m.loads)
		}
		if !kept && (problem == nil || !have.Serves || have.Version != "1.0.0" || len(m.unloads) != 0) {
			t.Errorf("without its entry: %+v %v, unloads %v", have, problem, m.unloads)
		}
		m.clean(d)
	}
}

// TestPreparedInstalledDriver: a driver that is installed on the host, was prepared and failed, is not prepared again.
func TestPreparedInstalledDriver(t *testing.T) {
	m := newMachine(t)
	m.bad = map[string]string{"2.0.0": "wrong"}
	d := m.driver(Options{})
	m.enter(d, version("1.0.0"), 1)
	if _, problem := d.Ensure(t.Context(), wants("1.0.0"), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.Install("updates/edu.ko", version("2.0.0"))
	def := wants("2.0.0")
	to, problem := d.Prepare(t.Context(), def, m.Facts())
	if problem != nil || to.Version != "2.0.0" {
		t.Fatal(to, problem)
	}
	if have, problem := d.UpgradeTo(t.Context(), def, m.Facts(), m.accs(), to); problem == nil ||
		problem.Reason != accel.RolledBack || have.Version != "1.0.0" {
		t.Fatalf("%+v %v", have, problem)
	}
	if again, problem := d.Prepare(t.Context(), def, m.Facts()); problem == nil || problem.Reason != accel.RolledBack {
		t.Errorf("it would be tried again: %v %v", again, problem)
	}
	before := len(m.unloads)
	if _, problem := d.UpgradeTo(t.Context(), def, m.Facts(), m.accs(), to); problem == nil ||
		problem.Reason != accel.RolledBack || len(m.unloads) != before {
		t.Errorf("what was prepared before it failed is loaded again: %v, unloads %v", problem, m.unloads)
	}
}

func TestUpgrade(t *testing.T) {
	m, d := serving(t)
	def := wants("2.0.0")
	have, problem := d.Probe(def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || have.Upgrade == nil || have.Version != "1.0.0" {
		t.Fatalf("while another version is wanted the old one serves: %+v %v", have, problem)
	}
	if u := have.Upgrade; u.From.Version != "1.0.0" || u.To.Version != "2.0.0" || u.Phase != accel.UpgradePending ||
		!strings.Contains(u.Why, "2.0.0") {
		t.Errorf("%+v", u)
	}
	if again, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || !again.Serves ||
		len(m.loads) != 0 {
		t.Fatalf("Ensure touched a driver that serves: %v %v", problem, m.loads)
	}
	if to, problem := d.Prepare(t.Context(), def, m.Facts()); problem != nil || to.Version != "2.0.0" ||
		len(m.loads) != 0 {
		t.Fatal(to, problem, m.loads)
	}
	have, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || have.Upgrade != nil || have.Version != "2.0.0" || m.liveVersion() != "2.0.0" {
		t.Fatalf("%+v %v", have, problem)
	}
	entries, err := d.store.List()
	if err != nil || len(entries) != 2 || !entries[0].Previous || !entries[1].Current {
		t.Errorf("%+v %v", entries, err)
	}
	m.clean(d)
	// And back again, because somebody configured it.
	if have, problem = d.Upgrade(t.Context(), wants("1.0.0"), m.Facts(), m.accs()); problem != nil ||
		have.Version != "1.0.0" {
		t.Errorf("%+v %v", have, problem)
	}
}

// clean fails the test when an upgrade left something behind.
func (m *testMachine) clean(d *Driver) {
	m.T.Helper()
	for _, dir := range []string{"/journal", "/attempts", "/build"} {
		if left, _ := os.ReadDir(m.Path(d.o.StateDir + dir)); len(left) != 0 {
			m.T.Errorf("left in %s: %v", dir, left)
		}
	}
}

func TestUpgradeOfParameters(t *testing.T) {
	m, d := serving(t)
	def := wants("1.0.0")
	def.Driver.Modules[0].Parameters = map[string]string{"max_factorial": "12"}
	m.Write("/sys/module/edu/parameters/max_factorial", "20\n")
	have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || m.parameters["edu"] != "max_factorial=12" {
		t.Fatalf("%+v %v %q", have, problem, m.parameters["edu"])
	}
}

func TestUpgradeThatWasAskedFor(t *testing.T) {
	m, d := serving(t)
	def := wants("1.0.0")
	def.Driver.Upgrade.Asked = time.Unix(10, 0)
	if have, _ := d.Probe(def, m.Facts(), m.accs()); have.Upgrade == nil || !have.Serves {
		t.Fatalf("%+v", have)
	}
	have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || have.Upgrade != nil || len(m.loads) != 0 {
		t.Errorf("the sources have what serves: %+v %v, loads %v", have, problem, m.loads)
	}
}

// TestForeignDriver: a driver that acceld did not choose is never touched unless the definition allows it.
func TestForeignDriver(t *testing.T) {
	for _, adopt := range []bool{false, true} {
		m := newMachine(t)
		d := m.driver(Options{})
		m.enter(d, version("2.0.0"), 2)
		m.Live(version("0.9.0"))
		m.probe()
		m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "3628800\n")
		def := wants("2.0.0")
		def.Driver.Upgrade.Adopt = adopt
		have, problem := d.Probe(def, m.Facts(), m.accs())
		if !adopt && (have.Serves || have.Upgrade != nil || problem == nil ||
			problem.Reason != accel.OtherModuleLoaded) {
			t.Errorf("%+v %v", have, problem)
		}
		have, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
		if !adopt && (problem == nil || len(m.loads)+len(m.unloads) != 0) {
			t.Errorf("a foreign driver was touched: %v %v", m.loads, m.unloads)
		}
		if adopt && (problem != nil || have.Version != "2.0.0") {
			t.Errorf("%+v %v", have, problem)
		}
	}
}

func TestUpgradeInUse(t *testing.T) {
	m, d := serving(t)
	m.Write("/proc/42/comm", "python3\n")
	if err := os.MkdirAll(m.Path("/proc/42/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/edu0", m.Path("/proc/42/fd/7")); err != nil {
		t.Fatal(err)
	}
	have, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.InUse || !strings.Contains(problem.Message, "python3 (pid 42)") ||
		!have.Serves || have.Upgrade == nil {
		t.Fatalf("%+v %v", have, problem)
	}
	if len(m.loads)+len(m.unloads) != 0 {
		t.Error(m.loads, m.unloads)
	}
	m.clean(d)
}

// TestRollBack has a row for each way in which a new driver fails. The old one serves again, the reason says what
// failed, and the new one is not tried again until something changes.
func TestRollBack(t *testing.T) {
	for how, says := range map[string]string{
		"refused": "cannot allocate memory", "unbound": "not bound", "wrong": `gave "0" instead of "3628800"`,
	} {
		t.Run(how, func(t *testing.T) {
			m, d := serving(t)
			m.bad["2.0.0"] = how
			def := wants("2.0.0")
			have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
			if problem == nil || problem.Reason != accel.RolledBack || !strings.Contains(problem.Message, says) ||
				!strings.Contains(problem.Message, "version 1.0.0 serves again") {
				t.Fatalf("got %v", problem)
			}
			if !have.Serves || have.Version != "1.0.0" || have.Upgrade == nil {
				t.Fatalf("%+v", have)
			}
			m.clean(d)
			m.loads, m.unloads = nil, nil
			d = m.driver(Options{}) // also another agent
			for range 2 {
				if _, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
					problem.Reason != accel.RolledBack || !strings.Contains(problem.Message, says) {
					t.Fatal(problem)
				}
			}
			if len(m.loads)+len(m.unloads) != 0 {
				t.Errorf("it was tried again: %v %v", m.loads, m.unloads)
			}
			// Not at the next boot either.
			m.powerCut()
			if have, problem = m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
				have.Version != "1.0.0" || len(m.loads) != 1 {
				t.Fatalf("%+v %v %v", have, problem, m.loads)
			}
			// Another driver of the same version is tried, and so is the same one if somebody requests it.
			delete(m.bad, "2.0.0")
			def.Driver.Upgrade.Asked = time.Unix(100, 0)
			if have, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
				have.Version != "2.0.0" {
				t.Fatalf("%+v %v", have, problem)
			}
		})
	}
}

func TestRollBackFails(t *testing.T) {
	m, d := serving(t)
	m.bad["1.0.0"], m.bad["2.0.0"] = "refused", "wrong"
	def := wants("2.0.0")
	have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RollbackFailed || have.Serves || !strings.Contains(problem.Message,
		"instead of") || !strings.Contains(problem.Message, "cannot allocate memory") {
		t.Fatalf("%+v %v", have, problem)
	}
	for range 2 { // the problem stays reported, and only the old driver is tried
		if _, problem = d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
			problem.Reason != accel.RollbackFailed {
			t.Fatal(problem)
		}
	}
	delete(m.bad, "1.0.0")
	if have, problem = d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || have.Version != "1.0.0" ||
		have.Upgrade == nil {
		t.Fatalf("%+v %v", have, problem)
	}
	m.clean(d)
}

// powerCut ends the machine: modules, bindings and nodes are gone, and another boot begins.
func (m *testMachine) powerCut() {
	m.T.Helper()
	before := m.before
	m.before = nil
	unloads := len(m.unloads)
	if err := m.Unload(m.T.Context(), "edu"); err != nil {
		m.T.Fatal(err)
	}
	m.unloads = m.unloads[:unloads]
	m.before = before
	m.reboot(fmt.Sprintf("boot-%d", time.Now().UnixNano()))
}

// killed is the panic value of a simulated kill -9.
type killed struct{}

// killAt runs do and kills it, like kill -9, at the nth point, counted from 0. It returns the names of the points
// that were passed, and whether do was killed.
func (m *testMachine) killAt(d *Driver, n int, do func()) (points []string, dead bool) {
	at := func(name string) {
		points = append(points, name)
		if len(points) == n+1 {
			panic(killed{})
		}
	}
	m.before, d.stopAt = at, at
	defer func() {
		m.before, d.stopAt = nil, nil
		if r := recover(); r != nil {
			if _, ours := r.(killed); !ours {
				panic(r)
			}
			dead = true
		}
	}()
	do()
	return points, false
}

// TestUpgradeKilledAtEveryPoint kills the agent before and after everything that outlives it, in an upgrade that
// succeeds and in one that is rolled back. It continues in another process, after kill -9 and after a power cut.
func TestUpgradeKilledAtEveryPoint(t *testing.T) {
	for _, how := range []string{"", "wrong"} {
		for _, power := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s power cut %t", how, power), func(t *testing.T) {
				t.Parallel()
				killEverywhere(t, how, power)
			})
		}
	}
	all := []UpgradeStep{StepUnload, StepLoad, StepProve, StepCommit, StepRevert, StepRestore, StepReject}
	if len(all) != 7 || slices.Contains(all, "") {
		t.Error(all)
	}
}

// killEverywhere goes through the points of one upgrade. How says in which way the new driver fails.
func killEverywhere(t *testing.T, how string, power bool) {
	seen := map[string]bool{}
	for n := 0; ; n++ {
		m, d := serving(t)
		m.bad["2.0.0"] = how
		def := wants("2.0.0")
		points, dead := m.killAt(d, n, func() { _, _ = d.Upgrade(t.Context(), def, m.Facts(), m.accs()) })
		if !dead {
			break
		}
		at := fmt.Sprintf("%q, power cut %t, killed at %d (%s)", how, power, n, points[len(points)-1])
		if j := d.journals.read("qemu-edu"); j != nil {
			seen[string(j.Step)] = true
		}
		committed := d.store.Choice("qemu-edu", m.Facts().Kernel).Current.Version == "2.0.0"
		if j := d.journals.read("qemu-edu"); j != nil && j.Step == StepCommit {
			committed = true
		}
		if power {
			m.powerCut()
		}
		d = m.driver(Options{})
		have, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(), source.Options{NoBuild: true})
		// If nothing has begun, the boot itself may try the new driver and roll it back.
		if problem != nil && problem.Reason != accel.RolledBack || !have.Serves || m.liveVersion() != have.Version {
			t.Errorf("%s: %+v %v", at, have, problem)
			continue
		}
		if power && (m.liveVersion() == "2.0.0") != committed && len(points) > 2 {
			t.Errorf("%s: after the reboot version %s is loaded, committed %t", at, m.liveVersion(), committed)
		}
		have, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
		if !have.Serves || how == "" && (problem != nil || have.Version != "2.0.0") || how != "" &&
			(problem == nil || problem.Reason != accel.RolledBack || have.Version != "1.0.0") {
			t.Errorf("%s: in the end %+v %v", at, have, problem)
		}
		if !power { // otherwise a load that the machine did not survive stays counted
			m.clean(d)
		}
	}
	want := []UpgradeStep{StepUnload, StepLoad, StepProve, StepCommit}
	if how != "" {
		want = []UpgradeStep{StepUnload, StepLoad, StepProve, StepRevert, StepRestore, StepReject}
	}
	for _, s := range want {
		if !seen[string(s)] {
			t.Errorf("%q: no test stopped at step %q", how, s)
		}
	}
}

// TestUpgradeInterruptedByABootOfAnotherKernel: the machine goes down in the middle of an upgrade and boots another
// kernel, on which a driver served before. What the upgrade was about to note concerns the previous kernel. It
// neither chooses nor rejects a driver for this one.
func TestUpgradeInterruptedByABootOfAnotherKernel(t *testing.T) {
	for _, c := range []struct {
		how  string // the new driver fails on the previous kernel
		step UpgradeStep
		has  bool // the store has the new driver for this kernel too
	}{{"", StepCommit, false}, {"", StepCommit, true}, {"wrong", StepReject, false}, {"wrong", StepReject, true}} {
		t.Run(fmt.Sprintf("%s new driver %t", c.step, c.has), func(t *testing.T) {
			m, d := serving(t)
			facts := m.Facts()
			facts.Kernel.Release, facts.Kernel.BuildID = "6.2.0-other", "0fedcba987654321"
			m.Write("/lib/modules/6.2.0-other/modules.builtin", "")
			for i, v := range []string{"1.0.0", "2.0.0"} {
				x := version(v)
				x.Vermagic, x.BuildID = "6.2.0-other "+ko.Flags+" ", strings.Replace(x.BuildID, "0", "f", 1)
				if v == "1.0.0" || c.has {
					m.enterFor(facts.Kernel, d, x, int64(10+i))
				}
			}
			m.powerCut()
			if have, problem := d.Ensure(t.Context(), wants("1.0.0"), facts, m.accs()); problem != nil || !have.Serves {
				t.Fatal(have, problem)
			}
			m.powerCut()
			if _, problem := d.Ensure(t.Context(), wants("1.0.0"), m.Facts(), m.accs()); problem != nil {
				t.Fatal(problem)
			}
			def := wants("2.0.0")
			m.bad["2.0.0"] = c.how
			_, dead := m.killAt(d, 1<<30, func() {
				at := d.stopAt
				d.stopAt = func(name string) {
					at(name)
					if j := d.journals.read(def.Kind); j != nil && j.Step == c.step {
						panic(killed{})
					}
				}
				_, _ = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
			})
			if !dead {
				t.Fatalf("the upgrade never came to %q", c.step)
			}
			m.powerCut()
			delete(m.bad, "2.0.0")
			m.loads = nil
			d = m.driver(Options{})
			have, problem := d.EnsureWith(t.Context(), def, facts, m.accs(), source.Options{NoBuild: true})
			if problem != nil || !have.Serves || have.Version != "1.0.0" || have.Upgrade == nil || len(m.loads) != 1 {
				t.Errorf("what served on this kernel does not serve again: %+v %v, loads %v", have, problem, m.loads)
			}
			for _, k := range []accel.Kernel{facts.Kernel, m.Facts().Kernel} {
				if choice := d.store.Choice(def.Kind, k); choice.Rejected != nil {
					t.Errorf("on kernel %s version %s is rejected: %v", k.Release, choice.Rejected.Version,
						choice.Rejected.Problem)
				}
			}
			if left := d.journals.read(def.Kind); left != nil {
				t.Errorf("the journal is still there, at %q", left.Step)
			}
			if have, problem = d.Upgrade(t.Context(), def, facts, m.accs()); c.has &&
				(problem != nil || have.Version != "2.0.0") {
				t.Errorf("the wanted driver does not come: %+v %v", have, problem)
			}
		})
	}
}

// TestUpgradeInterruptedForEver: a driver that kills its agent each time it is loaded is rolled back.
func TestUpgradeInterruptedForEver(t *testing.T) {
	m, d := serving(t)
	def := wants("2.0.0")
	kill := func(op string) {
		if op == "load edu" && m.liveVersion() == "2.0.0" {
			panic(killed{})
		}
	}
	for i := range 10 {
		m.before = kill
		ended := func() (ended bool) {
			defer func() { ended = recover() == nil }()
			if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
				t.Fatal(problem)
			}
			_, _ = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
			return true
		}()
		m.before = nil
		if j := d.journals.read("qemu-edu"); j != nil && j.Step == StepProve {
			m.T.Fatal("it must not have come that far")
		}
		if ended {
			if have, problem := d.Probe(def, m.Facts(), m.accs()); problem != nil || have.Version != "1.0.0" || i > 4 {
				t.Errorf("after %d rounds: %+v %v", i, have, problem)
			}
			return
		}
		_ = m.Unload(t.Context(), "edu") // the module's state afterwards does not matter here
		d = m.driver(Options{})
	}
	t.Error("it is tried for ever")
}

// TestUpgradeThatCrashesTheMachine: the machine does not survive two loads of the new driver. The third boot serves
// the old driver without trying the new one.
func TestUpgradeThatCrashesTheMachine(t *testing.T) {
	m, d := serving(t)
	def := wants("2.0.0")
	for range 2 {
		m.before = func(op string) {
			if op == "load edu" && m.liveVersion() == "2.0.0" {
				panic(killed{})
			}
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
			t.Error("the machine survived")
		}()
		m.before = nil
		m.powerCut()
		d = m.driver(Options{})
		if have, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(),
			source.Options{NoBuild: true}); problem != nil || have.Version != "1.0.0" || have.Upgrade == nil {
			t.Fatalf("%+v %v", have, problem)
		}
	}
	if have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.Quarantined || !have.Serves {
		t.Fatalf("%+v %v", have, problem)
	}
}

// TestRollBackOfAnInstalledDriver: the package manager replaced the old driver by the new one; a rollback still
// works.
func TestRollBackOfAnInstalledDriver(t *testing.T) {
	m := newMachine(t)
	m.bad = map[string]string{"2.0.0": "wrong"}
	d := m.driver(Options{})
	m.Install("updates/edu.ko", version("1.0.0"))
	if have, problem := d.Ensure(t.Context(), wants("1.0.0"), m.Facts(), m.accs()); problem != nil ||
		have.Source != "installed" || have.Key == "" {
		t.Fatal(have, problem)
	}
	m.Write("/lib/modules/"+ko.Release+"/updates/edu.ko", string(version("2.0.0").Bytes()))
	have, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RolledBack || have.Version != "1.0.0" || !have.Serves {
		t.Fatalf("%+v %v", have, problem)
	}
	m.bad = nil
	if have, problem = d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs()); problem == nil ||
		have.Version != "1.0.0" {
		t.Fatalf("%+v %v", have, problem)
	}
}

// TestBootWithoutTheWantedDriver: if the configured version is not available, the next boot keeps the last good one.
func TestBootWithoutTheWantedDriver(t *testing.T) {
	m, _ := serving(t)
	m.powerCut()
	def := wants("3.0.0")
	have, problem := m.driver(Options{}).EnsureWith(t.Context(), def, m.Facts(), m.accs(),
		source.Options{NoBuild: true})
	if problem != nil || !have.Serves || have.Version != "1.0.0" || have.Upgrade == nil {
		t.Fatalf("%+v %v", have, problem)
	}
	if _, problem = m.driver(Options{}).Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.NoDriverSource {
		t.Error(problem)
	}
}

// TestUpgradeWithABadDevice: a device that did not work with the old driver does not count against the new one. The
// upgrade has succeeded, and what the device has is reported as it was before.
func TestUpgradeWithABadDevice(t *testing.T) {
	m, d := serving(t)
	m.AddDevice("0000:02:00.0")
	m.failProbe["0000:02:00.0"] = true
	have, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	if problem != nil || have.Version != "2.0.0" || have.Serves || have.Upgrade != nil {
		t.Errorf("%+v %v", have, problem)
	}
	if have, problem = d.Ensure(t.Context(), wants("2.0.0"), m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.ProbeFailed {
		t.Errorf("%+v %v", have, problem)
	}
}

// TestUpgradeOfADriverThatServesNoDevice: if no device worked with the old driver, all must pass their self-test with
// the new one.
func TestUpgradeOfADriverThatServesNoDevice(t *testing.T) {
	m, d := serving(t)
	if err := m.unbind(ko.Device); err != nil {
		t.Fatal(err)
	}
	m.failProbe[ko.Device] = true
	m.onLoad = func(string) { m.failProbe[ko.Device] = false }
	m.bad["2.0.0"] = "wrong"
	have, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RolledBack || !strings.Contains(problem.Message, "instead of") ||
		have.Version != "1.0.0" {
		t.Errorf("%+v %v", have, problem)
	}
}

func TestUpgradeWithoutSpaceChangesNothing(t *testing.T) {
	m, d := serving(t)
	m.Write(d.o.StateDir+"/journal", "in the way") // no directory can be created
	have, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	if problem == nil || !have.Serves || have.Version != "1.0.0" || len(m.unloads) != 0 {
		t.Errorf("%+v %v %v", have, problem, m.unloads)
	}
}

// TestUpgradeThatTheMachineRefuses: after the old driver is unloaded, the disk becomes full, read-only or unusable,
// or the kernel forbids loading. The old driver is loaded again, although that cannot be noted. The new one is not to
// blame and is loaded once the machine is repaired.
func TestUpgradeThatTheMachineRefuses(t *testing.T) {
	mounted := func(options string, flags uintptr) func(*testing.T, *testMachine, string) {
		return func(t *testing.T, _ *testMachine, dir string) {
			if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
				t.Skipf("no file system can be mounted: %v", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		}
	}
	for _, c := range []struct {
		name     string
		obstruct func(t *testing.T, m *testMachine, attempts string)
		mend     func(m *testMachine, attempts string)
		want     accel.Reason
	}{
		{"full", mounted("nr_inodes=1", 0), func(_ *testMachine, dir string) {
			_ = syscall.Unmount(dir, 0)
		}, accel.NoSpace},
		{"read-only", mounted("", syscall.MS_RDONLY), func(_ *testMachine, dir string) {
			_ = syscall.Unmount(dir, 0)
		}, accel.ReadOnly},
		{"forbidden", func(_ *testing.T, m *testMachine, _ string) {
			m.bad["2.0.0"] = "denied"
		}, func(m *testMachine, _ string) { delete(m.bad, "2.0.0") }, accel.PermissionDenied},
		{"unusable", func(t *testing.T, _ *testMachine, dir string) {
			if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, nil, accel.RolledBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, d := serving(t)
			dir := m.Path(d.o.StateDir + "/attempts")
			c.obstruct(t, m, dir)
			def := wants("2.0.0")
			have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
			if problem == nil || problem.Reason != c.want {
				t.Errorf("got %v, want %s", problem, c.want)
			}
			if !have.Serves || have.Version != "1.0.0" || m.liveVersion() != "1.0.0" || len(m.unloads) != 1 {
				t.Fatalf("%+v, unloads %v: the old driver does not serve again", have, m.unloads)
			}
			if c.mend == nil {
				return
			}
			c.mend(m, dir)
			if have, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
				have.Version != "2.0.0" {
				t.Errorf("after it was mended: %+v %v", have, problem)
			}
			m.clean(d)
		})
	}
}

// TestUpgradeResumedOnAFullDisk: the agent is killed after it has unloaded the old driver, and the disk is full when
// another one resumes the upgrade. The files of the old driver are in the store, and it serves again.
func TestUpgradeResumedOnAFullDisk(t *testing.T) {
	m, d := serving(t)
	def := wants("2.0.0")
	_, dead := m.killAt(d, 1<<30, func() {
		at := d.stopAt
		d.stopAt = func(name string) {
			at(name)
			if j := d.journals.read(def.Kind); j != nil && j.Step == StepLoad {
				panic(killed{})
			}
		}
		_, _ = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	})
	if !dead || m.liveVersion() != "" {
		t.Fatalf("killed %t, version %q is loaded", dead, m.liveVersion())
	}
	name := d.journals.file(def.Kind)
	journal, err := os.ReadFile(m.Path(name))
	if err != nil {
		t.Fatal(err)
	}
	// One inode is for the directory, one for the journal that is there. No other file can be created.
	for dir, inodes := range map[string]string{"/journal": "nr_inodes=2", "/attempts": "nr_inodes=1"} {
		at := m.Path(d.o.StateDir + dir)
		if err := syscall.Mount("tmpfs", at, "tmpfs", 0, inodes); err != nil {
			t.Skipf("no file system can be mounted: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	}
	m.Write(name, string(journal))
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || have.Version != "1.0.0" || m.liveVersion() != "1.0.0" {
		t.Errorf("%+v %v, version %q is loaded", have, problem, m.liveVersion())
	}
	m.clean(d)
}

func TestUpgradeRefusedByTheKernel(t *testing.T) {
	m, d := serving(t)
	m.refuseUnload["edu"] = syscall.EAGAIN
	have, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.InUse || !have.Serves || have.Upgrade == nil {
		t.Errorf("%+v %v", have, problem)
	}
	m.clean(d)
}

func TestCollect(t *testing.T) {
	m, _ := serving(t)
	d := m.driver(Options{StoreEntries: 1})
	for i := range 6 {
		m.enter(d, version(fmt.Sprintf("0.%d.0", i)), int64(-10+i))
	}
	if _, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	entries, err := d.store.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Version)
	}
	if diff := cmp.Diff([]string{"0.5.0", "1.0.0", "2.0.0"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestCollectKilled: a process that is killed while it removes an entry leaves no entry that claims to have modules.
// Such an entry would be preferred to every source, and then refused.
func TestCollectKilled(t *testing.T) {
	m, _ := serving(t)
	d := m.driver(Options{StoreEntries: -1})
	old := m.enter(d, version("0.1.0"), -1)
	func() {
		defer func() {
			if _, ours := recover().(killed); !ours {
				t.Fatal("nothing was removed")
			}
		}()
		d.stopAt = func(name string) {
			if name == "discard" {
				panic(killed{})
			}
		}
		_, _ = d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs())
	}()
	if err := os.Remove(m.Path(old.Path + "/edu.ko")); err != nil { // files may be removed in any order
		t.Fatal(err)
	}
	d = m.driver(Options{})
	if found, err := d.store.Find(wants("0.1.0"), m.Facts().Kernel); err != nil || len(found) != 0 {
		t.Errorf("half an entry is taken for a whole one: %+v, %v", found, err)
	}
}

// TestRollBackOfAnAdoptedDriver: the driver that acceld found loaded, and replaces by one that fails, comes back.
func TestRollBackOfAnAdoptedDriver(t *testing.T) {
	m := newMachine(t)
	m.bad = map[string]string{"2.0.0": "wrong"}
	d := m.driver(Options{})
	m.enter(d, version("2.0.0"), 2)
	m.Install("updates/edu.ko", version("0.9.0"))
	m.Live(version("0.9.0"))
	m.probe()
	m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "3628800\n")
	def := wants("2.0.0")
	def.Driver.Upgrade.Adopt = true
	have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RolledBack || have.Version != "0.9.0" || m.liveVersion() != "0.9.0" {
		t.Fatalf("%+v %v, live is %q", have, problem, m.liveVersion())
	}
}
