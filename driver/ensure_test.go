package driver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/test/ko"
)

func TestEnsureIsIdle(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	m.enter(d, ko.Edu(), 1)
	have, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
	if problem != nil || !have.Serves || have.Source != "store" || have.Key == "" || have.Version != "1.0.0" {
		t.Fatalf("%+v %v", have, problem)
	}
	for range 3 { // another agent each time
		d = m.driver(Options{})
		again, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
		if problem != nil || cmp.Diff(have, again) != "" {
			t.Fatal(problem, cmp.Diff(have, again))
		}
	}
	if len(m.loads) != 1 {
		t.Errorf("loads: %v", m.loads)
	}
	if _, err := os.Stat(m.Path("/var/lib/acceld/attempts/" + have.Key + ".json")); !os.IsNotExist(err) {
		t.Error("the marker of the load is still there")
	}
}

// TestOrder has a row for each answer of a source. Only unavailable falls through.
func TestOrder(t *testing.T) {
	newer := ko.Edu()
	newer.Version, newer.BuildID = "2.0.0", "c2c2"
	for _, c := range []struct {
		name    string
		prepare func(*testMachine, *Driver, *accel.Definition)
		want    accel.Reason
		source  string
		tried   []string // prefixes
	}{
		{
			"nothing", func(*testMachine, *Driver, *accel.Definition) {}, accel.NoDriverSource, "",
			[]string{"loaded: unavailable", "store: unavailable", "installed: unavailable"},
		},
		{"store before installed", func(m *testMachine, d *Driver, _ *accel.Definition) {
			m.enter(d, ko.Edu(), 1)
			m.Install("updates/edu.ko", newer)
		}, "", "store", nil},
		{"installed before build", func(m *testMachine, _ *Driver, def *accel.Definition) {
			m.Install("updates/edu.ko", ko.Edu())
			def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
		}, "", "installed", nil},
		{"installed in another version", func(m *testMachine, _ *Driver, def *accel.Definition) {
			m.Install("updates/edu.ko", newer)
			def.Driver.Version = "1.0.0"
		}, accel.NoDriverSource, "", []string{
			"loaded: unavailable", "store: unavailable",
			`installed: unavailable: installed is version "2.0.0"`,
		}},
		{"store in another version", func(m *testMachine, d *Driver, def *accel.Definition) {
			m.enter(d, newer, 1)
			m.Install("updates/edu.ko", ko.Edu())
			def.Driver.Version = "1.0.0"
		}, "", "installed", nil},
		{"source missing", func(_ *testMachine, _ *Driver, def *accel.Definition) {
			def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src-{{.DriverVersion}}"}}
			def.Driver.Version = "1.0.0"
		}, accel.SourceMissing, "", []string{
			"loaded: ", "store: ", "installed: ",
			`build from /src-{{.DriverVersion}}: unavailable: the source of "qemu-edu" is not at "/src-1.0.0"`,
		}},
		{"headers missing", func(m *testMachine, _ *Driver, def *accel.Definition) {
			m.Write("/src/a.c", "x")
			def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
		}, accel.HeadersMissing, "", []string{
			"loaded: ", "store: ", "installed: ",
			`build from /src: unavailable: the headers of kernel "6.1.0-test" are not installed: install package "linux-headers-6.1.0-test"`,
		}},
		{"compiler missing", func(m *testMachine, _ *Driver, def *accel.Definition) {
			m.Write("/src/a.c", "x")
			m.Write("/lib/modules/"+ko.Release+"/build/Makefile", "x")
			def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
		}, accel.CompilerMissing, "", []string{
			"loaded: ", "store: ", "installed: ",
			"build from /src: unavailable: program \"make\"",
		}},
		{"a changed file does not degrade into a build", func(m *testMachine, d *Driver, def *accel.Definition) {
			e := m.enter(d, ko.Edu(), 1)
			m.Write(e.Path+"/edu.ko", string(newer.Bytes()))
			def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
		}, accel.DigestMismatch, "", []string{"loaded: unavailable", "store: refused: file "}},
		{"a file of the store that is gone", func(m *testMachine, d *Driver, _ *accel.Definition) {
			e := m.enter(d, ko.Edu(), 1)
			_ = os.Remove(m.Path(e.Path + "/edu.ko"))
		}, accel.DigestMismatch, "", []string{"loaded: unavailable", "store: refused: file "}},
		{"a manifest that was changed", func(m *testMachine, d *Driver, _ *accel.Definition) {
			e := m.enter(d, ko.Edu(), 1)
			m.Write(e.Path+"/manifest.json", strings.Replace(fmt.Sprint(m.Read(e.Path+"/manifest.json")), "1.0.0",
				"9.9.9", 1))
		}, accel.NoDriverSource, "", []string{"loaded: unavailable", "store: unavailable", "installed: unavailable"}},
		{"a manifest that names a file elsewhere", func(m *testMachine, d *Driver, _ *accel.Definition) {
			e := m.enter(d, ko.Edu(), 1)
			m.Write("/elsewhere/edu.ko", string(ko.Edu().Bytes()))
			m.Write(e.Path+"/manifest.json", strings.Replace(m.Read(e.Path+"/manifest.json"), `"edu.ko"`,
				`"../../../../../elsewhere/edu.ko"`, 1))
		}, accel.NoDriverSource, "", []string{"loaded: unavailable", "store: unavailable", "installed: unavailable"}},
		{"a template that cannot be filled", func(_ *testMachine, _ *Driver, def *accel.Definition) {
			def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src-{{.Nonsense}}"}}
		}, accel.DefinitionInvalid, "", []string{"loaded: ", "store: ", "installed: ", "build from "}},
		{"an option for make", func(_ *testMachine, _ *Driver, def *accel.Definition) {
			def.Driver.Sources = []accel.Source{{
				Type: accel.SourceBuild, Path: "/src",
				Make: []string{"--eval=$(shell id)"},
			}}
		}, accel.DefinitionInvalid, "", []string{"loaded: ", "store: ", "installed: ", "build from "}},
		{"a source that nobody knows", func(_ *testMachine, _ *Driver, def *accel.Definition) {
			def.Driver.Sources = []accel.Source{{Type: "magic"}}
		}, accel.DefinitionInvalid, "", []string{"loaded: ", "store: ", "installed: ", "magic: refused"}},
		{"another module is loaded", func(m *testMachine, d *Driver, def *accel.Definition) {
			m.enter(d, ko.Edu(), 1)
			m.Live(newer)
			def.Driver.Version = "1.0.0"
		}, accel.OtherModuleLoaded, "", []string{"loaded: refused: "}},
		{"another driver has the device", func(m *testMachine, d *Driver, _ *accel.Definition) {
			m.enter(d, ko.Edu(), 1)
			m.bind(ko.Device, "vfio-pci")
		}, accel.ConflictDriver, "", []string{"loaded: refused: "}},
		{"the device is kept for another driver", func(m *testMachine, d *Driver, _ *accel.Definition) {
			m.enter(d, ko.Edu(), 1)
			m.Write("/sys/bus/pci/devices/"+ko.Device+"/driver_override", "vfio-pci\n")
		}, accel.ConflictDriver, "", []string{"loaded: refused: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			d := m.driver(Options{})
			def := ko.Definition()
			c.prepare(m, d, def)
			have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
			if c.want == "" {
				if problem != nil || have.Source != c.source || !have.Serves {
					t.Fatalf("%+v %v", have, problem)
				}
				return
			}
			if problem == nil || problem.Reason != c.want {
				t.Fatalf("got %v, want %s", problem, c.want)
			}
			if len(m.loads) > 0 {
				t.Errorf("the kernel was asked to load %v", m.loads)
			}
			if len(problem.Tried) != len(c.tried) {
				t.Fatalf("tried %q", problem.Tried)
			}
			for i, prefix := range c.tried {
				if !strings.HasPrefix(problem.Tried[i], prefix) {
					t.Errorf("tried %q, want %q", problem.Tried[i], prefix)
				}
			}
		})
	}
}

