package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/test/ko"
)

// vfioMachine is a machine whose device has its driver, an IOMMU group of its own and a kernel with VFIO.
type vfioMachine struct {
	*testMachine
	def *accel.Definition
}

const group7 = "/sys/kernel/iommu_groups/7/devices/"

func withVFIO(t *testing.T) *vfioMachine {
	t.Helper()
	m := &vfioMachine{testMachine: newMachine(t), def: ko.Definition()}
	m.Install("updates/edu.ko", ko.Edu())
	m.Write(overrideOf(ko.Device), "(null)\n")
	m.link("/sys/bus/pci/devices/"+ko.Device+"/iommu_group", "../../../kernel/iommu_groups/7")
	m.link(group7+ko.Device, "../../../../devices/pci0000:00/"+ko.Device)
	m.Write("/sys/module/vfio_pci/initstate", "live\n")
	m.Write("/sys/module/vfio_iommu_type1/initstate", "live\n")
	m.Write("/sys/bus/pci/drivers/vfio-pci/new_id", "")
	m.def.VFIO = &accel.VFIO{}
	if _, problem := m.new().Ensure(t.Context(), m.def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	return m
}

// new is an agent that has just started.
func (m *vfioMachine) new() *Driver {
	d := m.driver(Options{})
	d.attribute = m.attribute
	return d
}

// attribute does what the kernel does when a driver is bound or unbound.
func (m *vfioMachine) attribute(name, text string) error {
	m.plain()
	before := m.bound(text)
	kept := strings.HasPrefix(m.Read(overrideOf(text)), "vfio-pci")
	to := filepath.Base(filepath.Dir(name))
	if filepath.Base(name) == "bind" && kept != (to == "vfio-pci") {
		return syscall.ENODEV
	}
	if err := m.testMachine.attribute(name, text); err != nil {
		return err
	}
	if m.bound(text) == "vfio-pci" {
		m.Write("/sys/class/vfio/7/dev", "241:0\n")
		m.Write("/sys/class/vfio/7/uevent", "DEVNAME=vfio/7\n")
		m.Write("/dev/vfio/7", "")
	} else if before == "vfio-pci" {
		_ = os.RemoveAll(m.Path("/sys/class/vfio/7"))
		_ = os.Remove(m.Path("/dev/vfio/7"))
	}
	return nil
}

// plain makes driver_override what the kernel would show: the ledger writes less text than the file has.
func (m *vfioMachine) plain() {
	if text := m.Read(overrideOf(ko.Device)); !strings.HasPrefix(text, "vfio-pci") {
		m.Write(overrideOf(ko.Device), "(null)\n")
	}
}

func (m *vfioMachine) request() SwitchRequest {
	return SwitchRequest{
		Def: m.def, Device: m.accs()[0], Claim: "uid-1", Name: "team/vm",
		Ready: func(context.Context) *accel.Problem { return nil },
	}
}

func (m *vfioMachine) give(d *Driver) (accel.Accelerator, *accel.Problem) {
	m.plain()
	return NewSwitches(d).Give(m.T.Context(), m.Facts(), m.request())
}

func (m *vfioMachine) back(d *Driver) *accel.Problem {
	m.plain()
	return NewSwitches(d).Return(m.T.Context(), ko.Device, func(accel.Switched) bool { return true })
}

// isOrdinary checks that the device is as it was before it was given out.
func (m *vfioMachine) isOrdinary(when string) {
	m.T.Helper()
	all, err := m.Host.Devices().Switched()
	if m.bound(ko.Device) != "edu" || strings.HasPrefix(m.Read(overrideOf(ko.Device)), "vfio") || len(all) > 0 || err != nil {
		m.T.Errorf("%s: bound to %q, kept %q, journals %v %v", when, m.bound(ko.Device), m.Read(overrideOf(ko.Device)), all, err)
	}
}

func TestGiveAndReturn(t *testing.T) {
	m := withVFIO(t)
	d := m.new()
	a, problem := m.give(d)
	if problem != nil || m.bound(ko.Device) != "vfio-pci" || len(a.Nodes) != 1 || a.Nodes[0].Path != "/dev/vfio/7" ||
		!a.ServesClaim("uid-1") || a.ServesClaim("uid-2") || a.Offered() {
		t.Fatal(a, problem, m.bound(ko.Device))
	}
	if j, err := m.Host.Devices().SwitchedOf(ko.Device); err != nil || j.From != "edu" || j.Group != 7 || j.Name != "team/vm" {
		t.Error(j, err)
	}
	m.attributes = nil
	if _, problem := m.give(m.new()); problem != nil || len(m.attributes) > 0 {
		t.Error("not idle:", problem, m.attributes)
	}
	other := m.request()
	other.Claim = "uid-2"
	if _, problem := NewSwitches(d).Give(t.Context(), m.Facts(), other); problem == nil ||
		problem.Reason != accel.SwitchRefused || m.bound(ko.Device) != "vfio-pci" {
		t.Error("another claim:", problem)
	}
	wanted := func(j accel.Switched) bool { return j.Claim == "x" }
	if problem := NewSwitches(d).Return(t.Context(), ko.Device, wanted); problem != nil || m.bound(ko.Device) != "vfio-pci" {
		t.Error("while it is wanted:", problem)
	}
	if problem := m.back(d); problem != nil {
		t.Fatal(problem)
	}
	m.isOrdinary("afterwards")
}

// TestKindWithoutASwitchedDevice: nothing that is done about the kind's driver concerns a device that is given out.
func TestKindWithoutASwitchedDevice(t *testing.T) {
	m := withVFIO(t)
	second := "0000:02:00.0"
	m.AddDevice(second)
	m.bindEdu(second)
	d := m.new()
	if _, problem := m.give(d); problem != nil {
		t.Fatal(problem)
	}
	m.Write("/proc/77/comm", "qemu\n")
	m.link("/proc/77/fd/3", "/dev/vfio/7")
	m.attributes = nil
	accs := m.accs()
	accs[0].Nodes = []accel.DeviceNode{{Path: "/dev/vfio/7"}}
	have, problem := d.Ensure(t.Context(), m.def, m.Facts(), accs)
	if problem != nil || !have.Serves || len(m.attributes) > 0 {
		t.Error(have, problem, m.attributes)
	}
	if who := d.Holders(m.def, accs); len(who) > 0 {
		t.Error("the upgrade would wait for", who)
	}
	plans := d.PlanReset(m.Facts(), []ResetTarget{{Def: m.def, Device: accs[0]}})
	if p := plans[0].Problem; p == nil || p.Reason != accel.CannotReset || !strings.Contains(p.Message, "given out") {
		t.Error("reset:", p)
	}
	if problem := d.Unload(t.Context(), m.def, m.Facts(), accs); problem != nil || m.bound(ko.Device) != "vfio-pci" {
		t.Error("unload:", problem, m.bound(ko.Device))
	}
	_ = os.RemoveAll(m.Path("/sys/bus/pci/drivers/edu"))
	if problem := m.back(d); problem == nil || problem.Reason != accel.NotGivenBack ||
		!strings.Contains(problem.Message, "qemu") {
		t.Error("under a virtual machine:", problem)
	}
	_ = os.RemoveAll(m.Path("/proc/77"))
	if problem := m.back(d); problem != nil || m.bound(ko.Device) != "" {
		t.Error("without a driver to go back to:", problem, m.bound(ko.Device))
	}
	m.plain()
	if _, problem := d.Ensure(t.Context(), m.def, m.Facts(), accs); problem != nil {
		t.Error(problem)
	}
	m.isOrdinary("with the driver loaded again")
}

// TestGiveRefused has a row for each device that cannot be given out; nothing is changed.
func TestGiveRefused(t *testing.T) {
	other := "0000:01:00.1"
	for name, c := range map[string]struct {
		change func(*vfioMachine, *SwitchRequest)
		reason accel.Reason
		says   string
	}{
		"not configured": {func(m *vfioMachine, _ *SwitchRequest) { m.def.VFIO = nil }, accel.SwitchRefused, "does not give"},
		"in use": {func(m *vfioMachine, _ *SwitchRequest) {
			m.Write("/proc/77/comm", "train\n")
			m.link("/proc/77/fd/3", "/dev/edu0")
		}, accel.InUse, "train"},
		"no group": {func(m *vfioMachine, _ *SwitchRequest) {
			_ = os.Remove(m.Path("/sys/bus/pci/devices/" + ko.Device + "/iommu_group"))
		}, accel.NoIOMMUGroup, "no IOMMU group"},
		"a group that cannot be read": {func(m *vfioMachine, _ *SwitchRequest) {
			_ = os.RemoveAll(m.Path("/sys/kernel/iommu_groups"))
		}, accel.ProbeUnanswered, "is not known"},
		"a driver of the host in the group": {func(m *vfioMachine, _ *SwitchRequest) {
			m.link(group7+other, "../../../../devices/pci0000:00/"+other)
			m.Write("/sys/bus/pci/devices/"+other+"/class", "0x040300\n")
			m.bind(other, "snd_hda_intel")
		}, accel.GroupShared, "snd_hda_intel"},
		"another accelerator in the group": {func(m *vfioMachine, r *SwitchRequest) {
			m.link(group7+other, "../../../../devices/pci0000:00/"+other)
			r.Known = func(id string) bool { return id == other }
		}, accel.GroupShared, other},
		"the console": {func(m *vfioMachine, _ *SwitchRequest) {
			m.Write("/sys/bus/pci/devices/"+ko.Device+"/boot_vga", "1\n")
		}, accel.SwitchRefused, "console"},
		"virtual functions": {func(m *vfioMachine, _ *SwitchRequest) { m.virtualFunction() }, accel.SwitchRefused, "1 virtual"},
		"kept by somebody": {func(m *vfioMachine, _ *SwitchRequest) {
			m.Write(overrideOf(ko.Device), "vfio-mine\n")
		}, accel.ConflictDriver, "vfio-mine"},
		"another driver": {func(m *vfioMachine, _ *SwitchRequest) { m.rebound() }, accel.ConflictDriver, "mine"},
		"a journal that cannot be read": {func(m *vfioMachine, _ *SwitchRequest) {
			m.Write("/run/acceld/switched/"+ko.Device+".json", "{")
		}, accel.ProbeUnanswered, "cannot read"},
		"not withheld": {func(_ *vfioMachine, r *SwitchRequest) {
			r.Ready = func(context.Context) *accel.Problem { return accel.Problemf(accel.InUse, "given away") }
		}, accel.InUse, "given away"},
	} {
		t.Run(name, func(t *testing.T) {
			m := withVFIO(t)
			r := m.request()
			c.change(m, &r)
			was := m.bound(ko.Device)
			m.attributes = nil
			_, problem := NewSwitches(m.new()).Give(t.Context(), m.Facts(), r)
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says) {
				t.Error(problem)
			}
			if m.bound(ko.Device) != was || len(m.attributes) > 0 ||
				strings.HasPrefix(m.Read(overrideOf(ko.Device)), "vfio-pci") {
				t.Error("something was changed:", m.attributes, m.bound(ko.Device))
			}
			j, err := m.Host.Devices().SwitchedOf(ko.Device)
			if j != nil || err != nil && c.reason != accel.ProbeUnanswered {
				t.Error("a journal is left:", j, err)
			}
		})
	}
}

