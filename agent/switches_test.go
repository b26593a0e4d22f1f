package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/host/hosttest"
)

// TestSwitchesGoBack: a device is given back when the record of its claim is gone, and not before; what keeps it is
// shown with the device.
func TestSwitchesGoBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	save(t, file, "logLevel: error\n")
	o := options(hosttest.New(t).Host.Root(), file)
	s, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	a := bare(t, o, s)
	a.loop = loop.New(loop.Options{})
	record := filepath.Join(s.Host.Root(), s.Config.StateDir, "dra/qemu-edu/u-1.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, record, "what an older agent cannot read")
	const gone = "0000:7f:00.0" // no longer on the bus: its journal is all that is left of it
	journal := accel.Switched{Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: "u-1"}
	if err := s.Host.Devices().Switch(gone, journal); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		t.Helper()
		j, err := s.Host.Devices().SwitchedOf(gone)
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
	shown := a.switches.enrich([]accel.Accelerator{x, {ID: "other"}})
	if shown[0].Withheld.Reason != accel.NotGivenBack || !shown[0].WithheldBy(accel.BySwitch) ||
		shown[1].Withheld != nil {
		t.Errorf("%+v", shown)
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
