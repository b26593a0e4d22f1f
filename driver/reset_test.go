package driver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/test/ko"
)

const otherDevice = "0000:02:00.0"

// resettable is a machine with two serving devices, each below its own port, and their driver.
func resettable(t *testing.T) (*testMachine, *Driver, *accel.Definition) {
	t.Helper()
	m := newMachine(t)
	m.AddDevice(otherDevice)
	for _, id := range m.Devices {
		m.Write(m.Host.Devices().Dir(id)+"/reset", "")
		m.Write(m.Host.Devices().Dir(id)+"/reset_method", "bus\n")
		m.Write(m.Host.Devices().Dir(id)+"/factorial", "3628800\n")
	}
	m.Install("updates/edu.ko", ko.Edu())
	d := m.driver(Options{})
	def := ko.Definition()
	def.Check.Write = "" // the fake would return what was written
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.attributes = nil
	return m, d, def
}

// slots are the PCI functions of the machine.
func slots(more ...accel.PCIDevice) accel.Facts {
	return accel.Facts{PCI: append([]accel.PCIDevice{
		{Address: "0000:00:10.0", Class: "060400"},
		{Address: "0000:00:11.0", Class: "060400"},
		{Address: ko.Device, ParentPort: "0000:00:10.0", Driver: "edu"},
		{Address: otherDevice, ParentPort: "0000:00:11.0", Driver: "edu"},
	}, more...)}
}

func targets(def *accel.Definition, ids ...string) (out []ResetTarget) {
	for _, id := range ids {
		out = append(out, ResetTarget{
			Def:    def,
			Device: accel.Accelerator{ID: id, Health: accel.Health{State: accel.Unhealthy}},
		})
	}
	return out
}

func atOnce(context.Context) *accel.Problem { return nil }

func TestReset(t *testing.T) {
	for _, c := range []struct {
		name    string
		way     accel.ResetWay
		unbound bool
		told    string
	}{
		{"bound", "", false, "drivers/edu/unbind D; devices/D/reset 1; drivers/edu/bind D"},
		{"without a driver, as a reset that was killed leaves it", "", true, "devices/D/reset 1; drivers/edu/bind D"},
		{"bound again only", accel.ResetRebind, false, "drivers/edu/unbind D; drivers/edu/bind D"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, d, def := resettable(t)
			def.Reset = c.way
			if c.unbound {
				if err := m.unbind(ko.Device); err != nil {
					t.Fatal(err)
				}
			}
			held := [][]string{lock.Resetting(m.Host)}
			problem := d.Reset(t.Context(), slots(), targets(def, ko.Device), func(context.Context) *accel.Problem {
				held = append(held, lock.Resetting(m.Host))
				return nil
			})
			if problem != nil {
				t.Fatal(problem)
			}
			if diff := cmp.Diff([][]string{nil, {ko.Device}, nil}, append(held, lock.Resetting(m.Host))); diff != "" {
				t.Errorf("said to be reset, before, meanwhile and afterwards:\n%s", diff)
			}
			if got := strings.ReplaceAll(strings.Join(m.attributes, "; "), ko.Device, "D"); got != c.told {
				t.Errorf("the kernel was told %q, want %q", got, c.told)
			}
			if have, problem := d.Probe(def, m.Facts(), m.accs()); !have.Serves {
				t.Error(have, problem)
			}
		})
	}
}

