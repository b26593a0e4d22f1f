package detect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

// TestTopology: a device has the ports above it, as far as they are known, and its fabric if there is one.
func TestTopology(t *testing.T) {
	m := hosttest.New(t)
	pci := []accel.PCIDevice{
		{Address: "0000:00:01.0", Vendor: "8086", Device: "0001", Class: "060400"},
		{Address: "0000:01:00.0", Vendor: "8086", Device: "0002", Class: "060400", ParentPort: "0000:00:01.0"},
		{Address: "0000:02:00.0", Vendor: "1234", Device: "11e8", Class: "00ff00", ParentPort: "0000:01:00.0"},
		{Address: "0000:03:00.0", Vendor: "1234", Device: "11e8", Class: "00ff00"},
	}
	m.AddPCI(pci...)
	m.SetAttribute("0000:02:00.0", "ring_id", "7\n")
	m.SetAttribute("0000:03:00.0", "ring_id", "\x01\n")
	def := &accel.Definition{Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234"}}, Fabric: "ring_id"}
	type where struct {
		Ports  []string
		Fabric string
	}
	got := map[string]where{}
	for _, a := range Accelerators(m.Host, def, pci) {
		got[a.ID] = where{a.Ports, a.Fabric}
	}
	want := map[string]where{"0000:02:00.0": {[]string{"0000:00:01.0", "0000:01:00.0"}, "7"}, "0000:03:00.0": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