func TestNoBuild(t *testing.T) {
	m := newMachine(t)
	m.Write("/src/a.c", "x")
	def := ko.Definition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
	d := m.driver(Options{})
	stored := source.Options{NoBuild: true}
	if _, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(), stored); problem == nil ||
		problem.Reason != accel.NoDriverSource {
		t.Fatal(problem)
	}
	m.enter(d, ko.Edu(), 1)
	if have, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(), stored); problem != nil || !have.Serves {
		t.Fatalf("%+v %v", have, problem)
	}
}

func TestLoadDependenciesFirst(t *testing.T) {
	m := newMachine(t)
	m.Install("kernel/base.ko", ko.Module{Name: "base"})
	m.Install("kernel/core.ko", ko.Module{Name: "core", Info: []string{"depends=base"}}, "kernel/base.ko")
	m.Install("kernel/soft.ko", ko.Module{Name: "soft"})
	m.Install("kernel/first.ko", ko.Module{Name: "first"})
	x := ko.Edu()
	x.Info = append(x.Info, "depends=core,edu_lib", "softdep=pre: soft absent")
	m.Install("updates/edu.ko", x, "kernel/core.ko", "kernel/base.ko")
	m.Install("updates/edu-lib.ko", ko.Module{Name: "edu_lib"})
	def := ko.Definition()
	def.Driver.Modules = []accel.Module{
		{Name: "edu-lib"},
		{
			Name: "edu", After: []string{"first", "builtinfs"},
			Parameters: map[string]string{"max_factorial": "12", "fail_probe": "{{if .KernelVersion}}0{{end}}"},
		},
		{Name: "extra", Optional: true},
	}
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves {
		t.Fatal(have, problem)
	}
	if diff := cmp.Diff([]string{"edu_lib", "soft", "first", "base", "core", "edu"}, m.loads); diff != "" {
		t.Error(diff)
	}
	if m.parameters["edu"] != "fail_probe=0 max_factorial=12" {
		t.Error(m.parameters["edu"])
	}
}

