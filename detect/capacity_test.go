package detect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

// TestCapacity: amounts come from files, in whole units; those that cannot be read or are nonsense are left out.
func TestCapacity(t *testing.T) {
	m := hosttest.New(t)
	pci := []accel.PCIDevice{{Address: "0000:01:00.0", Vendor: "1234", Device: "11e8", Class: "00ff00"}}
	m.AddPCI(pci...)
	m.SetAttribute("0000:01:00.0", "mem_mib", "8192\n")
	m.SetAttribute("0000:01:00.0", "odd", "much")
	m.SetAttribute("0000:01:00.0", "less", "-1")
	def := &accel.Definition{Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234"}}, Capacity: []accel.Capacity{
		{Name: "memory", File: "mem_mib", Scale: 1 << 20},
		{Name: "odd", File: "odd"},
		{Name: "less", File: "less"},
		{Name: "none", File: "none"},
		{Name: "engines", Value: "2"},
	}}
	accs := Accelerators(m.Host, def, pci)
	if diff := cmp.Diff(map[string]int64{"memory": 8 << 30}, accs[0].Capacity); len(accs) != 1 || diff != "" {
		t.Error(diff)
	}
}
