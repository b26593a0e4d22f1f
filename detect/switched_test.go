package detect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestSwitched: a device that is given out with VFIO stays a device of its kind, with VFIO's node and the names that
// its own driver told; it is not ill because attributes of that driver are gone, and its metrics are not collected.
func TestSwitched(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name, to string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	const id = "0000:01:00.0"
	dir := "/sys/bus/pci/devices/" + id
	for file, text := range map[string]string{"vendor": "0x1234\n", "device": "0x11e8\n", "class": "0x00ff00\n"} {
		write(dir+"/"+file, text)
	}
	link(dir+"/driver", "../../drivers/vfio-pci")
	link(dir+"/iommu_group", "../../../kernel/iommu_groups/7")
	write("/sys/class/vfio/7/dev", "241:0\n")
	write("/sys/class/vfio/7/uevent", "DEVNAME=vfio/7\n")
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	def := &accel.Definition{
		Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234", Device: "11e8"}}, Except: []accel.Match{{Driver: "vfio-pci"}},
		Driver: accel.DriverDefinition{Binds: "edu"}, Serial: "serial", Nodes: []accel.NodeSource{{Glob: "accelerator_edu/edu*"}},
		Health: []accel.HealthSource{{File: "state"}},
	}
	pci, _ := PCI(h)
	if got := Accelerators(h, def, pci); len(got) > 0 {
		t.Error("somebody else's device with VFIO is taken for one of the kind:", got)
	}
	journal := accel.Switched{
		Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: "u-1", Serial: "E0001",
	}
	if err := h.Devices().Switch(id, journal); err != nil {
		t.Fatal(err)
	}
	for _, node := range []bool{false, true} {
		if node {
			write("/dev/vfio/7", "")
		}
		pci, problems := PCI(h)
		got := Accelerators(h, def, pci)
		if len(got) != 1 || got[0].Serial != "E0001" || !got[0].WithheldBy(accel.BySwitch) || len(problems) > 0 ||
			got[0].Health.State == accel.Unhealthy || got[0].Switched.Ready(got[0]) != node {
			t.Errorf("node %t: %+v %q", node, got, problems)
		}
		metrics, err := Collect(h, &accel.Definition{Metrics: []accel.MetricSource{{Name: "x", File: "temperature"}}}, got[0])
		if err != nil || len(metrics) > 0 {
			t.Error(metrics, err)
		}
	}
	write("/run/acceld/switched/"+id+".json", "{")
	if _, problems := PCI(h); len(problems) != 1 {
		t.Errorf("a journal that cannot be read: %q", problems)
	}
}