// TestGiveGroupOfBridges: bridges and functions without a driver that nobody gives out do not hinder.
func TestGiveGroupOfBridges(t *testing.T) {
	m := withVFIO(t)
	for id, class := range map[string]string{"0000:01:00.1": "0x060400\n", "0000:01:00.2": "0x040300\n"} {
		m.link(group7+id, "../../../../devices/pci0000:00/"+id)
		m.Write("/sys/bus/pci/devices/"+id+"/class", class)
	}
	m.bind("0000:01:00.1", "pcieport")
	if _, problem := m.give(m.new()); problem != nil {
		t.Error(problem)
	}
}

// TestGiveUndone: if the kernel refuses a step, the device is as before.
func TestGiveUndone(t *testing.T) {
	for name, c := range map[string]struct {
		refuse map[string]error
		reason accel.Reason
	}{
		"unbind": {map[string]error{"unbind": syscall.EBUSY}, accel.SwitchFailed},
		"node":   {nil, accel.SwitchFailed},
	} {
		m := withVFIO(t)
		d := m.new()
		if name == "node" {
			d.attribute = func(file, text string) error { // the kernel binds, and makes no node
				err := m.attribute(file, text)
				_ = os.RemoveAll(m.Path("/sys/class/vfio"))
				return err
			}
		}
		m.refuseAttribute = c.refuse
		_, problem := m.give(d)
		m.refuseAttribute = nil
		if problem == nil || problem.Reason != c.reason {
			t.Error(name, problem)
		}
		m.isOrdinary(name)
	}
	m := withVFIO(t)
	d := m.new()
	refuse := true
	d.attribute = func(file, text string) error {
		if refuse && strings.HasSuffix(file, "vfio-pci/bind") {
			return syscall.EINVAL
		}
		return m.attribute(file, text)
	}
	if _, problem := m.give(d); problem == nil || !strings.Contains(problem.Message, "invalid argument") {
		t.Error(problem)
	}
	m.isOrdinary("the driver for vfio refuses it")
}

