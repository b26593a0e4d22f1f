package agent

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

// TestPartsGoBack: a device is made whole when no record of a claim needs its parts, and not before; what keeps it
// divided is shown with the device.
func TestPartsGoBack(t *testing.T) {
	const id = "0000:01:00.0"
	m := hosttest.New(t)
	m.AddPCI(accel.PCIDevice{Address: id, Vendor: "1234", Device: "11e8"})
	m.Modprobe(hosttest.Driver{Module: "edu"})
	m.Bind(id, "edu")
	m.SetAttribute(id, "partitions", "2")
	a := idle(t, m)
	record := filepath.Join(a.Host.Root(), a.Config.StateDir, "dra/qemu-edu/u-1.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, record, `{"version":1,"namespace":"team","name":"c","uid":"u-1","devices":[
{"request":"r","pool":"n","device":"0000-01-00-0-half-p0","parent":"0000-01-00-0","profile":"half"}]}`)
	journal := accel.Divided{
		Kind: "qemu-edu", Profile: "half", File: "partitions", Value: "2", Before: "1", Claim: "u-1", Name: "team/c",
	}
	if err := a.Host.Devices().Divide(id, journal); err != nil {
		t.Fatal(err)
	}
	is := func(when, value string, divided bool) {
		t.Helper()
		j, err := a.Host.Devices().DividedOf(id)
		got, unread := a.Host.ReadAttribute("/sys/bus/pci/devices/" + id + "/partitions")
		if got != value || (j != nil) != divided || err != nil || unread != nil {
			t.Errorf("%s: %q, %+v, %v, %v", when, got, j, err, unread)
		}
	}
	if a.parts.pass(t.Context()) {
		t.Error("something is left to do")
	}
	is("with a claim", "2", true)
	save(t, record, "{")
	a.parts.pass(t.Context())
	is("with a record that cannot be read", "2", true)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	def := &accel.Definition{Kind: "qemu-edu", Partitions: &accel.Partitions{Make: &accel.Making{File: "partitions", Whole: "1"}}}
	shown := a.parts.enrich(def, []accel.Accelerator{{ID: id}, {ID: "0000:02:00.0"}})
	if shown[0].Divided == nil || shown[0].Withheld != nil || shown[1].Divided != nil {
		t.Errorf("%+v", shown)
	}
	a.parts.note(map[string]*accel.Problem{id: accel.Problemf(accel.NotUndivided, "in use by train")})
	shown = a.parts.enrich(def, []accel.Accelerator{{ID: id}})
	if w := shown[0].Withheld; w == nil || w.Reason != accel.NotUndivided || !strings.Contains(w.Message, "train") {
		t.Errorf("%+v", shown)
	}
	if got := a.parts.enrich(&accel.Definition{}, []accel.Accelerator{{ID: id}}); got[0].Divided != nil {
		t.Error("a kind of which no parts are made")
	}
	if a.parts.pass(t.Context()) {
		t.Error("it cannot be made whole:", a.parts.problems)
	}
	is("with no claim", "1", false)
}

// TestLostParts: a device whose driver has forgotten the parts that claims need is divided again.
func TestLostParts(t *testing.T) {
	j := accel.Divided{Kind: "qemu-edu", Profile: "half", File: "partitions", Value: "2", Before: "1"}
	def := &accel.Definition{Kind: "qemu-edu", Partitions: &accel.Partitions{Make: &accel.Making{File: "partitions", Whole: "1"}}}
	x := accel.Accelerator{ID: "d", Divided: &j, Health: accel.Health{State: accel.Healthy}}
	in := x
	in.Partitions = []accel.Accelerator{{ID: "d-half-p0", Parent: "d", Profile: "half", Health: x.Health}}
	sick := x
	sick.Health.State = accel.Unhealthy
	for name, c := range map[string]struct {
		def  *accel.Definition
		x    accel.Accelerator
		want bool
	}{
		"lost": {def, x, true}, "divided": {def, in, false}, "sick": {def, sick, false}, "no kind": {nil, x, false},
		"by a program": {&accel.Definition{Kind: "qemu-edu"}, x, false},
	} {
		m := accel.Machine{Have: map[string]accel.Have{"qemu-edu": {Accelerators: []accel.Accelerator{c.x}}}}
		if got := lost(m, c.def, "d", j); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPartsText(t *testing.T) {
	for text, parts := range map[string]map[string]int{
		"": {}, "half=2": {"half": 2}, "1g.5gb=4,3g.20gb=1": {"1g.5gb": 4, "3g.20gb": 1},
	} {
		if got := partsText(parts); got != text {
			t.Errorf("%q, want %q", got, text)
		}
		if got, err := partsOf(text); err != nil || !maps.Equal(got, parts) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"half", "half=", "=2", "half=0", "half=-1", "half=x", ","} {
		if got, err := partsOf(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	if p := newParts(nil); p.divider(nil, "d") != nil || p.divider(&accel.Definition{Partitions: &accel.Partitions{
		Make: &accel.Making{File: "x"},
	}}, "d") != nil {
		t.Error("a program divides what an attribute divides")
	}
}