// TestResetRefused: each obstacle has its own message, and nothing is touched.
func TestResetRefused(t *testing.T) {
	attribute := func(file, text string) func(*testMachine, *accel.Definition) {
		return func(m *testMachine, _ *accel.Definition) { m.Write(m.Host.Devices().Dir(ko.Device)+"/"+file, text) }
	}
	for _, c := range []struct {
		name    string
		prepare func(*testMachine, *accel.Definition)
		more    []accel.PCIDevice
		linked  []string
		named   []string
		reason  accel.Reason
		says    string
	}{
		{name: "in use", prepare: func(m *testMachine, _ *accel.Definition) {
			m.open(42, "python3", "/dev/edu0")
		}, reason: accel.InUse, says: `device "0000:01:00.0" is in use by python3 (pid 42)`},
		{name: "in use by what its driver does not know", prepare: func(m *testMachine, _ *accel.Definition) {
			m.Write(m.Host.Devices().Dir(ko.Device)+"/drm/card0/dev", "226:0\n")
			m.Write(m.Host.Devices().Dir(ko.Device)+"/drm/card0/uevent", "DEVNAME=dri/card0\n")
			m.open(43, "Xorg", "/dev/dri/card0")
		}, reason: accel.InUse, says: "Xorg (pid 43)"},
		{name: "no way", prepare: func(m *testMachine, _ *accel.Definition) {
			m.remove(m.Host.Devices().Dir(ko.Device) + "/reset")
		}, reason: accel.CannotReset, says: `no attribute "reset"`},
		{
			name: "ways switched off", prepare: attribute("reset_method", "\n"), reason: accel.CannotReset,
			says: "switched all of them off",
		},
		{name: "definition", prepare: func(_ *testMachine, def *accel.Definition) {
			def.Reset = accel.ResetNever
		}, reason: accel.CannotReset, says: "the definition"},
		{name: "driver not loaded", prepare: func(m *testMachine, _ *accel.Definition) {
			_ = m.unbind(ko.Device)
			m.remove("/sys/bus/pci/drivers/edu")
		}, reason: accel.CannotReset, says: `"edu" is not loaded`},
		{name: "a virtual machine's", prepare: func(m *testMachine, _ *accel.Definition) {
			_ = m.unbind(ko.Device)
			m.bind(ko.Device, "vfio-pci")
		}, reason: accel.ConflictDriver, says: `"vfio-pci"`},
		{name: "gone", prepare: func(m *testMachine, _ *accel.Definition) {
			m.remove(m.Host.Devices().Dir(ko.Device))
		}, reason: accel.DeviceGone},
		{name: "an upgrade was interrupted", prepare: func(m *testMachine, _ *accel.Definition) {
			m.Write("/var/lib/acceld/journal/qemu-edu.json", `{"kind": "qemu-edu", "step": "load", "to": {}}`)
		}, reason: accel.CannotReset, says: "upgrade"},
		{
			name:   "another below the port",
			more:   []accel.PCIDevice{{Address: "0000:01:01.0", ParentPort: "0000:00:10.0"}},
			reason: accel.ResetShared, says: `"0000:01:00.0" (bus) would reset 0000:01:01.0 too`,
		},
		{name: "one far below the port", more: []accel.PCIDevice{
			{Address: "0000:01:02.0", ParentPort: "0000:00:10.0", Class: "060400"},
			{Address: "0000:05:00.0", ParentPort: "0000:01:02.0"},
		}, reason: accel.ResetShared, says: "0000:01:02.0, 0000:05:00.0"},
		{
			name: "a way of which nothing is known", prepare: func(m *testMachine, _ *accel.Definition) {
				m.remove(m.Host.Devices().Dir(ko.Device) + "/reset_method")
			},
			more: []accel.PCIDevice{{Address: "0000:01:00.1", ParentPort: "0000:00:10.0"}}, reason: accel.ResetShared,
			says: "(unknown)",
		},
		{
			name: "a slot is the first of its ways", prepare: attribute("reset_method", "slot flr\n"),
			more: []accel.PCIDevice{{Address: "0000:01:00.1", ParentPort: "0000:00:10.0"}}, reason: accel.ResetShared,
			says: "0000:01:00.1",
		},
		{
			name:  "one of two that share a port",
			more:  []accel.PCIDevice{{Address: "0000:01:01.0", ParentPort: "0000:00:10.0"}},
			named: []string{ko.Device, otherDevice}, reason: accel.ResetShared,
		},
		{
			name: "virtual functions", more: []accel.PCIDevice{{Address: "0000:09:00.0"}}, reason: accel.ResetShared,
			says: "1 virtual functions",
		},
		{
			name: "links of its own", linked: []string{ko.Device, otherDevice}, reason: accel.ResetShared,
			says: "links of its own to 0000:02:00.0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, d, def := resettable(t)
			if c.prepare != nil {
				c.prepare(m, def)
			}
			facts := slots(c.more...)
			if c.name == "virtual functions" {
				facts.PCI[2].SRIOV.NumVFs = 1
			}
			all := targets(def, append(c.named, ko.Device)...)
			for i := range all {
				all[i].Linked = c.linked
			}
			m.attributes = nil
			problem := d.Reset(t.Context(), facts, all, atOnce)
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says) {
				t.Fatalf("got %v, want %s: %q", problem, c.reason, c.says)
			}
			if len(m.attributes) > 0 || len(lock.Resetting(m.Host)) > 0 {
				t.Error("touched all the same:", m.attributes, lock.Resetting(m.Host))
			}
		})
	}
}