// TestReturnRefused: a device that its own driver refuses is the kind's to repair: no journal keeps it.
func TestReturnRefused(t *testing.T) {
	m := withVFIO(t)
	d := m.new()
	if _, problem := m.give(d); problem != nil {
		t.Fatal(problem)
	}
	d.attribute = func(file, text string) error {
		if strings.HasSuffix(file, "edu/bind") {
			return syscall.EIO
		}
		return m.attribute(file, text)
	}
	if problem := m.back(d); problem != nil || m.bound(ko.Device) != "" {
		t.Error(problem, m.bound(ko.Device))
	}
	m.plain()
	d = m.new()
	if _, problem := d.Ensure(t.Context(), m.def, m.Facts(), m.accs()); problem != nil {
		t.Error(problem)
	}
	m.isOrdinary("after the next Ensure")
}

// TestSwitchKilledAtEveryPoint kills the agent before and after everything that outlives it, on the way to VFIO and
// back. The next agent goes on, or goes back.
func TestSwitchKilledAtEveryPoint(t *testing.T) {
	for _, direction := range []string{"to vfio", "back"} {
		for n := 0; ; n++ {
			ended := true
			for _, next := range []string{"goes on", "goes back", "is purged", "boots"} {
				m := withVFIO(t)
				d := m.new()
				do := func() { _, _ = m.give(d) }
				if direction == "back" {
					if _, problem := m.give(d); problem != nil {
						t.Fatal(problem)
					}
					do = func() { _ = m.back(d) }
				}
				_, dead := m.killAt(d, n, do)
				if !dead {
					continue
				}
				ended = false
				when := direction + ", killed at " + string(rune('a'+n)) + ", then it " + next
				m.plain()
				switch next {
				case "goes on":
					if _, problem := m.give(m.new()); problem != nil || m.bound(ko.Device) != "vfio-pci" {
						t.Error(when, problem, m.bound(ko.Device))
					}
				case "goes back":
					if problem := m.back(m.new()); problem != nil {
						t.Error(when, problem)
					}
					m.isOrdinary(when)
				case "is purged":
					out, problem := m.new().Purge(t.Context(), PurgeOptions{})
					left := func(o ledger.Outcome) bool { return o.Action == ledger.Left }
					if problem != nil || slices.ContainsFunc(out, left) {
						t.Error(when, out, problem)
					}
					all, err := m.Host.Devices().Switched()
					if m.bound(ko.Device) == "vfio-pci" || len(all) > 0 || err != nil {
						t.Error(when, m.bound(ko.Device), all, err)
					}
				case "boots":
					m.boot()
					if _, problem := m.new().Ensure(t.Context(), m.def, m.Facts(), m.accs()); problem != nil {
						t.Error(when, problem)
					}
					m.isOrdinary(when)
				}
			}
			if ended {
				if n < 6 {
					t.Errorf("%s: only %d points", direction, n)
				}
				break
			}
		}
	}
}

