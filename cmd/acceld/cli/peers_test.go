package cli

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host/hosttest"
)

// TestDoctorPeers: from the files of a host to the finding that names the port, and nothing where the port is plain.
func TestDoctorPeers(t *testing.T) {
	config := func(control byte) string {
		c := make([]byte, 4096)
		c[0x34], c[0x40] = 0x40, 0x10 // one of PCI Express
		copy(c[0x100:], []byte{0x0d, 0, 1, 0, 0x5f, 0, control, 0})
		return string(c)
	}
	for what, c := range map[string]struct {
		control byte
		want    string
	}{
		"redirects": {0x1d, "qemu-edu peers: pci=disable_acs_redir=0000:00:01.0;0000:00:02.0 "},
		"plain":     {0x01, ""},
	} {
		m := hosttest.New(t)
		edu := func(address, port string) accel.PCIDevice {
			return accel.PCIDevice{Address: address, Vendor: "1234", Device: "11e8", Class: "00ff00", ParentPort: port}
		}
		port := accel.PCIDevice{Vendor: "1b36", Device: "000c", Class: "060400"}
		for _, at := range []string{"0000:00:01.0", "0000:00:02.0"} {
			port.Address = at
			m.AddPCI(port)
			m.File("/sys/bus/pci/devices/"+at+"/config", config(c.control))
		}
		m.AddPCI(edu("0000:01:00.0", "0000:00:01.0"), edu("0000:02:00.0", "0000:00:02.0"))
		def := &accel.Definition{Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234"}}}
		facts := detect.Detect(m.Host, detect.Options{})
		p := &parts{Setup: &agent.Setup{Host: m.Host}}
		var got []string
		for _, f := range p.diagnosePeers(def, detect.Accelerators(m.Host, def, facts.PCI), facts) {
			if f.bad() || f.Actor != accel.ActorOperator {
				t.Errorf("%s: %+v", what, f)
			}
			_, parameter, _ := strings.Cut(f.Remedy, "boot with ")
			got = append(got, f.About+": "+parameter)
		}
		if all := strings.Join(got, "; "); (all == "") != (c.want == "") || !strings.HasPrefix(all, c.want) {
			t.Errorf("%s: %q, want %q", what, all, c.want)
		}
	}
}

// TestDetectedNear: the nearest RDMA device of each accelerator is shown.
func TestDetectedNear(t *testing.T) {
	d := detected{
		Facts: accel.Facts{
			PCI: []accel.PCIDevice{
				{Address: "0000:00:01.0"},
				{Address: "0000:01:00.0", ParentPort: "0000:00:01.0"},
				{Address: "0000:02:00.0", ParentPort: "0000:00:01.0"},
				{Address: "0000:03:00.0"},
			},
			Network: []accel.NetworkFunction{{
				Address: "0000:02:00.0", Ports: []string{"0000:00:01.0"}, RDMA: []accel.RDMADevice{{Name: "mlx5_0"}},
			}},
		},
		Accelerators: map[string][]accel.Accelerator{"qemu-edu": {{ID: "0000:01:00.0"}}},
	}
	s := &tableWriter{width: 120}
	printDetected(s, d)
	const want = "0000:01:00.0  0000:02:00.0  mlx5_0  below one PCI port"
	if !strings.Contains(s.String(), want) {
		t.Errorf("no %q in\n%s", want, s.String())
	}
	d.Facts.Network = nil
	s = &tableWriter{width: 120}
	if printDetected(s, d); strings.Contains(s.String(), "NEAREST") {
		t.Errorf("without RDMA:\n%s", s.String())
	}
}