// TestResetTogether: devices that share a port or have links are reset if all of them are named. A method that
// affects only the function ignores its neighbours.
func TestResetTogether(t *testing.T) {
	m, d, def := resettable(t)
	facts := slots()
	facts.PCI[3].ParentPort = "0000:00:10.0"
	both := targets(def, ko.Device, otherDevice)
	both[0].Linked, both[1].Linked = []string{ko.Device, otherDevice}, []string{ko.Device, otherDevice}
	if problem := d.Reset(t.Context(), facts, both, atOnce); problem != nil {
		t.Fatal(problem)
	}
	want := "drivers/edu/unbind A; drivers/edu/unbind B; devices/A/reset 1; devices/B/reset 1; drivers/edu/bind A; drivers/edu/bind B"
	if got := strings.NewReplacer(ko.Device, "A", otherDevice, "B").Replace(strings.Join(m.attributes,
		"; ")); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	m.Write(m.Host.Devices().Dir(ko.Device)+"/reset_method", "flr pm\n")
	if problem := d.Reset(t.Context(), facts, both[:1], atOnce); problem == nil || problem.Reason != accel.ResetShared {
		t.Errorf("linked: %v", problem)
	}
	both[0].Linked = nil
	if problem := d.Reset(t.Context(), facts, both[:1], atOnce); problem != nil {
		t.Error(problem)
	}
	// The device came into use while the agent was withholding it; and ready returned a problem.
	m.attributes = nil
	problem := d.Reset(t.Context(), facts, both[:1], func(context.Context) *accel.Problem {
		m.open(44, "late", "/dev/edu0")
		return nil
	})
	if problem == nil || problem.Reason != accel.InUse || len(m.attributes) > 0 {
		t.Error(problem, m.attributes)
	}
	problem = d.Reset(t.Context(), facts, both[:1], func(context.Context) *accel.Problem {
		return accel.Problemf(accel.ProbeUnanswered, "no")
	})
	if problem == nil || problem.Reason != accel.ProbeUnanswered || len(m.attributes) > 0 {
		t.Error(problem, m.attributes)
	}
}

// TestResetFails: the message includes the kernel's log, and the device is bound to its driver again if possible.
func TestResetFails(t *testing.T) {
	for _, c := range []struct {
		at     string
		err    error
		wrong  bool
		reason accel.Reason
		says   string
		bound  string
	}{
		{
			at: "unbind", err: syscall.EBUSY, reason: accel.ResetFailed,
			says: `cannot unbind device "0000:01:00.0": device or resource busy`, bound: "edu",
		},
		{at: "unbind", err: syscall.EACCES, reason: accel.PermissionDenied, bound: "edu"},
		{at: "reset", err: syscall.ENOTTY, reason: accel.ResetFailed, says: "cannot reset", bound: "edu"},
		{at: "bind", err: syscall.EIO, reason: accel.ResetFailed, says: "cannot bind", bound: ""},
		{wrong: true, reason: accel.CheckFailed, says: `gave "0"`, bound: "edu"},
	} {
		t.Run(fmt.Sprint(c.at, c.err), func(t *testing.T) {
			m, d, def := resettable(t)
			m.refuseAttribute = map[string]error{c.at: c.err}
			if c.wrong {
				m.remove(m.Host.Devices().Dir(ko.Device) + "/factorial")
				m.Write(m.Host.Devices().Dir(ko.Device)+"/factorial", "0")
			}
			problem := d.Reset(t.Context(), slots(), targets(def, ko.Device), atOnce)
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says) {
				t.Errorf("got %v, want %s: %q", problem, c.reason, c.says)
			}
			if got := m.bound(ko.Device); got != c.bound {
				t.Errorf("bound to %q, want %q", got, c.bound)
			}
			if held := lock.Resetting(m.Host); len(held) > 0 {
				t.Error("held for ever:", held)
			}
		})
	}
}

