package driver

import (
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// pair is a definition with two modules, both of them installed.
func pair(m *testMachine) *accel.Definition {
	m.Install("updates/base.ko", ko.Module{Name: "base", BuildID: "aa", Version: "1.0.0"})
	x := ko.Edu()
	x.Info = append(x.Info, "depends=base")
	m.Install("updates/edu.ko", x, "updates/base.ko")
	def := ko.Definition()
	def.Driver.Modules = []accel.Module{{Name: "base"}, {Name: "edu"}}
	return def
}

func TestUnload(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := pair(m)
	if problem := d.Unload(t.Context(), def, m.Facts(), m.accs()); problem != nil || len(m.unloads) != 0 {
		t.Fatal("what is not loaded:", problem, m.unloads)
	}
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.Write("/sys/module/base/holders/edu", "")
	m.Write("/sys/module/base/refcnt", "1\n")
	if problem := d.Unload(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if diff := cmp.Diff([]string{"edu", "base"}, m.unloads); diff != "" {
		t.Error(diff)
	}
	if have, problem := d.Probe(def, m.Facts(), m.accs()); have.Serves || problem != nil {
		t.Error(have, problem)
	}
}

func TestUnloadInUse(t *testing.T) {
	const pod = "12345678-1234-1234-1234-123456789012"
	open := func(m *testMachine) {
		m.Write("/proc/42/comm", "python3\n")
		m.Write("/proc/42/cgroup", "0::/kubepods.slice/kubepods-pod"+strings.ReplaceAll(pod, "-", "_")+".slice/crio-"+
			strings.Repeat("ab", 32)+".scope\n")
		if err := os.MkdirAll(m.Path("/proc/42/fd"), 0o755); err != nil {
			m.T.Fatal(err)
		}
		if err := os.Symlink("/dev/edu0", m.Path("/proc/42/fd/7")); err != nil {
			m.T.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(*testMachine)
		says    string
	}{
		{"process", open, "python3 (pid 42, pod " + pod + ")"},
		{"process on a partition", func(m *testMachine) {
			m.Write("/proc/44/comm", "part\n")
			m.Write("/proc/44/maps", "7f00-7f01 rw-s 00000000 00:05 123                     /dev/edu0p1\n")
		}, "part (pid 44)"},
		{"process on a node that all devices share", func(m *testMachine) {
			m.open(45, "smi", "/dev/edu-ctl")
		}, "smi (pid 45)"},
		{"process on one that not every host has", func(m *testMachine) {
			m.open(46, "tool", "/dev/edu-log")
		}, "tool (pid 46)"},
		{"mapping", func(m *testMachine) {
			m.Write("/proc/43/comm", "miner\n")
			m.Write("/proc/43/maps", "7f00-7f01 rw-s 00000000 00:05 123                     /dev/edu0\n")
		}, "miner (pid 43)"},
		{"module", func(m *testMachine) {
			m.Write("/sys/module/edu/holders/edu_net", "")
			m.Write("/sys/module/edu/refcnt", "1\n")
		}, "module edu_net"},
		{"count", func(m *testMachine) { m.Write("/sys/module/edu/refcnt", "2\n") }, "cannot be seen"},
		{"count of one", func(m *testMachine) {
			m.Write("/sys/module/edu/refcnt", "1\n")
		}, "cannot be seen from here (the kernel counts a use of module edu)"},
		{"count beside our own module", func(m *testMachine) {
			m.Write("/sys/module/base/holders/edu", "")
			m.Write("/sys/module/base/refcnt", "2\n")
		}, "the kernel counts a use of module base"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			d := m.driver(Options{})
			def := pair(m)
			if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
				t.Fatal(problem)
			}
			c.prepare(m)
			def.Container.Nodes, def.Container.OptionalNodes = []string{"/dev/edu-ctl"}, []string{"/dev/edu-log"}
			accs := m.accs()
			accs[0].Partitions = []accel.Accelerator{{
				ID: accs[0].ID + "-half-p1", Parent: accs[0].ID,
				Nodes: []accel.DeviceNode{{Path: "/dev/edu0p1"}},
			}}
			problem := d.Unload(t.Context(), def, m.Facts(), accs)
			if problem == nil || problem.Reason != accel.InUse || !strings.Contains(problem.Message, c.says) {
				t.Fatalf("got %v, want %q", problem, c.says)
			}
			if len(m.unloads) != 0 {
				t.Errorf("removed %v all the same", m.unloads)
			}
		})
	}
}

func TestUnloadStopsHalfway(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := pair(m)
	def.Driver.Modules[1].Parameters = map[string]string{"max_factorial": "12"}
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.refuseUnload["base"] = syscall.EAGAIN
	problem := d.Unload(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.InUse {
		t.Fatal(problem)
	}
	if m.parameters["edu"] != "max_factorial=12" || fmt.Sprint(m.loads) != "[base edu edu]" {
		t.Error(m.loads, m.parameters)
	}
	if have, problem := d.Probe(def, m.Facts(), m.accs()); !have.Serves {
		t.Error(have, problem)
	}
}

// TestUnloadLoadsNothingElseBack: a file that is now of another build is not loaded in place of the module that was
// removed.
func TestUnloadLoadsNothingElseBack(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := pair(m)
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.remove(path.Join(d.o.StateDir, "kmod")) // it has a copy of what was installed
	other := ko.Edu()
	other.BuildID, other.Info = strings.Repeat("c2", 20), append(other.Info, "depends=base")
	m.Write("/lib/modules/"+ko.Release+"/updates/edu.ko", string(other.Bytes()))
	m.refuseUnload["base"] = syscall.EAGAIN
	problem := d.Unload(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.InUse || !strings.Contains(fmt.Sprint(problem.Tried),
		"load back module edu: no file with its build-id was found") {
		t.Error(problem)
	}
	if diff := cmp.Diff([]string{"base", "edu"}, m.loads); diff != "" || m.isLive("edu") {
		t.Errorf("another build was loaded:\n%s", diff)
	}
}

func TestRebind(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := pair(m)
	m.Live(ko.Module{Name: "base", BuildID: "aa"})
	m.Live(ko.Edu())
	m.failProbe[ko.Device] = true
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.ProbeFailed {
		t.Fatal(problem)
	}
	if diff := cmp.Diff([]string{"drivers_probe " + ko.Device}, m.attributes); diff != "" {
		t.Error(diff)
	}
	if len(m.loads)+len(m.unloads) != 0 {
		t.Error("a live driver was touched", m.loads, m.unloads)
	}
}
