package driver

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/test/ko"
)

// unknown is a machine whose driver knows no device by its ids, and a definition that has it bound all the same.
func unknown(t *testing.T) (*testMachine, *accel.Definition) {
	t.Helper()
	m := newMachine(t)
	m.noIDs = true
	m.Write(overrideOf(ko.Device), "\n")
	m.Install("updates/edu.ko", ko.Edu())
	def := ko.Definition()
	def.Driver.Override = true
	return m, def
}

// free checks that a device is as it was before acceld, and that nothing is on record about it.
func (m *testMachine) free(d *Driver) {
	m.T.Helper()
	if m.bound(ko.Device) != "" || m.kept(ko.Device) {
		m.T.Errorf("it is with %q, kept: %t", m.bound(ko.Device), m.kept(ko.Device))
	}
	for _, note := range []string{NoteTakeover, NoteOverride} {
		if notes, err := d.ledger.Notes(note); err != nil || len(notes) > 0 {
			m.T.Error("still on record:", notes, err)
		}
	}
}

func TestOverride(t *testing.T) {
	m, def := unknown(t)
	d := m.driver(Options{})
	have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || m.bound(ko.Device) != "edu" || !m.kept(ko.Device) {
		t.Fatal(have, problem, m.bound(ko.Device))
	}
	notes, err := d.ledger.Notes(NoteOverride)
	if err != nil || len(notes) != 1 || notes[0].Text != "qemu-edu edu" || notes[0].Name != ko.Device {
		t.Error(notes, err)
	}
	m.attributes = nil
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
		len(m.attributes) > 0 {
		t.Error("not idle:", problem, m.attributes)
	}
	after := m.driver(Options{})
	if problem := after.Unload(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.free(after)
}

// TestOverrideIsAsked: without it, a driver that knows no ids refuses every device, and nothing is written.
func TestOverrideIsAsked(t *testing.T) {
	m, def := unknown(t)
	def.Driver.Override = false
	d := m.driver(Options{})
	_, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.ProbeFailed ||
		!strings.Contains(problem.Reason.Doc().Remedy, "driver.override") {
		t.Error(problem)
	}
	m.free(d)
}

// TestOverrideOfALiveDriver: the module is live already, for other devices.
func TestOverrideOfALiveDriver(t *testing.T) {
	m, def := unknown(t)
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	second := "0000:02:00.0"
	m.AddDevice(second)
	m.Write(overrideOf(second), "\n")
	loads := len(m.loads)
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || m.bound(second) != "edu" || len(m.loads) != loads {
		t.Error(have, problem, m.bound(second), m.loads)
	}
}

// TestOverrideUndone: if the driver does not come up, the device is as before.
func TestOverrideUndone(t *testing.T) {
	for name, change := range map[string]func(*testMachine){
		"refused by the kernel": func(m *testMachine) { m.refuse["edu"] = syscall.ENOMEM },
		"the device is refused": func(m *testMachine) { m.failProbe[ko.Device] = true },
		"live and refused": func(m *testMachine) {
			m.failProbe[ko.Device] = true
			m.Live(ko.Edu())
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, def := unknown(t)
			change(m)
			d := m.driver(Options{})
			if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil {
				t.Fatal("it came up")
			}
			m.free(d)
		})
	}
}