// TestResetKilledAtEveryPoint: wherever the command is killed, the agent's next Ensure, or the next reset, finds the
// devices bound or binds them.
func TestResetKilledAtEveryPoint(t *testing.T) {
	m, d, def := resettable(t)
	both := targets(def, ko.Device, otherDevice)
	points, _ := m.killAt(d, -1, func() {
		if problem := d.Reset(t.Context(), slots(), both, atOnce); problem != nil {
			t.Fatal(problem)
		}
	})
	if len(points) != 7 {
		t.Fatal(points)
	}
	for i := range points {
		for _, next := range []string{"agent", "reset"} {
			m, d, def := resettable(t)
			both := targets(def, ko.Device, otherDevice)
			if _, dead := m.killAt(d, i, func() { _ = d.Reset(t.Context(), slots(), both, atOnce) }); !dead {
				t.Fatal("not killed at", i)
			}
			d = m.driver(Options{})
			if next == "reset" {
				if problem := d.Reset(t.Context(), slots(), both, atOnce); problem != nil {
					t.Errorf("killed at %d: %v", i, problem)
				}
			} else if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || !have.Serves {
				t.Errorf("killed at %d: %+v, %v", i, have, problem)
			}
			if a, b := m.bound(ko.Device), m.bound(otherDevice); a != "edu" || b != "edu" {
				t.Errorf("killed at %d, then %s: bound to %q and %q", i, next, a, b)
			}
			if len(m.loads) != 1 || len(m.unloads) != 0 {
				t.Errorf("killed at %d: the driver was touched", i)
			}
		}
	}
}

// TestResetHangs: a device that the kernel does not finish stays withheld until it does, and the others get their
// driver again.
func TestResetHangs(t *testing.T) {
	m, d, def := resettable(t)
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		d.attribute = func(name, text string) error {
			if strings.HasSuffix(name, ko.Device+"/reset") {
				<-back
			}
			return m.attribute(name, text)
		}
		problem := d.Reset(t.Context(), slots(), targets(def, ko.Device, otherDevice), atOnce)
		if problem == nil || problem.Reason != accel.ResetFailed || !strings.Contains(problem.Message,
			"did not answer within 2m0s; the kernel is still at it") {
			t.Error(problem)
		}
		if a, b := m.bound(ko.Device), m.bound(otherDevice); a != "" || b != "edu" {
			t.Errorf("bound to %q and %q", a, b)
		}
		if held := lock.Resetting(m.Host); !slices.Equal(held, []string{ko.Device, otherDevice}) {
			t.Error("held", held)
		}
		close(back)
		synctest.Wait()
		if held := lock.Resetting(m.Host); len(held) > 0 {
			t.Error("held for ever:", held)
		}
	})
}

// TestResetLeftBehind: the lock file of a killed reset withholds nothing; that of a live one does.
func TestResetLeftBehind(t *testing.T) {
	m, _, _ := resettable(t)
	m.Write(lock.DriverFile(), lock.Text(m.Host, ko.Device))
	if held := lock.Resetting(m.Host); len(held) > 0 {
		t.Error(held)
	}
	release, err := m.Host.Locks().Try(lock.DriverFile(), lock.Text(m.Host, ko.Device))
	if err != nil {
		t.Fatal(err)
	}
	if held := lock.Resetting(m.Host); !slices.Equal(held, []string{ko.Device}) {
		t.Error(held)
	}
	release()
	if held := lock.Resetting(m.Host); len(held) > 0 {
		t.Error(held)
	}
}

// open gives a process a file descriptor of a node.
func (m *testMachine) open(pid int, comm, node string) {
	m.T.Helper()
	m.Write(fmt.Sprintf("/proc/%d/comm", pid), comm+"\n")
	if err := os.MkdirAll(m.Path(fmt.Sprintf("/proc/%d/fd", pid)), 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.Symlink(node, m.Path(fmt.Sprintf("/proc/%d/fd/7", pid))); err != nil {
		m.T.Fatal(err)
	}
}

func (m *testMachine) remove(name string) {
	m.T.Helper()
	if err := os.RemoveAll(m.Path(name)); err != nil {
		m.T.Fatal(err)
	}
}