// TestOptionalModuleWithoutItsParameters: while it is not known what the parameters of an optional module are, the
// module is left out, and the others are loaded.
func TestOptionalModuleWithoutItsParameters(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/base.ko", ko.Module{Name: "base"})
	m.Install("updates/edu.ko", ko.Edu())
	def, facts := ko.Definition(), m.Facts()
	def.Driver.Modules = []accel.Module{
		{Name: "base", Optional: true, Parameters: map[string]string{"mode": "{{.ClusterVersion}}"}}, {Name: "edu"},
	}
	facts.Cluster.Unknown = true
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, facts, m.accs())
	if problem != nil || !have.Serves {
		t.Fatal(have, problem)
	}
	if diff := cmp.Diff([]string{"edu"}, m.loads); diff != "" {
		t.Error(diff)
	}
}

// TestTransaction has a row for each way in which a load fails: exactly what this call loaded is unloaded, in reverse
// order.
func TestTransaction(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testMachine)
		want    accel.Reason
		says    string
		unloads []string
	}{
		{"probe fails", func(m *testMachine) {
			m.failProbe[ko.Device] = true
			m.onLoad = func(name string) {
				if name == "edu" {
					m.Write("/dev/kmsg",
						"3,1,1,-;edu: loading out-of-tree module taints kernel.\n3,2,2,-;edu: probe of 0000:01:00.0 failed with error -5\n SUBSYSTEM=pci\n")
				}
			}
		}, accel.ProbeFailed, "failed with error -5", []string{"edu", "base"}},
		{"node missing", func(m *testMachine) {
			m.noNodes = true
		}, accel.NodeMissing, "/dev/edu0", []string{"edu", "base"}},
		{"refused by the kernel", func(m *testMachine) {
			m.refuse["edu"] = syscall.ENOMEM
		}, accel.LoadFailed, "cannot allocate memory", []string{"base"}},
		{"refused key", func(m *testMachine) {
			m.refuse["edu"] = syscall.EKEYREJECTED
		}, accel.Unsigned, "edu", []string{"base"}},
		{"bad parameter", func(m *testMachine) {
			m.refuse["edu"] = syscall.EINVAL
			m.onLoad = func(name string) {
				if name == "edu" {
					m.Write("/dev/kmsg", "3,2,2,-;edu: `x' invalid for parameter `max_factorial'\n")
				}
			}
		}, accel.ParameterInvalid, "invalid for parameter", []string{"base"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.Install("kernel/base.ko", ko.Module{Name: "base"})
			x := ko.Edu()
			x.Info = append(x.Info, "depends=base")
			m.Install("updates/edu.ko", x, "kernel/base.ko")
			c.prepare(m)
			d := m.driver(Options{})
			_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
			if problem == nil || problem.Reason != c.want || !strings.Contains(problem.Message, c.says) {
				t.Fatalf("got %v, want %s with %q", problem, c.want, c.says)
			}
			if diff := cmp.Diff(c.unloads, m.unloads); diff != "" {
				t.Error(diff)
			}
			if marks, _ := os.ReadDir(m.Path(d.o.StateDir + "/attempts")); len(marks) != 0 {
				t.Error("a clean refusal left the marker of an attempt")
			}
		})
	}
}