// TestOverrideRefused has a row for each device that is not bound to a driver that does not know it.
func TestOverrideRefused(t *testing.T) {
	dir := "/sys/bus/pci/devices/" + ko.Device
	for name, c := range map[string]struct {
		change func(*testMachine, *accel.Definition)
		says   string
	}{
		"a bridge": {func(m *testMachine, _ *accel.Definition) { m.Write(dir+"/class", "0x060400\n") }, "it is a bridge"},
		"the console": {
			func(m *testMachine, _ *accel.Definition) { m.Write(dir+"/boot_vga", "1\n") }, "the machine's console",
		},
		"kept for another driver": {
			func(m *testMachine, _ *accel.Definition) { m.Write(overrideOf(ko.Device), "mine\n") }, `kept for driver "mine"`,
		},
		"another driver has it": {
			func(m *testMachine, _ *accel.Definition) { m.bind(ko.Device, "other") }, "driver.conflicts does not name",
		},
		"another driver has the bridge": {
			func(m *testMachine, def *accel.Definition) {
				m.bind(ko.Device, "other")
				m.Write(dir+"/class", "0x060400\n")
				def.Driver.Conflicts, def.Driver.Takeover = []string{"other"}, true
			}, "is a bridge",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, def := unknown(t)
			c.change(m, def)
			was := m.bound(ko.Device)
			d := m.driver(Options{})
			_, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
			if problem == nil || problem.Reason != accel.ConflictDriver || !strings.Contains(problem.Message, c.says) {
				t.Error(problem)
			}
			if m.kept(ko.Device) || m.bound(ko.Device) != was || len(m.attributes) > 0 {
				t.Error("something was changed:", m.attributes)
			}
		})
	}
}

// TestNoIOMMUGroup: a kind whose containers get the node of the group says that there is none.
func TestNoIOMMUGroup(t *testing.T) {
	m, def := unknown(t)
	def.Nodes = append(def.Nodes, accel.NodeSource{Glob: "/sys/class/vfio/{{.IOMMUGroup}}"})
	_, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.NoIOMMUGroup || len(m.loads) > 0 || m.kept(ko.Device) {
		t.Error(problem, m.loads)
	}
	m, def = unknown(t)
	def.Nodes = append(def.Nodes, accel.NodeSource{Glob: "/sys/class/vfio/{{.IOMMUGroup}}"})
	m.link("/sys/bus/pci/devices/"+ko.Device+"/iommu_group", "../../../kernel/iommu_groups/7")
	m.Write("/sys/class/vfio/7/dev", "241:0\n")
	m.Write("/sys/class/vfio/7/uevent", "DEVNAME=vfio/7\n")
	m.Write("/dev/vfio/7", "")
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Error(problem)
	}
}

// TestRelease: a device is given back when its kind is no longer in force, and not before nobody has it open.
func TestRelease(t *testing.T) {
	kinds := func(def *accel.Definition) map[string]*accel.Definition {
		return map[string]*accel.Definition{def.Kind: def}
	}
	pci := func(def *accel.Definition) []accel.PCIDevice {
		return []accel.PCIDevice{{
			Address: ko.Device, Vendor: def.Match[0].Vendor, Device: def.Match[0].Device, Class: "00ff00", Driver: "edu",
		}}
	}
	hold := func(m *testMachine) {
		m.Write("/proc/77/comm", "qemu\n")
		m.link("/proc/77/fd/3", "/dev/edu0")
	}
	for name, c := range map[string]struct {
		change func(*testMachine, *accel.Definition)
		stays  string // the driver with which the device is then; empty if it was given back
		left   string
	}{
		"in force":            {func(*testMachine, *accel.Definition) {}, "edu", ""},
		"no longer by ids":    {func(_ *testMachine, def *accel.Definition) { def.Driver.Override = false }, "", ""},
		"another driver":      {func(_ *testMachine, def *accel.Definition) { def.Driver.Binds = "uio" }, "", ""},
		"not recognised":      {func(_ *testMachine, def *accel.Definition) { def.Match[0].Device = "ffff" }, "", ""},
		"gone":                {func(_ *testMachine, def *accel.Definition) { def.Kind = "example-other" }, "", ""},
		"gone and in use":     {func(m *testMachine, def *accel.Definition) { def.Kind = "example-other"; hold(m) }, "edu", "qemu"},
		"gone, and rebound":   {func(m *testMachine, def *accel.Definition) { def.Kind = "example-other"; m.rebound() }, "mine", ""},
		"in force and in use": {func(m *testMachine, _ *accel.Definition) { hold(m) }, "edu", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, def := unknown(t)
			d := m.driver(Options{})
			if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
				t.Fatal(problem)
			}
			m.Write("/sys/bus/pci/drivers/edu/unbind", "")
			facts := pci(def)
			c.change(m, def)
			released, left := m.driver(Options{}).Release(t.Context(), kinds(def), facts)
			if len(left) > 0 != (c.left != "") || len(left) > 0 && !strings.Contains(left[0].Message, c.left) {
				t.Error(left)
			}
			switch {
			case c.stays == "":
				m.free(m.driver(Options{}))
			case m.bound(ko.Device) != c.stays:
				t.Errorf("it is with %q: %v %v", m.bound(ko.Device), released, left)
			}
			if again, left := m.driver(Options{}).Release(t.Context(), kinds(def), facts); len(again) > 0 ||
				len(left) > 0 != (c.left != "") {
				t.Error("not idle:", again, left)
			}
		})
	}
}

