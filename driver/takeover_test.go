package driver

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// contested is a machine whose device is bound to another driver, and a definition that may take it.
func contested(t *testing.T) (*testMachine, *accel.Definition) {
	t.Helper()
	m := newMachine(t)
	m.bind(ko.Device, "other")
	m.Write("/sys/bus/pci/drivers/other/bind", "")
	m.Write("/sys/bus/pci/drivers/other/unbind", "")
	m.Write(overrideOf(ko.Device), "\n")
	m.Install("updates/edu.ko", ko.Edu())
	def := ko.Definition()
	def.Driver.Conflicts, def.Driver.Takeover = []string{"other"}, true
	return m, def
}

func overrideOf(id string) string { return "/sys/bus/pci/devices/" + id + "/driver_override" }

func (m *testMachine) bound(id string) string {
	to, err := os.Readlink(m.Path("/sys/bus/pci/devices/" + id + "/driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// kept says whether the device is kept for our driver. To clear an override, the ledger writes less text than the
// file has.
func (m *testMachine) kept(id string) bool { return strings.HasPrefix(m.Read(overrideOf(id)), "edu") }

func TestTakeover(t *testing.T) {
	m, def := contested(t)
	d := m.driver(Options{})
	have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || m.bound(ko.Device) != "edu" || !m.kept(ko.Device) {
		t.Fatal(have, problem, m.bound(ko.Device))
	}
	m.attributes = nil
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
		len(m.attributes) > 0 {
		t.Error("not idle:", problem, m.attributes)
	}
	if problem := m.driver(Options{}).Unload(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if m.bound(ko.Device) != "other" || m.kept(ko.Device) {
		t.Errorf("after unload it is with %q", m.bound(ko.Device))
	}
	if notes, err := d.ledger.Notes(""); err != nil || len(notes) > 0 {
		t.Error(notes, err)
	}
}

// TestTakeoverOfALiveDriver: our module is live, and another driver has bound a device.
func TestTakeoverOfALiveDriver(t *testing.T) {
	m, def := contested(t)
	second := "0000:02:00.0"
	m.AddDevice(second)
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if err := m.attribute("/sys/bus/pci/drivers/edu/unbind", second); err != nil {
		t.Fatal(err)
	}
	m.bind(second, "other")
	m.Write(overrideOf(second), "\n")
	loads := len(m.loads)
	have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || m.bound(second) != "edu" || len(m.loads) != loads {
		t.Error(have, problem, m.bound(second), m.loads)
	}
}

// TestTakeoverRefused has a row for each device that is left alone: nothing is unbound and no module is loaded.
func TestTakeoverRefused(t *testing.T) {
	hold := func(m *testMachine) {
		m.Write("/sys/bus/pci/devices/"+ko.Device+"/drm/card0/dev", "226:0\n")
		m.Write("/sys/bus/pci/devices/"+ko.Device+"/drm/card0/uevent", "DEVNAME=dri/card0\n")
		m.Write("/proc/77/comm", "Xorg\n")
		if err := os.MkdirAll(m.Path("/proc/77/fd"), 0o755); err != nil {
			m.T.Fatal(err)
		}
		if err := os.Symlink("/dev/dri/card0", m.Path("/proc/77/fd/3")); err != nil {
			m.T.Fatal(err)
		}
	}
	disk := func(file, text string) func(*testMachine, *accel.Definition) {
		return func(m *testMachine, _ *accel.Definition) { m.disk(); m.Write(file, text) }
	}
	card := func(file, text string) func(*testMachine, *accel.Definition) {
		return func(m *testMachine, _ *accel.Definition) { m.card(); m.Write(file, text) }
	}
	rebind := func(driver string) func(*testMachine, *accel.Definition) {
		return func(m *testMachine, def *accel.Definition) {
			_ = os.Remove(m.Path("/sys/bus/pci/devices/" + ko.Device + "/driver"))
			m.bind(ko.Device, driver)
			def.Driver.Conflicts = append(def.Driver.Conflicts, driver)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*testMachine, *accel.Definition)
		reason accel.Reason
		says   string
	}{
		{"not allowed", func(_ *testMachine, def *accel.Definition) {
			def.Driver.Takeover = false
		}, accel.ConflictDriver, "set driver.takeover"},
		{"not listed", func(_ *testMachine, def *accel.Definition) {
			def.Driver.Conflicts = nil
		}, accel.ConflictDriver, "driver.conflicts does not name"},
		{"virtual machine", rebind("vfio-pci"), accel.ConflictDriver, "set aside for a virtual machine"},
		{"another virtual machine's", rebind("mlx5_vfio_pci"), accel.ConflictDriver, "set aside for a virtual machine"},
		{"stub", rebind("pci-stub"), accel.ConflictDriver, "set aside for a virtual machine"},
		{"override", func(m *testMachine, _ *accel.Definition) {
			m.Write(overrideOf(ko.Device), "mine\n")
		}, accel.ConflictDriver, `kept for driver "mine"`},
		{"console", func(m *testMachine, _ *accel.Definition) {
			m.Write("/sys/bus/pci/devices/"+ko.Device+"/boot_vga", "1\n")
		}, accel.ConflictDriver, `"blacklist other"`},
		{"frame buffer", func(m *testMachine, _ *accel.Definition) {
			m.Write("/sys/bus/pci/devices/"+ko.Device+"/graphics/fb0/dev", "29:0\n")
		}, accel.ConflictDriver, "console"},
		{"held", func(m *testMachine, _ *accel.Definition) { hold(m) }, accel.InUse, "Xorg"},
		{"a virtual function that is held", func(m *testMachine, _ *accel.Definition) {
			m.virtualFunction()
			m.link("/sys/bus/pci/devices/"+virtual+"/iommu_group", "../../../kernel/iommu_groups/9")
			m.Write("/sys/class/vfio/9/dev", "241:0\n")
			m.Write("/sys/class/vfio/9/uevent", "DEVNAME=vfio/9\n")
			m.Write("/proc/77/comm", "qemu\n")
			m.link("/proc/77/fd/3", "/dev/vfio/9")
		}, accel.InUse, "qemu"},
		{"a mounted partition", disk("/proc/1/mountinfo", rootMount+
			"30 1 259:1 / /boot\\040x rw shared:2 - ext4 /dev/root rw\n"), accel.InUse, `"/dev/nvme0n1p1" is mounted at "/boot x"`},
		{"a file system on several disks", disk("/proc/1/mountinfo", rootMount+
			"30 1 0:44 / /data rw - btrfs /dev/nvme0n1 rw\n"), accel.InUse, `"/dev/nvme0n1" is mounted at "/data"`},
		{
			"swap", disk("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme0n1p1 partition 1 0 -2\n"),
			accel.InUse, `"/dev/nvme0n1p1" is swap`,
		},
		{"device mapper", disk("/sys/class/block/nvme0n1p1/holders/dm-0", ""), accel.InUse, `is part of "dm-0"`},
		{"a loop device", disk("/sys/class/block/loop3/loop/backing_file", "/dev/nvme0n1\n"), accel.InUse, `behind "loop3"`},
		{"compressed memory", disk("/sys/class/block/zram0/backing_dev", "/dev/nvme0n1p1\n"), accel.InUse, `behind "zram0"`},
		{"an open disk", func(m *testMachine, _ *accel.Definition) {
			m.disk()
			m.Write("/proc/78/comm", "dd\n")
			m.link("/proc/78/fd/3", "/dev/nvme0n1p1")
		}, accel.InUse, "dd"},
		{"mounts that cannot be read", disk("/proc/1/mountinfo", "?\n"), accel.ConflictDriver, "not known"},
		{"no mounts to be seen", func(m *testMachine, _ *accel.Definition) {
			m.disk()
			_ = os.Remove(m.Path("/proc/1/mountinfo"))
		}, accel.ConflictDriver, "not known"},
		{"one path of several", disk("/sys/class/block/nvme0n1/hidden", "1\n"), accel.ConflictDriver, "not known"},
		{"a disk without numbers", disk("/sys/class/block/nvme0n1/dev", "?\n"), accel.ConflictDriver, "not known"},
		{"a network card that is up", card("/sys/class/net/eth0/flags", "0x1003\n"), accel.InUse, `"eth0" is up`},
		{"a network card without flags", card("/sys/class/net/eth0/flags", "\n"), accel.ConflictDriver, "not known"},
		{"a network card of a bond", func(m *testMachine, _ *accel.Definition) {
			m.card()
			m.link("/sys/class/net/eth0/master", "../../bond0")
		}, accel.InUse, `"eth0" is part of "bond0"`},
		{"a network card with a VLAN", func(m *testMachine, _ *accel.Definition) {
			m.card()
			m.link("/sys/class/net/eth0/upper_eth0.7", "../../eth0.7")
		}, accel.InUse, `"eth0" is part of "eth0.7"`},
		{"a network card of a container", func(m *testMachine, _ *accel.Definition) {
			m.card()
			_ = os.RemoveAll(m.Path("/sys/class/net"))
		}, accel.ConflictDriver, "not known"},
		{"no driver to be had", func(m *testMachine, _ *accel.Definition) {
			_ = os.RemoveAll(m.Path("/lib/modules"))
		}, accel.NoDriverSource, ""},
		{"a driver that is refused", func(m *testMachine, _ *accel.Definition) {
			x := ko.Edu()
			x.Vermagic = "1.0 SMP"
			m.Install("updates/edu.ko", x)
		}, accel.KernelMismatch, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, def := contested(t)
			c.change(m, def)
			was := m.bound(ko.Device)
			_, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says) {
				t.Error(problem)
			}
			if len(m.loads) > 0 || len(m.attributes) > 0 || m.bound(ko.Device) != was || m.kept(ko.Device) {
				t.Error("something was changed:", m.loads, m.attributes, m.bound(ko.Device))
			}
		})
	}
}

// TestTakeoverOfIdle: disks and network cards that nobody uses are taken.
func TestTakeoverOfIdle(t *testing.T) {
	m, def := contested(t)
	m.disk()
	m.card()
	m.Write("/sys/class/block/vda/dev", "254:0\n") // not of the device
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil ||
		m.bound(ko.Device) != "edu" {
		t.Error(problem, m.bound(ko.Device))
	}
}

// rootMount is a line of the table of mounts.
const rootMount = "1 0 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"

func (m *testMachine) link(name, target string) {
	m.T.Helper()
	if err := os.MkdirAll(filepath.Dir(m.Path(name)), 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.Symlink(target, m.Path(name)); err != nil {
		m.T.Fatal(err)
	}
}

// disk puts a disk with a partition below the device.
func (m *testMachine) disk() {
	dir := "/sys/bus/pci/devices/" + ko.Device + "/nvme/nvme0/nvme0n1"
	for name, minor := range map[string]string{"": "0", "/nvme0n1p1": "1"} {
		node := filepath.Base(dir + name)
		m.Write(dir+name+"/dev", "259:"+minor+"\n")
		m.Write(dir+name+"/uevent", "DEVNAME="+node+"\n")
		m.link("/sys/class/block/"+node, strings.Replace(dir, "/sys", "../..", 1)+name)
	}
	m.Write("/proc/1/mountinfo", rootMount)
}

// card puts a network interface that is down below the device.
func (m *testMachine) card() {
	dir := "/sys/bus/pci/devices/" + ko.Device
	m.Write(dir+"/class", "0x020000\n")
	m.Write(dir+"/net/eth0/flags", "0x1002\n")
	m.link("/sys/class/net/eth0", strings.Replace(dir, "/sys", "../..", 1)+"/net/eth0")
}

// TestTakeoverTakenBack: if the driver does not come up, the device goes back to the driver that had it.
func TestTakeoverTakenBack(t *testing.T) {
	for name, change := range map[string]func(*testMachine){
		"refused by the kernel": func(m *testMachine) { m.refuse["edu"] = syscall.ENOMEM },
		"the device is refused": func(m *testMachine) { m.failProbe[ko.Device] = true },
		"no nodes":              func(m *testMachine) { m.noNodes = true },
	} {
		t.Run(name, func(t *testing.T) {
			m, def := contested(t)
			change(m)
			d := m.driver(Options{})
			if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil {
				t.Fatal("it came up")
			}
			if m.bound(ko.Device) != "other" || m.kept(ko.Device) || m.isLive("edu") {
				t.Error(m.bound(ko.Device), m.kept(ko.Device), m.attributes)
			}
			if notes, err := d.ledger.Notes(""); err != nil || len(notes) > 0 {
				t.Error(notes, err)
			}
		})
	}
}

// TestTakeoverKilledAtEveryPoint: the next process completes the takeover of a process that was killed, or undoes it
// if the driver is no longer available.
func TestTakeoverKilledAtEveryPoint(t *testing.T) {
	for _, gone := range []bool{false, true} {
		seen := map[string]bool{}
		for n := 0; ; n++ {
			m, def := contested(t)
			d := m.driver(Options{})
			points, dead := m.killAt(d, n, func() { _, _ = d.Ensure(t.Context(), def, m.Facts(), m.accs()) })
			for _, p := range points {
				seen[p] = true
			}
			if !dead {
				break
			}
			if notes, err := d.ledger.Notes(NoteTakeover); points[len(points)-1] == "takeover noted" &&
				(err != nil || len(notes) != 1 || notes[0].Text != "other") {
				t.Errorf("killed before anything is done to the device, on record is %+v (%v)", notes, err)
			}
			m.mu.TryLock() // the fake may also have died in the middle of a call
			m.mu.Unlock()
			if gone && !m.isLive("edu") {
				_ = os.RemoveAll(m.Path("/lib/modules"))
			}
			after := m.driver(Options{})
			have, problem := after.Ensure(t.Context(), def, m.Facts(), m.accs())
			want := "edu"
			if gone && !m.isLive("edu") {
				want = "other"
			}
			if m.bound(ko.Device) != want || m.kept(ko.Device) != (want == "edu") || have.Serves != (want == "edu") {
				t.Errorf("killed at %q: the device is with %q, want %q: %v", points[len(points)-1], m.bound(ko.Device),
					want, problem)
			}
		}
		for _, p := range []string{"takeover noted", "device kept", "device unbound", "load edu"} {
			if !seen[p] {
				t.Errorf("%q was not passed: %v", p, cmp.Diff(nil, seen))
			}
		}
	}
}

// TestTakeoverGivenBackLater: a device that its driver does not take back at once stays recorded until it does.
func TestTakeoverGivenBackLater(t *testing.T) {
	m, def := contested(t)
	m.refuse["edu"] = syscall.ENOMEM
	m.refuseAttribute = map[string]error{"bind": syscall.EBUSY}
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		m.bound(ko.Device) != "" {
		t.Fatalf("with %q: %v", m.bound(ko.Device), problem)
	}
	m.refuseAttribute = nil
	d := m.driver(Options{})
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil || m.bound(ko.Device) != "other" {
		t.Errorf("the next time it is with %q: %v", m.bound(ko.Device), problem)
	}
	if notes, err := d.ledger.Notes(""); err != nil || len(notes) > 0 {
		t.Error(notes, err)
	}
}