func TestOneBadDeviceDoesNotStopTheOthers(t *testing.T) {
	m := newMachine(t)
	m.AddDevice("0000:02:00.0")
	m.failProbe["0000:02:00.0"] = true
	m.Install("updates/edu.ko", ko.Edu())
	d := m.driver(Options{})
	_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.ProbeFailed || !strings.Contains(problem.Message, "0000:02:00.0") {
		t.Fatal(problem)
	}
	if len(m.unloads) != 0 {
		t.Error("the driver of a working device was unloaded")
	}
}

func TestPointerReturnsAfterABadLoad(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	good := m.enter(d, ko.Edu(), 1)
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if problem := d.Unload(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	newer := ko.Edu()
	newer.Version, newer.BuildID = "2.0.0", "c2c2"
	m.enter(d, newer, 2)
	m.failProbe[ko.Device] = true
	def := ko.Definition()
	def.Driver.Version = "2.0.0"
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil {
		t.Fatal("no problem")
	}
	if c := d.store.Choice("qemu-edu", m.Facts().Kernel); c.Current == nil || c.Current.Key != good.Key {
		t.Errorf("the choice is %+v, the last good one was %q", c, good.Key)
	}
}

func TestHungLoad(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{LoadTimeout: 30 * time.Millisecond})
	e := m.enter(d, ko.Edu(), 1)
	m.hang = true
	_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.LoadTimeout {
		t.Fatal(problem)
	}
	_, problem = d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RebootRequired {
		t.Fatal(problem)
	}
	if len(m.loads) != 1 {
		t.Errorf("a module on its way in was loaded again: %v", m.loads)
	}
	// After a reboot it is tried once more, and then never again.
	m.reboot("boot-2")
	if _, problem = d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.LoadTimeout {
		t.Fatal(problem)
	}
	m.reboot("boot-3")
	d = m.driver(Options{LoadTimeout: 30 * time.Millisecond})
	if _, problem = d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.Quarantined {
		t.Fatal(problem)
	}
	if len(m.loads) != 2 {
		t.Errorf("loads: %v", m.loads)
	}
	m.hang = false
	if _, problem = d.EnsureWith(t.Context(), ko.Definition(), m.Facts(), m.accs(),
		source.Options{Retry: true}); problem != nil {
		t.Fatal(problem)
	}
	if problem := d.attempts.Quarantined(e.Key); problem != nil {
		t.Error(problem)
	}
}

func (m *testMachine) reboot(id string) {
	_ = os.RemoveAll(m.Path("/sys/module/edu"))
	_ = os.RemoveAll(m.Path("/run"))
	m.Write("/proc/sys/kernel/random/boot_id", id+"\n")
	m.Write("/proc/sys/kernel/tainted", "0\n")
}

// TestOopsInInit: the crash kills the helper, or only the thread that loads.
func TestOopsInInit(t *testing.T) {
	for _, end := range []error{fmt.Errorf("%w (signal killed)", ErrDied), context.DeadlineExceeded} {
		t.Run(end.Error(), func(t *testing.T) { oopsInInit(t, end) })
	}
}

