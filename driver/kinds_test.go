package driver

import (
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

// withHelper installs edu and a module that it needs.
func withHelper(m *testMachine) ko.Module {
	helper := ko.Module{Name: "helper", BuildID: strings.Repeat("c1", 20)}
	x := ko.Edu()
	x.Info = append(x.Info, "depends=helper")
	m.Install("kernel/helper.ko", helper)
	m.Install("updates/edu.ko", x, "kernel/helper.ko")
	return helper
}

// TestPlanOfBefore: while a kind waits for the driver lock, another one takes back the module that both need. The plan
// is made again under the lock, whether the driver is installed or in the store.
func TestPlanOfBefore(t *testing.T) {
	for _, stored := range []bool{false, true} {
		m := newMachine(t)
		helper := withHelper(m)
		m.Live(helper)
		release, problem := m.driver(Options{}).locks.Driver(t.Context(), "other-kind")
		if problem != nil {
			t.Fatal(problem)
		}
		d := m.driver(Options{Progress: func(p accel.Progress) {
			if p.Stage == accel.StageWait && !p.Ended {
				_ = os.RemoveAll(m.Path("/sys/module/helper"))
				release()
			}
		}})
		if stored {
			x := ko.Edu()
			x.Info = append(x.Info, "depends=helper")
			m.enter(d, x, 1)
		}
		have, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
		if diff := cmp.Diff([]string{"helper", "edu"}, m.loads); problem != nil || !have.Serves || diff != "" {
			t.Errorf("stored %t: %+v %v\n%s", stored, have, problem, diff)
		}
	}
}

// TestPlanOfBeforeIsGone: nothing is loaded if the plan cannot be made again.
func TestPlanOfBeforeIsGone(t *testing.T) {
	m := newMachine(t)
	m.Live(withHelper(m))
	release, problem := m.driver(Options{}).locks.Driver(t.Context(), "other-kind")
	if problem != nil {
		t.Fatal(problem)
	}
	d := m.driver(Options{Progress: func(p accel.Progress) {
		if p.Stage == accel.StageWait && !p.Ended {
			_ = os.RemoveAll(m.Path("/sys/module/helper"))
			_ = os.Remove(m.Path("/lib/modules/" + ko.Release + "/kernel/helper.ko"))
			release()
		}
	}})
	_, problem = d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
	if problem == nil || len(m.loads) > 0 {
		t.Errorf("%v, loaded %v", problem, m.loads)
	}
}

// TestModulesOfBefore: the modules that were live when the driver was looked at, and to which the device was not bound,
// were those of another kind's load, which is rolled back. They are loaded.
func TestModulesOfBefore(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	m.Live(ko.Edu())
	release, problem := m.driver(Options{}).locks.Driver(t.Context(), "other-kind")
	if problem != nil {
		t.Fatal(problem)
	}
	d := m.driver(Options{Progress: func(p accel.Progress) {
		if p.Stage == accel.StageWait && !p.Ended {
			_ = os.RemoveAll(m.Path("/sys/module/edu"))
			release()
		}
	}})
	have, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
	if problem != nil || !have.Serves || !slices.Equal(m.loads, []string{"edu"}) {
		t.Errorf("%+v %v, loaded %v", have, problem, m.loads)
	}
}

// share shows a device of another kind that is bound to the driver in a module.
func (m *testMachine) share(module, id string) {
	m.T.Helper()
	for name, target := range map[string]string{
		"/sys/module/" + module + "/drivers/pci:" + module: "../../../bus/pci/drivers/" + module,
		"/sys/bus/pci/drivers/" + module + "/" + id:        "../../../../devices/pci0000:00/0000:00:02.0/" + id,
		"/sys/bus/pci/drivers/" + module + "/module":       "../../../../module/" + module,
	} {
		if err := os.MkdirAll(m.Path(name[:strings.LastIndex(name, "/")]), 0o755); err != nil {
			m.T.Fatal(err)
		}
		if err := os.Symlink(target, m.Path(name)); err != nil && !os.IsExist(err) {
			m.T.Fatal(err)
		}
	}
}

// TestRollbackLeavesOthers: a load that fails does not take the module from a device of another kind, which has been
// bound meanwhile. Nobody else removes it either while that device has it.
func TestRollbackLeavesOthers(t *testing.T) {
	const other = "0000:09:00.0"
	for _, shared := range []bool{false, true} {
		m := newMachine(t)
		m.Install("updates/edu.ko", ko.Edu())
		m.failProbe = map[string]bool{ko.Device: true}
		m.before = func(op string) {
			if shared && op == "load edu" && m.isLive("edu") {
				m.share("edu", other)
			}
		}
		d := m.driver(Options{})
		_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
		if problem == nil || problem.Reason != accel.ProbeFailed || m.isLive("edu") != shared {
			t.Errorf("shared %t: %v, live %t", shared, problem, m.isLive("edu"))
		}
		if !shared {
			continue
		}
		problem = d.Unload(t.Context(), ko.Definition(), m.Facts(), m.accs())
		if problem == nil || problem.Reason != accel.InUse || !strings.Contains(problem.Message, other) ||
			!m.isLive("edu") {
			t.Errorf("unload: %v, live %t", problem, m.isLive("edu"))
		}
		virtual := "/sys/devices/pci0000:00/0000:00:02.0/" + other
		m.Write(virtual+"/vendor", "0xffff\n")
		if err := os.Symlink("../"+ko.Device, m.Path(virtual+"/physfn")); err != nil {
			t.Fatal(err)
		}
		if who := d.devices.Others([]string{"edu"}, m.accs()); len(who) > 0 {
			t.Errorf("a virtual function of our device is another's: %v", who)
		}
		_ = os.Remove(m.Path(virtual + "/physfn"))
		ours := append(m.accs(), accel.Accelerator{ID: other, Health: accel.Health{State: accel.Healthy}})
		if problem := d.Unload(t.Context(), ko.Definition(), m.Facts(), ours); problem != nil {
			t.Errorf("with its own devices: %v", problem)
		}
	}
}

// TestTakeoverIsLast: what can fail before a device is needed fails before it is taken from another driver.
func TestTakeoverIsLast(t *testing.T) {
	m, def := contested(t)
	withHelper(m)
	m.refuse["helper"] = syscall.ENOMEM
	_, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || !slices.Equal(m.loads, []string{"helper"}) || len(m.attributes) > 0 ||
		m.bound(ko.Device) != "other" {
		t.Errorf("%v, loads %v, attributes %v", problem, m.loads, m.attributes)
	}
}

// TestTakeoverIsNotRepeated: after a load that failed, the device stays with its driver until another driver is found,
// somebody asks, or a while has passed.
func TestTakeoverIsNotRepeated(t *testing.T) {
	m, def := contested(t)
	d := m.driver(Options{})
	m.refuse["edu"] = syscall.ENOMEM
	try := func(what string, o source.Options, taken bool) {
		t.Helper()
		m.attributes = nil
		m.Write(overrideOf(ko.Device), "\n") // a file keeps the tail of longer content
		_, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(), o)
		if problem == nil || (len(m.attributes) > 0) != taken || m.bound(ko.Device) != "other" {
			t.Errorf("%s: %v, attributes %v, bound to %q", what, problem, m.attributes, m.bound(ko.Device))
		}
		if says := problem != nil && strings.Contains(problem.Message, `stays with driver "other"`); says == taken {
			t.Errorf("%s: %v", what, problem)
		}
	}
	try("the first attempt", source.Options{}, true)
	try("the next", source.Options{}, false)
	try("and the next", source.Options{}, false)
	try("somebody asks", source.Options{Retry: true}, true)
	last := d.takes.last[def.Kind]
	last.at = last.at.Add(-takeAgain)
	d.takes.last[def.Kind] = last
	try("later", source.Options{}, true)
	m.Install("updates/edu.ko", version("2.0.0"))
	try("another driver", source.Options{}, true)
	delete(m.refuse, "edu")
	d.takes.end(def.Kind, time.Now(), nil)
	m.Write(overrideOf(ko.Device), "\n")
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || !have.Serves {
		t.Errorf("in the end: %+v %v", have, problem)
	}
}