// boot is what a boot leaves: no driver, no override, nothing below /run.
func (m *vfioMachine) boot() {
	if m.bound(ko.Device) != "" {
		_ = m.unbind(ko.Device)
	}
	for _, dir := range []string{"/run", "/sys/class/vfio", "/dev/vfio", "/sys/module/edu", "/sys/bus/pci/drivers/edu"} {
		_ = os.RemoveAll(m.Path(dir))
	}
	m.Write(overrideOf(ko.Device), "(null)\n")
}

// TestSwitchDecisions has what the machine cannot show.
func TestSwitchDecisions(t *testing.T) {
	def := ko.Definition()
	def.VFIO = &accel.VFIO{}
	mine := &accel.Switched{Use: accel.UseVFIO, Driver: "vfio-pci", From: "edu", Claim: "c"}
	for name, c := range map[string]struct {
		sight  switchSight
		step   switchStep
		reason accel.Reason
	}{
		"new":            {switchSight{Present: true, Bound: "edu"}, switchNote, ""},
		"without driver": {switchSight{Present: true}, switchNote, ""},
		"no modules":     {switchSight{Present: true, Bound: "edu", Journal: mine}, switchLoad, ""},
		"modules":        {switchSight{Present: true, Bound: "edu", Journal: mine, Target: true}, switchKeep, ""},
		"kept":           {switchSight{Present: true, Bound: "edu", Journal: mine, Target: true, Kept: "vfio-pci"}, switchUnbind, ""},
		"unbound":        {switchSight{Present: true, Journal: mine, Target: true, Kept: "vfio-pci"}, switchBind, ""},
		"bound":          {switchSight{Present: true, Journal: mine, Bound: "vfio-pci"}, switchAwait, ""},
		"there":          {switchSight{Present: true, Journal: mine, Bound: "vfio-pci", Node: true}, switchDone, ""},
		"gone":           {switchSight{}, "", accel.DeviceGone},
		"opened after the journal": {
			switchSight{
				Present: true, Bound: "edu", Journal: mine, Target: true, Kept: "vfio-pci", Users: []accel.Holder{{PID: 7}},
			}, "", accel.InUse,
		},
		"unknown":  {switchSight{Present: true, Bound: "edu", Unknown: errors.New("x")}, "", accel.ProbeUnanswered},
		"host use": {switchSight{Present: true, Bound: "edu", Use: "a disk"}, "", accel.InUse},
		"no group": {switchSight{Present: true, Bound: "edu", Group: -1}, "", accel.NoIOMMUGroup},
	} {
		step, problem := away(def, "d", "c", c.sight)
		if step != c.step || (problem != nil) != (c.reason != "") || problem != nil && problem.Reason != c.reason {
			t.Errorf("%s: %q %v", name, step, problem)
		}
	}
	for name, c := range map[string]struct {
		sight switchSight
		step  switchStep
	}{
		"nothing":     {switchSight{Present: true}, switchDone},
		"gone":        {switchSight{Journal: mine}, switchForget},
		"bound":       {switchSight{Present: true, Journal: mine, Bound: "vfio-pci", Kept: "vfio-pci"}, switchUnbind},
		"unbound":     {switchSight{Present: true, Journal: mine, Kept: "vfio-pci", Home: true}, switchRestore},
		"restored":    {switchSight{Present: true, Journal: mine, Home: true}, switchBind},
		"refused":     {switchSight{Present: true, Journal: mine, Home: true, Refused: true}, switchForget},
		"no driver":   {switchSight{Present: true, Journal: mine}, switchForget},
		"home":        {switchSight{Present: true, Journal: mine, Bound: "edu", Home: true}, switchForget},
		"home, kept":  {switchSight{Present: true, Journal: mine, Bound: "edu", Kept: "vfio-pci"}, switchRestore},
		"with others": {switchSight{Present: true, Journal: mine, Bound: "other"}, switchForget},
	} {
		if step, problem := back("d", c.sight); step != c.step || problem != nil {
			t.Errorf("%s: %q %v", name, step, problem)
		}
	}
}
