package accel

import (
	"strings"
	"testing"
)

// asideKind sets one device aside, the other not.
func asideKind() *Definition {
	return &Definition{
		Kind: "qemu-edu", Resource: "qemu.org/edu", Driver: DriverDefinition{Binds: "edu"},
		VFIO: &VFIO{Devices: []string{"0000:00:04.0"}}, Sharing: &Sharing{Replicas: 4},
	}
}

// switchedFor returns a device that has its other driver.
func switchedFor(id, claim string) Accelerator {
	a := Accelerator{
		ID: id, Bound: "vfio-pci", Nodes: []DeviceNode{{Path: "/dev/vfio/7"}}, Health: Health{State: Healthy},
		Switched: &Switched{Use: UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: claim},
	}
	a.WithholdSwitched()
	return a
}

// TestSetAside: a device is offered in one of the two resources at a time, and in none on the way.
func TestSetAside(t *testing.T) {
	const one, two = "0000:00:04.0", "0000:00:05.0"
	unit := func(all []Accelerator, id string) Accelerator {
		for _, u := range Units(all) {
			if u.ID == id {
				return u
			}
		}
		return Accelerator{Withheld: &Withheld{By: "absence"}}
	}
	const part = one + "-vfio-7"
	away := switchedFor(one, AsideClaim(one))
	away.Bound, away.Nodes = "", nil
	away.WithholdSwitched()
	unwanted := asideKind()
	unwanted.VFIO.Devices = []string{two}
	claims := asideKind()
	claims.Allocation = AllocateByDRA
	for _, c := range []struct {
		name         string
		def          *Definition
		a            Accelerator
		whole, aside Withholder // empty: it is offered
	}{
		{"before", asideKind(), Accelerator{ID: one, Bound: "edu", Health: Health{State: Healthy}}, BySwitch, "absence"},
		{"on the way", asideKind(), away, BySwitch, "absence"},
		{"there", asideKind(), switchedFor(one, AsideClaim(one)), ByPartitions, ""},
		{"no longer", unwanted, switchedFor(one, AsideClaim(one)), ByPartitions, BySwitch},
		{"of a claim", asideKind(), switchedFor(one, "u-1"), BySwitch, "absence"},
		{"not set aside", asideKind(), Accelerator{ID: two, Bound: "edu", Health: Health{State: Healthy}}, "", "absence"},
		{"by claims", claims, Accelerator{ID: one, Bound: "edu", Health: Health{State: Healthy}}, "", "absence"},
	} {
		all := SetAside(c.def, []Accelerator{c.a})
		have := Have{Driver: DriverHave{Serves: true}, Runtime: RuntimeHave{Applied: true}}
		all = Withhold(all, have, func(string) bool { return !c.a.InOtherUse() })
		by := func(u Accelerator) Withholder {
			if u.Withheld == nil {
				return ""
			}
			return u.Withheld.By
		}
		if got := by(unit(all, c.a.ID)); got != c.whole {
			t.Errorf("%s: the device is withheld by %q, want %q", c.name, got, c.whole)
		}
		u := unit(all, part)
		if got := by(u); got != c.aside {
			t.Errorf("%s: what is set aside is withheld by %q, want %q", c.name, got, c.aside)
		}
		if u.ID != "" && (c.def.ReplicasOf(u) != 1 || u.Address() != one || u.Nodes[0].Path != "/dev/vfio/7") {
			t.Errorf("%s: %+v", c.name, u)
		}
		m := Machine{Have: map[string]Have{"k": {Accelerators: all}}}
		for _, a := range Flat(Startable(m, "k")) { // whoever has it keeps it
			if ready := a.Switched == nil || a.Switched.Ready(a); ready != (a.Withheld == nil) {
				t.Errorf("%s: %s may start: %+v", c.name, a.ID, a.Withheld)
			}
		}
	}
	if got := asideKind().OfferedAs(AsideProfile); got != "qemu.org/edu-vfio" {
		t.Error(got)
	}
	all := asideKind()
	all.VFIO.Devices, all.VFIO.Resource = []string{AllDevices}, "qemu.org/pci-edu"
	if !all.SetsAside(two) || all.OfferedAs(AsideProfile) != "qemu.org/pci-edu" {
		t.Error("all of them, under another name")
	}
	if s := (Switched{Claim: AsideClaim(one)}); !s.SetAside() || strings.Contains(s.For(), "claim") ||
		!switchedClaim.MatchString(s.Claim) {
		t.Errorf("%q", s.For())
	}
	if (Switched{Claim: "11c1a4dd-8d2d-4c49-a1d1-2b5d6cd1d8a4"}).SetAside() {
		t.Error("a claim is taken for the configuration")
	}
}
