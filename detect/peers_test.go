package detect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

// TestPeers: what the files of a function say, and nothing that they do not.
func TestPeers(t *testing.T) {
	config := make([]byte, 4096)
	config[0x34], config[0x40] = 0x40, 0x10
	copy(config[0x100:], []byte{0x0d, 0, 1, 0x12, 0x5f, 0, 0x1d, 0}) // ACS, then at 0x120
	copy(config[0x120:], []byte{0x15, 0, 1, 0, 0, 0x10, 0x08, 0, 0x20, 0x08, 0, 0})
	const resource = "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n" +
		"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" +
		"0x0000001000000000 0x000000100fffffff 0x000000000014220c\n" +
		"0x0000000000003000 0x000000000000307f 0x0000000000040101\n" +
		"0x0000000000000000 0xffffffffffffffff 0x0000000000040200\n" +
		"not a region\n0x00000000f0000000 0x00000000f0ffffff 0x0000000000046200\n"
	for what, c := range map[string]struct {
		config, resource, group, status string
		want                            accel.PeerFunction
	}{
		"everything": {string(config), resource, "DMA-FQ", "", accel.PeerFunction{
			ACS: accel.Known(accel.ACS(0x1d)), DMA: accel.Known("DMA-FQ"), BARs: []accel.BAR{
				{Index: 0, Size: 16 << 20, Largest: 32 << 30}, {Index: 2, Size: 256 << 20},
			},
		}},
		"without rights": {string(config[:64]), resource, "", "", accel.PeerFunction{
			BARs: []accel.BAR{{Index: 0, Size: 16 << 20}, {Index: 2, Size: 256 << 20}}, Unread: "only 64 bytes can be read",
		}},
		"no memory-mapped configuration": {string(config[:256]), "", "identity", "", accel.PeerFunction{
			DMA: accel.Known("identity"), Unread: "the extended configuration space cannot be read",
		}},
		"suspended": {string(config), "", "identity", "suspended", accel.PeerFunction{DMA: accel.Known("identity"), Unread: "it is suspended"}},
		"cut":       {string(config[:100]), "", "\x01", "", accel.PeerFunction{Unread: "its capabilities cannot be read"}},
		"not there": {"", "", "identity", "", accel.PeerFunction{DMA: accel.Known("identity"), Unread: "no such file or directory"}},
		"long group": {string(make([]byte, 256)), "", strings.Repeat("x", 50), "", accel.PeerFunction{
			ACS: accel.Known(accel.ACS(0)), DMA: accel.Known(strings.Repeat("x", 40) + "…"),
		}},
	} {
		m := hosttest.New(t)
		const address = "0000:01:00.0"
		m.AddPCI(accel.PCIDevice{Address: address, Vendor: "1234", Device: "11e8", Class: "00ff00"})
		dir := "/sys/bus/pci/devices/" + address
		for file, text := range map[string]string{
			dir + "/config": c.config, dir + "/resource": c.resource, dir + "/power/runtime_status": c.status,
			"/sys/kernel/iommu_groups/7/type": c.group,
		} {
			if text != "" {
				m.File(file, text)
			}
		}
		got := Peers(m.Host, []accel.PCIDevice{{Address: address, IOMMUGroup: 7}}, []string{address, "0000:02:00.0"})
		if diff := cmp.Diff(map[string]accel.PeerFunction{address: c.want}, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	m := hosttest.New(t)
	got := Peers(m.Host, []accel.PCIDevice{{Address: "0000:01:00.0", IOMMUGroup: -1}}, []string{"0000:01:00.0"})
	if f := got["0000:01:00.0"]; !f.DMA.Is("") {
		t.Errorf("without an IOMMU: %+v", f)
	}
}

func FuzzWindows(f *testing.F) {
	f.Add("0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n0x0 0x0 0x0\n")
	f.Add("0x0 0xffffffffffffffff 0x200")
	f.Fuzz(func(t *testing.T, text string) {
		m := hosttest.New(t)
		m.File("/sys/x/resource", text)
		bars := windows(m.Host, "/sys/x")
		if len(bars) > 6 {
			t.Errorf("%d windows", len(bars))
		}
		for _, b := range bars {
			if b.Size < 2 || b.Index < 0 || b.Index > 5 {
				t.Errorf("%+v", b)
			}
		}
	})
}