// rebound lets somebody else bind the device to another driver.
func (m *testMachine) rebound() {
	if err := m.unbind(ko.Device); err != nil {
		m.T.Fatal(err)
	}
	m.bind(ko.Device, "mine")
}

// TestReleaseOfATakenDevice: it goes back to the driver that it was taken from.
func TestReleaseOfATakenDevice(t *testing.T) {
	m, def := contested(t)
	m.noIDs, def.Driver.Override = true, true
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
		m.bound(ko.Device) != "edu" {
		t.Fatal(problem, m.bound(ko.Device))
	}
	released, left := m.driver(Options{}).Release(t.Context(), nil, nil)
	if len(released) != 1 || len(left) > 0 || m.bound(ko.Device) != "other" || m.kept(ko.Device) {
		t.Error(released, left, m.bound(ko.Device))
	}
}

// TestOverrideKilledAtEveryPoint: whatever a process that was killed has left of a kind, the next one gives it back
// when the kind is no longer in force.
func TestOverrideKilledAtEveryPoint(t *testing.T) {
	for n := 0; ; n++ {
		m, def := unknown(t)
		d := m.driver(Options{})
		points, dead := m.killAt(d, n, func() { _, _ = d.Ensure(t.Context(), def, m.Facts(), m.accs()) })
		if !dead {
			break
		}
		m.mu.TryLock() // the fake may also have died in the middle of a call
		m.mu.Unlock()
		after := m.driver(Options{})
		if _, left := after.Release(t.Context(), nil, nil); len(left) > 0 {
			t.Errorf("killed at %q: %v", points[len(points)-1], left)
		}
		m.free(after)
	}
}

// TestOverridePurged: a purge leaves the device without a driver again, but not under a process, and not if somebody
// else has bound it since.
func TestOverridePurged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testMachine)
		action ledger.Action
		bound  string
	}{
		"free": {func(*testMachine) {}, ledger.Restored, ""},
		"in use": {func(m *testMachine) {
			m.Write("/proc/77/comm", "qemu\n")
			m.link("/proc/77/fd/3", "/dev/edu0")
		}, ledger.Left, "edu"},
		"rebound": {func(m *testMachine) { m.rebound() }, ledger.Kept, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			m, def := unknown(t)
			m.Live(ko.Edu()) // it was there before acceld, and stays
			if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
				t.Fatal(problem)
			}
			m.Write("/sys/bus/pci/drivers/edu/unbind", "")
			c.change(m)
			out, problem := m.driver(Options{}).Purge(t.Context(), PurgeOptions{Kinds: m.kinds(def)})
			got := outcomeOf(out, "/sys/bus/pci/devices/"+ko.Device)
			if problem != nil || got.Action != c.action || m.bound(ko.Device) != c.bound || m.kept(ko.Device) {
				t.Errorf("%+v, it is with %q: %v", got, m.bound(ko.Device), problem)
			}
			_ = os.Remove(m.Path("/proc/77/fd/3"))
		})
	}
}
