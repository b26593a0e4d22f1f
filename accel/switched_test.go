package accel

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzReadSwitched: whatever a journal says, what is read of it is bounded and can become part of paths, and is written
// again as it was.
func FuzzReadSwitched(f *testing.F) {
	for _, seed := range []string{
		`{"use":"vfio","kind":"qemu-edu","driver":"vfio-pci","from":"edu","group":7,"claim":"u-1","name":"team/vm"}`,
		`{"use":"vfio","kind":"qemu-edu","driver":"../x","group":7,"claim":"u-1"}`,
		`{"use":"uio","kind":"qemu-edu","driver":"vfio-pci","group":7,"claim":"u-1"}`,
		`{"use":"vfio","kind":"../../x","driver":"vfio-pci","group":7,"claim":"../u"}`, `{`, ``, `null`,
		`{"use":"vfio","kind":"qemu-edu","driver":"vfio-pci","group":-1,"claim":"u-1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ReadSwitched(text)
		if err != nil {
			return
		}
		for _, word := range []string{s.Driver, s.From, s.Kept, s.Claim, s.Kind} {
			if strings.ContainsAny(word, "/. \n") || len(word) > MaxSwitched {
				t.Fatalf("%q", word)
			}
		}
		if s.Use != UseVFIO || s.Driver == "" || s.Claim == "" || s.Group < 0 {
			t.Fatalf("%+v", s)
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) <= MaxSwitched {
			if o, err := ReadSwitched(again); err != nil || o.Driver != s.Driver || o.Claim != s.Claim {
				t.Fatalf("%v %+v", err, o)
			}
		}
	})
}

func TestVFIOProblems(t *testing.T) {
	for name, c := range map[string]struct {
		def  Definition
		want string
	}{
		"none":        {Definition{}, ""},
		"plain":       {Definition{VFIO: &VFIO{}, Driver: DriverDefinition{Binds: "edu"}}, ""},
		"a variant":   {Definition{VFIO: &VFIO{Driver: "nvgrace-gpu-vfio-pci", Ask: AskByClaim}, Driver: DriverDefinition{Binds: "nvidia"}}, ""},
		"not vfio":    {Definition{VFIO: &VFIO{Driver: "uio_pci_generic"}, Driver: DriverDefinition{Binds: "edu"}}, "vfio.driver: "},
		"set aside":   {Definition{VFIO: &VFIO{Devices: []string{"0000:3b:00.0", "*"}, Resource: "x.org/y"}, Driver: DriverDefinition{Binds: "edu"}}, ""},
		"no address":  {Definition{VFIO: &VFIO{Devices: []string{"3b:00"}}, Driver: DriverDefinition{Binds: "edu"}}, "vfio.devices[0]: "},
		"no resource": {Definition{VFIO: &VFIO{Resource: "y"}, Driver: DriverDefinition{Binds: "edu"}}, "vfio.resource: "},
		"one resource": {Definition{
			Resource: "x.org/y", VFIO: &VFIO{Devices: []string{"*"}, Resource: "x.org/y"},
			Driver: DriverDefinition{Binds: "edu"},
		}, "vfio.resource: "},
		"by claims": {Definition{
			Allocation: AllocateByDRA, VFIO: &VFIO{Devices: []string{"*"}}, Driver: DriverDefinition{Binds: "edu"},
		}, "vfio.devices: "},
		"a path":       {Definition{VFIO: &VFIO{Driver: "../vfio-pci"}, Driver: DriverDefinition{Binds: "edu"}}, "vfio.driver: "},
		"a module":     {Definition{VFIO: &VFIO{Modules: []string{"a b"}}, Driver: DriverDefinition{Binds: "edu"}}, "vfio.modules[0]: "},
		"unknown ask":  {Definition{VFIO: &VFIO{Ask: "all"}, Driver: DriverDefinition{Binds: "edu"}}, "vfio.ask: "},
		"no driver":    {Definition{VFIO: &VFIO{}}, "vfio: "},
		"by override":  {Definition{VFIO: &VFIO{}, Driver: DriverDefinition{Binds: "edu", Override: true}}, "vfio: "},
		"its own":      {Definition{VFIO: &VFIO{}, Driver: DriverDefinition{Binds: "vfio-pci"}}, "vfio: "},
		"default name": {Definition{VFIO: &VFIO{Driver: "vfio-pci"}, Driver: DriverDefinition{Binds: "edu"}}, ""},
	} {
		got := strings.Join(c.def.VFIOProblems(), "; ")
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if m := (VFIO{Driver: "mine-vfio-pci"}).ModuleNames(); strings.Join(m, " ") != "vfio_iommu_type1 mine_vfio_pci" {
		t.Error(m)
	}
}

// TestSwitchedOffer: a switched device is offered to nobody, is recognised as before, and lets the
// containers start that have it.
func TestSwitchedOffer(t *testing.T) {
	j := &Switched{Use: UseVFIO, Driver: "vfio-pci", From: "edu", Claim: "u", Name: "team/vm"}
	a := Accelerator{ID: "d", Bound: "vfio-pci", Nodes: []DeviceNode{{Path: "/dev/vfio/7"}}, Switched: j, Health: Health{State: Healthy}}
	a.WithholdSwitched()
	if a.Offered() || !a.WithheldAlone() || !a.ServesClaim("u") || a.ServesClaim("v") {
		t.Errorf("%+v", a)
	}
	on := a
	on.Bound, on.Nodes = "edu", nil
	on.WithholdSwitched()
	m := Machine{Have: map[string]Have{"a-b": {Accelerators: []Accelerator{a, on}}}}
	if s := Startable(m, "a-b"); !s[0].Offered() || s[1].Offered() {
		t.Errorf("%+v", s)
	}
	if on.ServesClaim("u") || !strings.Contains(on.Withheld.Message, "on the way") {
		t.Errorf("%+v", on.Withheld)
	}
	def := &Definition{Match: []Match{{Vendor: "1234", Driver: "edu"}}, Except: []Match{{Driver: "vfio-pci"}}}
	if !def.Recognises(PCIDevice{Vendor: "1234", Driver: "vfio-pci", Switched: j}) ||
		def.Recognises(PCIDevice{Vendor: "1234", Driver: "vfio-pci"}) {
		t.Error("recognised by the driver that it has now")
	}
}
