package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/runtime/gate"
)

// TestSwitchesGoBack: a device is given back when the record of its claim is gone, and not before; what keeps it is
// shown with the device.
func TestSwitchesGoBack(t *testing.T) {
	a := idle(t, hosttest.New(t))
	record := filepath.Join(a.Host.Root(), a.Config.StateDir, "dra/qemu-edu/u-1.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, record, "what an older agent cannot read")
	const gone = "0000:7f:00.0" // no longer on the bus: its journal is all that is left of it
	journal := accel.Switched{Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: "u-1"}
	if err := a.Host.Devices().Switch(gone, journal); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		t.Helper()
		j, err := a.Host.Devices().SwitchedOf(gone)
		if err != nil {
			t.Fatal(err)
		}
		return j != nil
	}
	if a.switches.pass(t.Context()) || !there() {
		t.Error("a device is taken from a claim that is prepared")
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if a.switches.pass(t.Context()) || there() {
		t.Error("it is not given back")
	}
	x := accel.Accelerator{ID: gone, Switched: &journal}
	x.WithholdSwitched()
	a.switches.note(map[string]*accel.Problem{gone: accel.Problemf(accel.NotGivenBack, "in use by qemu")})
	shown := a.switches.enrich(&accel.Definition{}, []accel.Accelerator{x, {ID: "other"}})
	if shown[0].Withheld.Reason != accel.NotGivenBack || !shown[0].WithheldBy(accel.BySwitch) ||
		shown[1].Withheld != nil {
		t.Errorf("%+v", shown)
	}
}

// TestGivenIsAdmitted: when a claim has its device, the hook lets its containers start, whatever happens to the agent
// then.
func TestGivenIsAdmitted(t *testing.T) {
	a := idle(t, hosttest.New(t))
	journal := accel.Switched{Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", Claim: "u-1"}
	x := accel.Accelerator{
		ID: "0000:7f:00.0", Bound: "vfio-pci", Switched: &journal, Health: accel.Health{State: accel.Healthy},
		Nodes: []accel.DeviceNode{{Path: "/dev/vfio/7"}},
	}
	x.WithholdSwitched()
	if _, err := a.Host.Stat(gate.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the hook knows something already: %v", err)
	}
	if _, problem := a.switches.give(t.Context(), &accel.Definition{Kind: "qemu-edu"}, x, "u-1", "one"); problem != nil {
		t.Fatal(problem)
	}
	if _, err := a.Host.Stat(gate.Path); err != nil {
		t.Errorf("what the hook reads is not published: %v", err)
	}
}

func TestKnownFunctions(t *testing.T) {
	m := accel.Machine{Have: map[string]accel.Have{"a-b": {Accelerators: []accel.Accelerator{
		{ID: "one"}, {ID: "two", Health: accel.Health{State: accel.Gone}},
	}}}}
	if !known(m, "one") || known(m, "two") || known(m, "three") {
		t.Error("what is on the bus is known, and nothing else")
	}
}

// TestDueAside: only devices that are set aside, are there and have their own driver are switched, where a kubelet
// gives them out; and they stay for as long as the configuration says so.
func TestDueAside(t *testing.T) {
	def := &accel.Definition{
		Kind: "a-b", Driver: accel.DriverDefinition{Binds: "x"},
		VFIO: &accel.VFIO{Devices: []string{"0000:00:04.0", "0000:00:06.0", "0000:00:07.0"}},
	}
	healthy := accel.Health{State: accel.Healthy}
	m := accel.Machine{
		Want: accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"a-b": def}},
		Have: map[string]accel.Have{"a-b": {Accelerators: []accel.Accelerator{
			{ID: "0000:00:04.0", Health: healthy},
			{ID: "0000:00:05.0", Health: healthy},
			{ID: "0000:00:06.0", Health: healthy, Switched: &accel.Switched{}},
			{ID: "0000:00:07.0", Health: accel.Health{State: accel.Gone}},
		}}, "c-d": {Accelerators: []accel.Accelerator{{ID: "0000:00:08.0", Health: healthy}}}},
	}
	if due := dueAside(m); len(due) != 1 || due[0].device.ID != "0000:00:04.0" || due[0].def != def {
		t.Errorf("%+v", due)
	}
	j := accel.Switched{Kind: "a-b"}
	if !staysAside(m, "0000:00:06.0", j) || staysAside(m, "0000:00:05.0", j) ||
		staysAside(m, "0000:00:06.0", accel.Switched{Kind: "c-d"}) {
		t.Error("what the configuration says does not decide")
	}
	m.Want.Kubernetes = false
	if len(dueAside(m)) > 0 {
		t.Error("there is nobody to give them out")
	}
}

// TestAsideGoesBack: a device that is no longer set aside is given back, but not while it is unknown whether a pod has
// it; while it is set aside it counts as given to a tenant of its own.
func TestAsideGoesBack(t *testing.T) {
	a := idle(t, hosttest.New(t))
	const gone = "0000:7f:00.0"
	journal := accel.Switched{
		Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: accel.AsideClaim(gone),
	}
	if err := a.Host.Devices().Switch(gone, journal); err != nil {
		t.Fatal(err)
	}
	if !a.switches.lent(gone) || a.switches.lent("0000:7e:00.0") {
		t.Error("who has the device is not known")
	}
	def := &accel.Definition{
		Kind: "qemu-edu", Driver: accel.DriverDefinition{Binds: "edu"}, VFIO: &accel.VFIO{Devices: []string{gone}},
	}
	want := accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"qemu-edu": def}}
	a.loop = loop.New(loop.Options{Want: want})
	if a.switches.pass(t.Context()) || !a.switches.lent(gone) {
		t.Error("it is given back although it is set aside")
	}
	def.VFIO = nil
	if !a.switches.pass(t.Context()) || !a.switches.lent(gone) {
		t.Error("it is given back although nobody has asked the kubelet who has it")
	}
	problem := a.switches.setAside(t.Context(), def, accel.Accelerator{ID: "0000:7e:00.0"})
	if problem == nil || problem.Reason != accel.InUse || a.switches.lent("0000:7e:00.0") {
		t.Errorf("a device is set aside although nobody has asked the kubelet who has it: %v", problem)
	}
	a.loop = loop.New(loop.Options{})
	if a.switches.pass(t.Context()) || a.switches.lent(gone) {
		t.Error("it is not given back")
	}
	a.switches.lends(gone, true)
	if !a.switches.lent(gone) {
		t.Error("a device on its way is nobody's")
	}
}
