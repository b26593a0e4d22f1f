package detect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const nicAddress = "0000:02:00.0"

func nics() []accel.PCIDevice {
	return []accel.PCIDevice{
		{Address: "0000:00:01.0", Class: "060400", NUMANode: 0},
		{Address: "0000:00:03.0", Class: "020000", NUMANode: -1, Driver: "virtio-pci"},
		{Address: "0000:01:00.0", Class: "030200", NUMANode: 0, ParentPort: "0000:00:01.0"},
		{Address: nicAddress, Class: "020700", NUMANode: 0, Driver: "mlx5_core", ParentPort: "0000:00:01.0"},
	}
}

// TestNetworkFunction: the kernel's answers are assigned to the right function.
func TestNetworkFunction(t *testing.T) {
	answers := host.NetworkAnswers{
		Interfaces: map[string]accel.NetworkInterface{"ib0": {Name: "ib0", MAC: "00:00", State: "up", MTU: 4092}},
		RDMA: map[string]host.RDMAAnswer{"mlx5_0": {Firmware: "28.40.1000 (MT_0001)", RDMADevice: accel.RDMADevice{
			Name: "mlx5_0", NodeGUID: "9803:9b03:00c0:ffee", Ports: []accel.RDMAPort{
				{Number: 2},
				{Number: 1, State: "active"},
			},
		}}},
		Devlink: map[string]host.DevlinkAnswer{nicAddress: {
			Running:   map[string]string{"fw": "28.40.1000", "fw.psid": "MT_0001", "": "x"},
			Stored:    map[string]string{"fw": "28.41.1000", "fw.psid": "MT_0001"},
			Reporters: []accel.HealthReporter{{Name: "fw", State: "healthy"}},
		}},
	}
	got := networkFunction(nics()[3], nics(), []string{"ib0", "ib1"}, []string{"mlx5_0"}, answers)
	want := accel.NetworkFunction{
		Address: nicAddress, Ports: []string{"0000:00:01.0"}, Driver: "mlx5_core", Firmware: "28.40.1000",
		Versions:   map[string]string{"fw": "28.40.1000", "fw.psid": "MT_0001"},
		Pending:    map[string]string{"fw": "28.41.1000"},
		Interfaces: []accel.NetworkInterface{{Name: "ib0", MAC: "00:00", State: "up", MTU: 4092}, {Name: "ib1"}},
		RDMA: []accel.RDMADevice{{
			Name: "mlx5_0", NodeGUID: "9803:9b03:00c0:ffee", Ports: []accel.RDMAPort{
				{Number: 1, State: "active"},
				{Number: 2},
			},
		}},
		Reporters: []accel.HealthReporter{{Name: "fw", State: "healthy"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	delete(answers.Devlink, nicAddress)
	got = networkFunction(nics()[3], nics(), nil, []string{"mlx5_0"}, answers)
	if got.Firmware != "28.40.1000 (MT_0001)" {
		t.Errorf("firmware without devlink: %q", got.Firmware)
	}
	long := host.NetworkAnswers{Unknown: errors.New("a\nb" + strings.Repeat("c", 1000))}
	bare := networkFunction(nics()[1], nics(), nil, nil, long)
	if bare.NUMANode != -1 || !strings.HasPrefix(bare.Unknown, "a; b") || len(bare.Unknown) > 2*maxText {
		t.Errorf("%+v", bare)
	}
}

// TestNetworkOfFiles: the interfaces and RDMA devices of a function come from files; a copy has nothing more.
func TestNetworkOfFiles(t *testing.T) {
	h := machine(t, map[string]string{
		"sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/speed":                            "-1\n",
		"sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/net/ib0/speed":                        "400000\n",
		"sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
		"sys/devices/virtual/net/lo/speed":                                                      "1\n",
		"sys/class/infiniband_verbs/uverbs3/ibdev":                                              "mlx5_0\n",
		"sys/class/infiniband_verbs/uverbs4/ibdev":                                              "mlx5_0\n",
		"dev/infiniband/uverbs3":                                                                "",
	})
	for link, target := range map[string]string{
		"net/eth0":          "../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0",
		"net/ib0":           "../../devices/pci0000:00/0000:00:01.0/0000:02:00.0/net/ib0",
		"net/lo":            "../../devices/virtual/net/lo",
		"infiniband/mlx5_0": "../../devices/pci0000:00/0000:00:01.0/0000:02:00.0/infiniband/mlx5_0",
		"net/bad\x01":       "../../devices/pci0000:00/0000:00:03.0/net/bad",
	} {
		p := filepath.Join(h.Root(), "sys/class", link)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			t.Fatal(err)
		}
	}
	got := Network(t.Context(), h, nics())
	if len(got) != 2 || got[0].Unknown == "" {
		t.Fatalf("%+v", got)
	}
	unknown := got[0].Unknown
	want := []accel.NetworkFunction{
		{
			Address: "0000:00:03.0", NUMANode: -1, Driver: "virtio-pci", Unknown: unknown,
			Interfaces: []accel.NetworkInterface{{Name: "eth0"}},
		},
		{
			Address: nicAddress, Ports: []string{"0000:00:01.0"}, Driver: "mlx5_core", Unknown: unknown,
			Interfaces: []accel.NetworkInterface{{Name: "ib0", SpeedMbps: 400000}},
			RDMA:       []accel.RDMADevice{{Name: "mlx5_0", Verbs: "/dev/infiniband/uverbs3"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	port := accel.RDMAPort{Number: 1}
	if describePort(h, "mlx5_0", &port); port.Layer != "InfiniBand" || port.GUID != "" {
		t.Errorf("%+v", port)
	}
	if got := Network(t.Context(), h, nics()[2:3]); got != nil {
		t.Errorf("without a network function: %+v", got)
	}
}

// TestSplitGID: only a subnet manager names a subnet.
func TestSplitGID(t *testing.T) {
	for in, want := range map[string][2]string{
		"fec0:0000:0000:0001:9803:9b03:00c0:ffee": {"fec0:0000:0000:0001", "9803:9b03:00c0:ffee"},
		"FEC0:0000:0000:0001:9803:9B03:00C0:FFEE": {"fec0:0000:0000:0001", "9803:9b03:00c0:ffee"},
		"fe80:0000:0000:0000:9803:9b03:00c0:ffee": {"", "9803:9b03:00c0:ffee"},
		"0000:0000:0000:0000:0000:0000:0000:0000": {"", "0000:0000:0000:0000"},
		"":                                   {},
		"fec0:0000:0000:0001:9803:9b03:00c0": {},
		"fec0:0000:0000:0001-9803:9b03:00c0:ffee":  {},
		"fec0:0000:0000:0001:9803:9b03:00c0:fffx":  {},
		"fec0:0000:0000:0001:9803:9b03:00c0:ffee:": {},
	} {
		if subnet, guid := splitGID(in); [2]string{subnet, guid} != want {
			t.Errorf("%q: %q and %q, want %q", in, subnet, guid, want)
		}
	}
}

func FuzzSplitGID(f *testing.F) {
	f.Add("fec0:0000:0000:0001:9803:9b03:00c0:ffee")
	f.Add("fe80:0000:0000:0000:9803:9b03:00c0:ffee")
	f.Fuzz(func(t *testing.T, gid string) {
		subnet, guid := splitGID(gid)
		if len(subnet) != 0 && len(subnet) != 19 || len(guid) != 0 && len(guid) != 19 {
			t.Errorf("%q: %q and %q", gid, subnet, guid)
		}
		for _, c := range subnet + guid {
			if !strings.ContainsRune("0123456789abcdef:", c) {
				t.Errorf("%q: %q and %q", gid, subnet, guid)
			}
		}
	})
}

// TestManyNetworkFunctions: what is reported is bounded.
func TestManyNetworkFunctions(t *testing.T) {
	var pci []accel.PCIDevice
	for range 2 * maxFunctions {
		pci = append(pci, accel.PCIDevice{Address: nicAddress, Class: "020000"})
	}
	if got := Network(t.Context(), machine(t, nil), pci); len(got) != maxFunctions {
		t.Errorf("%d functions, want %d", len(got), maxFunctions)
	}
	many := map[string]string{}
	for i := range 100 {
		many[strings.Repeat("v", i+1)] = strings.Repeat("x", 1000)
	}
	for _, v := range versions(many, nil) {
		if len(v) > maxText {
			t.Fatalf("%d bytes", len(v))
		}
	}
	if got := versions(many, nil); len(got) != maxEach {
		t.Errorf("%d versions, want %d", len(got), maxEach)
	}
}