func oopsInInit(t *testing.T, end error) {
	m := newMachine(t)
	d := m.driver(Options{LoadTimeout: 50 * time.Millisecond})
	m.enter(d, ko.Edu(), 1)
	older := ko.Edu()
	older.BuildID = "a0a0"
	m.refuse["edu"] = end
	m.onLoad = func(string) {
		m.Write("/proc/sys/kernel/tainted", "4224\n") // D and O
		m.Write("/sys/module/edu/initstate", "coming\n")
		m.Write("/dev/kmsg", "0,1,1,-;BUG: kernel NULL pointer dereference, address: 0\n")
	}
	for i := range 2 {
		_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
		if problem == nil || problem.Reason != accel.RebootRequired {
			t.Fatal(i, problem)
		}
		if _, problem := d.Probe(ko.Definition(), m.Facts(), m.accs()); problem == nil ||
			problem.Reason != accel.RebootRequired {
			t.Fatal(i, problem)
		}
		m.reboot(fmt.Sprint("next-", i))
	}
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.Quarantined {
		t.Fatal(problem)
	}
	// The last one that was good serves.
	m.refuse, m.onLoad = map[string]error{}, nil
	m.enter(d, older, 0)
	if have, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil ||
		have.Modules[0].BuildID != "a0a0" {
		t.Fatal(have, problem)
	}
}

// TestKilledInTheMiddle kills the agent after each step of a load, like kill -9. The next agent converges, and does
// not count the load as unclean, because the kernel was not harmed.
func TestKilledInTheMiddle(t *testing.T) {
	for _, loaded := range []bool{false, true} {
		m := newMachine(t)
		d := m.driver(Options{})
		e := m.enter(d, ko.Edu(), 1)
		for range 3 {
			if problem := d.attempts.Open(e.Key); problem != nil {
				t.Fatal(problem)
			}
		}
		if loaded { // after finit_module, before the pointer was written
			m.Live(ko.Edu())
			m.probe()
		}
		have, problem := m.driver(Options{}).Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
		if problem != nil || !have.Serves {
			t.Fatalf("loaded %t: %v", loaded, problem)
		}
		if a := d.attempts.Read(e.Key); a != (store.Attempt{}) {
			t.Errorf("loaded %t: %+v", loaded, a)
		}
	}
}

func TestTwoAgentsLoadOnce(t *testing.T) {
	m := newMachine(t)
	one, two := m.driver(Options{}), m.driver(Options{})
	m.enter(one, ko.Edu(), 1)
	problems := make(chan *accel.Problem, 2)
	for _, d := range []*Driver{one, two} {
		go func() {
			_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
			problems <- problem
		}()
	}
	for range 2 {
		if p := <-problems; p != nil {
			t.Error(p)
		}
	}
	if len(m.loads) != 1 {
		t.Errorf("loads: %v", m.loads)
	}
}

func TestLocks(t *testing.T) {
	m := newMachine(t)
	release, problem := lock.Agent(m.Host, "")
	if problem != nil {
		t.Fatal(problem)
	}
	if _, problem := lock.Agent(m.Host, ""); problem == nil || problem.Reason != accel.AlreadyRunning ||
		!strings.Contains(problem.Message, fmt.Sprint("process ", os.Getpid())) {
		t.Fatal(problem)
	}
	release()
	if release, problem = lock.Agent(m.Host, ""); problem != nil {
		t.Fatal(problem)
	}
	release()
	d := m.driver(Options{})
	m.enter(d, ko.Edu(), 1)
	held, err := m.Host.Locks().Take(t.Context(), "/run/acceld/driver.lock", "{}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, problem := d.Ensure(ctx, ko.Definition(), m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.AlreadyRunning {
		t.Fatal(problem)
	}
	held()
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
}

// Neither devtmpfs nor udev recreates a node that somebody deleted.
func TestEnsureMakesADeletedNodeAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root may make device nodes")
	}
	m := newMachine(t)
	d := m.driver(Options{})
	m.enter(d, ko.Edu(), 1)
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	node := m.Path("/dev/edu0")
	if err := os.Remove(node); err != nil {
		t.Fatal(err)
	}
	if have, problem := d.Probe(ko.Definition(), m.Facts(), m.accs()); have.Serves || problem == nil ||
		problem.Reason != accel.NodeMissing {
		t.Fatalf("probe: %+v %v", have, problem)
	}
	if have, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil || !have.Serves {
		t.Fatalf("%+v %v", have, problem)
	}
	if st, err := os.Lstat(node); err != nil || st.Mode()&os.ModeCharDevice == 0 || len(m.loads) != 1 {
		t.Errorf("node %v (%v), loads %v", st, err, m.loads)
	}
}
