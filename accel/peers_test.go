package accel

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// board is a host with two switches. Below the first are two devices and a network function, below the second a device.
// A fourth device has a root port of its own.
//
//	00:01.0 ── 01:00.0 ┬ 02:00.0 ── 03:00.0 device
//	                   ├ 02:01.0 ── 04:00.0 device
//	                   └ 02:02.0 ── 05:00.0 network
//	00:02.0 ── 06:00.0 ── 07:00.0 ── 08:00.0 device
//	00:03.0 ── 09:00.0 device
func board() Peers {
	p := Peers{Definition: &Definition{Kind: "npu"}, Functions: map[string]PeerFunction{}}
	add := func(address, parent string, isDevice bool) {
		d := PCIDevice{
			Address: "0000:" + address, IOMMUGroup: -1,
			Link: Link{SpeedGTs: 16, MaxSpeedGTs: 16, Width: 16, MaxWidth: 16},
		}
		if parent != "" {
			d.ParentPort = "0000:" + parent
		}
		p.PCI = append(p.PCI, d)
		p.Functions[d.Address] = PeerFunction{ACS: Known(ACS(0)), DMA: Known("")}
		if isDevice {
			ports, _ := PortsAbove(d.Address, p.PCI)
			p.Devices = append(p.Devices, Accelerator{ID: d.Address, Ports: ports})
		}
	}
	add("00:01.0", "", false)
	add("01:00.0", "00:01.0", false)
	add("02:00.0", "01:00.0", false)
	add("03:00.0", "02:00.0", true)
	add("02:01.0", "01:00.0", false)
	add("04:00.0", "02:01.0", true)
	add("02:02.0", "01:00.0", false)
	add("05:00.0", "02:02.0", false)
	add("00:02.0", "", false)
	add("06:00.0", "00:02.0", false)
	add("07:00.0", "06:00.0", false)
	add("08:00.0", "07:00.0", true)
	add("00:03.0", "", false)
	add("09:00.0", "00:03.0", true)
	ports, _ := PortsAbove("0000:05:00.0", p.PCI)
	p.Network = []NetworkFunction{{Address: "0000:05:00.0", Ports: ports}}
	return p
}

func (p Peers) redirect(ports ...string) Peers {
	for _, port := range ports {
		p.Functions["0000:"+port] = PeerFunction{ACS: Known(ACS(0x1d)), DMA: Known("")}
	}
	return p
}

func (p Peers) only(devices ...string) Peers {
	p.Devices = slices.DeleteFunc(p.Devices, func(a Accelerator) bool {
		return !slices.Contains(devices, strings.TrimPrefix(a.ID, "0000:"))
	})
	return p
}

func (p Peers) linked(address string, l Link) Peers {
	for i := range p.PCI {
		if p.PCI[i].Address == "0000:"+address {
			p.PCI[i].Link = l
		}
	}
	return p
}

// TestPeersRedirected: the ports that redirect are named if, and only if, they are on the way between two peers.
func TestPeersRedirected(t *testing.T) {
	all := []string{
		"00:01.0", "01:00.0", "02:00.0", "02:01.0", "02:02.0", "00:02.0", "06:00.0", "07:00.0", "00:03.0",
	}
	straight, slow := "instead of straight on", "to the IOMMU, one by one"
	for what, c := range map[string]struct {
		p     Peers
		names string
		says  string
	}{
		"nothing redirects":         {board(), "", ""},
		"a switch":                  {board().redirect("02:00.0"), "02:00.0", straight},
		"the network function's":    {board().only("03:00.0").redirect("02:02.0"), "02:02.0", straight},
		"one device has no peer":    {board().only("08:00.0").redirect(all...), "", ""},
		"another root port's":       {board().only("08:00.0", "09:00.0").redirect(all...), "00:02.0 00:03.0 06:00.0 07:00.0", slow},
		"above both":                {board().only("03:00.0", "04:00.0").redirect("00:01.0", "01:00.0"), "", ""},
		"all of them":               {board().redirect(all...), "00:01.0 00:02.0 00:03.0 01:00.0 02:00.0 02:01.0 02:02.0 06:00.0 07:00.0", straight},
		"no other is at the switch": {board().only("03:00.0", "09:00.0").redirect("01:00.0"), "01:00.0", slow},
	} {
		got := c.p.Findings()
		if c.names == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", what, got)
			}
			continue
		}
		if len(got) != 1 || !strings.Contains(got[0].Message, c.says) || got[0].Reason != "" {
			t.Errorf("%s: %+v", what, got)
			continue
		}
		_, names, _ := strings.Cut(got[0].Remedy, "pci=disable_acs_redir=")
		names, _, _ = strings.Cut(names, " ")
		if want := "0000:" + strings.ReplaceAll(c.names, " ", ";0000:"); names != want {
			t.Errorf("%s: %s, want %s", what, names, want)
		}
		if want := "port 0000:" + c.names[:7] + ": ACS control register 0x001d (SrcValid ReqRedir CmpltRedir UpstreamFwd)"; got[0].Evidence[0] != want {
			t.Errorf("%s: %q, want %q", what, got[0].Evidence[0], want)
		}
	}
	vfio := board().redirect(all...)
	vfio.Definition = &Definition{Kind: "npu", Nodes: []NodeSource{{Glob: "/dev/vfio/" + GroupTemplate}}}
	if got := vfio.Findings(); got != nil {
		t.Errorf("devices that are kept apart on purpose: %+v", got)
	}
}