// TestBoundBelow: a driver that only puts another device below the function serves nothing until that one is bound to
// a driver of the kind's modules.
func TestBoundBelow(t *testing.T) {
	const child = "/sys/bus/pci/devices/" + ko.Device + "/virtio0"
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	link := func(name, target string) {
		t.Helper()
		if err := os.MkdirAll(m.Path(name[:strings.LastIndex(name, "/")]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, m.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	d := m.driver(Options{})
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	probe := func() (accel.DriverHave, *accel.Problem) { return d.Probe(ko.Definition(), m.Facts(), m.accs()) }
	link(child+"/subsystem", "../../../../bus/virtio")
	link("/sys/bus/pci/devices/"+ko.Device+"/drm/subsystem", "../../../../class/drm")
	if have, problem := probe(); problem != nil || !have.Serves {
		t.Errorf("a bus for which the module has no driver: %+v %v", have, problem)
	}
	link("/sys/module/edu/drivers/pci:edu", "../../../bus/pci/drivers/edu")
	link("/sys/module/edu/drivers/virtio:edu_core", "../../../bus/virtio/drivers/edu_core")
	have, problem := probe()
	if have.Serves || problem == nil || problem.Reason != accel.ProbeFailed || !strings.Contains(problem.Message, "virtio0") {
		t.Errorf("nobody serves it: %+v %v", have, problem)
	}
	m.attributes = nil
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem == nil ||
		!slices.Contains(m.attributes, "/sys/bus/virtio/drivers_probe virtio0") {
		t.Errorf("it is not offered to its driver again: %v %v", problem, m.attributes)
	}
	link(child+"/driver", "../../../../bus/virtio/drivers/another")
	if have, _ := probe(); have.Serves {
		t.Error("bound to another driver")
	}
	_ = os.Remove(m.Path(child + "/driver"))
	link(child+"/driver", "../../../../bus/virtio/drivers/edu_core")
	link("/sys/bus/pci/devices/"+ko.Device+"/virtio1/subsystem", "../../../../bus/virtio")
	if have, problem := probe(); problem != nil || !have.Serves {
		t.Errorf("one is served: %+v %v", have, problem)
	}
}