// TestPeersLinks: a link that is narrower or slower than both ends can is named once, on every host.
func TestPeersLinks(t *testing.T) {
	narrow := Link{SpeedGTs: 16, MaxSpeedGTs: 16, Width: 8, MaxWidth: 16}
	idle := Link{SpeedGTs: 2.5, MaxSpeedGTs: 16, Width: 16, MaxWidth: 16}
	small := Link{SpeedGTs: 16, MaxSpeedGTs: 16, Width: 8, MaxWidth: 8}
	fixed := func(p Peers) Peers { p.Definition = &Definition{Kind: "npu", FixedLinkSpeed: true}; return p }
	for what, c := range map[string]struct {
		p      Peers
		about  string
		reason Reason
		says   string
	}{
		"well":                    {board(), "", "", ""},
		"one device alone":        {board().only("09:00.0").linked("09:00.0", narrow), "link 0000:09:00.0", LinkDegraded, "has 8 of 16 lanes"},
		"a switch":                {board().linked("01:00.0", narrow), "link 0000:01:00.0", LinkDegraded, "below port 0000:00:01.0 has 8 of 16 lanes"},
		"a network function":      {board().linked("05:00.0", narrow), "link 0000:05:00.0", LinkDegraded, "has 8 of 16 lanes"},
		"a port inside a switch":  {board().linked("02:00.0", small).linked("03:00.0", small), "", "", ""},
		"idle":                    {board().linked("03:00.0", idle), "npu link", "", "links run slower"},
		"slow and never idle":     {fixed(board().linked("03:00.0", idle)), "link 0000:03:00.0", LinkDegraded, "runs at 2.5 of 16 GT/s"},
		"a slot that is narrower": {board().linked("00:03.0", small).linked("09:00.0", narrow), "npu link", "", "fewer lanes"},
		"down":                    {board().linked("03:00.0", Link{MaxSpeedGTs: 16, MaxWidth: 16}), "", "", ""},
	} {
		got := c.p.Findings()
		switch {
		case c.about == "" && len(got) > 0, c.about != "" && len(got) != 1:
			t.Errorf("%s: %+v", what, got)
		case c.about != "" && (got[0].About != c.about || got[0].Reason != c.reason ||
			!strings.Contains(got[0].Message, c.says) || got[0].Remedy == "" || len(got[0].Evidence) != 1):
			t.Errorf("%s: %+v", what, got[0])
		}
	}
}

// TestPeersNarrow: what the IOMMU does, windows that are too small, and what could not be read.
func TestPeersNarrow(t *testing.T) {
	p := board()
	p.Devices[0].Capacity = map[string]int64{"memory": 24 << 30}
	p.Devices[1].Capacity = map[string]int64{"memory": 24 << 30}
	p.Functions["0000:03:00.0"] = PeerFunction{
		DMA: Known("DMA-FQ"), BARs: []BAR{{Index: 0, Size: 256 << 20, Largest: 32 << 30}, {Index: 2, Size: 2 << 20}},
	}
	p.Functions["0000:04:00.0"] = PeerFunction{DMA: Known("identity"), BARs: []BAR{{Index: 0, Size: 16 << 30}}}
	p.Functions["0000:05:00.0"] = PeerFunction{Unread: "only 64 bytes can be read"}
	p.Functions["0000:02:00.0"] = PeerFunction{Unread: "permission denied"}
	p.Functions["0000:09:00.0"] = PeerFunction{DMA: Known(""), Unread: "only 64 bytes can be read"}
	p = p.linked("09:00.0", Link{})
	var got []string
	for _, f := range p.Findings() {
		got = append(got, f.Message)
		got = append(got, f.Evidence...)
	}
	want := []string{
		"the IOMMU translates what devices send, so that requests between peers go through the root complex if " +
			"the driver uses translated addresses",
		`0000:03:00.0: IOMMU group -1 has type "DMA-FQ"`,
		"peers reach only a part of the devices' memory at a time",
		"0000:03:00.0: BAR 0 has 256 MiB, and the function supports 32 GiB",
		"0000:04:00.0: the largest, BAR 0, has 16 GiB, and the device 24 GiB of memory",
		"it is unknown whether anything spoils traffic between peers",
		"0000:02:00.0: permission denied",
		"0000:05:00.0: the type of IOMMU group -1 cannot be read",
		"0000:05:00.0: only 64 bytes can be read",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNear: the nearest network function comes first, and one on another root port is not near.
func TestNear(t *testing.T) {
	a := Accelerator{Ports: []string{"r", "s", "d1"}}
	far := NetworkFunction{Address: "far", Ports: []string{"r", "t", "d2"}}
	nearer := NetworkFunction{Address: "nearer", Ports: []string{"r", "s", "d3"}}
	other := NetworkFunction{Address: "other", Ports: []string{"q"}}
	bare := NetworkFunction{Address: "bare"}
	got := Near(a, []NetworkFunction{far, other, bare, nearer})
	if diff := cmp.Diff([]NetworkFunction{nearer, far}, got); diff != "" {
		t.Error(diff)
	}
}
