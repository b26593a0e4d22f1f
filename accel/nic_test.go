package accel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNearestRDMA: below one port is nearer than below one root complex, and below another one is not near.
func TestNearestRDMA(t *testing.T) {
	p := board()
	rdma := func(address string) NetworkFunction {
		ports, _ := PortsAbove("0000:"+address, p.PCI)
		return NetworkFunction{Address: "0000:" + address, Ports: ports, RDMA: []RDMADevice{{Name: "mlx5_0"}}}
	}
	p.PCI = append(p.PCI, PCIDevice{Address: "0000:0a:00.0", ParentPort: "0000:00:03.0"},
		PCIDevice{Address: "0001:00:00.0"}, PCIDevice{Address: "0000:00:1f.0"},
		PCIDevice{Address: "0000:0b:00.0", ParentPort: "0000:ff:00.0"})
	device := func(address string) Accelerator { return Accelerator{ID: "0000:" + address} }
	plain := NetworkFunction{Address: "0000:05:00.0"}
	for what, c := range map[string]struct {
		a       string
		network []NetworkFunction
		address string
		way     string
	}{
		"below one switch":        {"03:00.0", []NetworkFunction{rdma("00:1f.0"), rdma("05:00.0")}, "0000:05:00.0", NICBelowPort},
		"below one root port":     {"09:00.0", []NetworkFunction{rdma("05:00.0"), rdma("0a:00.0")}, "0000:0a:00.0", NICBelowPort},
		"below one root complex":  {"08:00.0", []NetworkFunction{rdma("05:00.0"), rdma("00:1f.0")}, "0000:00:1f.0", NICBelowRoot},
		"below another one":       {"08:00.0", []NetworkFunction{{Address: "0001:00:00.0", RDMA: rdma("05:00.0").RDMA}}, "", ""},
		"without RDMA":            {"03:00.0", []NetworkFunction{plain}, "", ""},
		"a place that is unknown": {"03:00.0", []NetworkFunction{rdma("0b:00.0")}, "", ""},
		"none":                    {"03:00.0", nil, "", ""},
	} {
		f, way := NearestRDMA(device(c.a), p.PCI, c.network)
		if f.Address != c.address || way != c.way {
			t.Errorf("%s: %q by %q, want %q by %q", what, f.Address, way, c.address, c.way)
		}
	}
	if got := PCIRoot("0000:0b:00.0", p.PCI); got != "" {
		t.Errorf("below an unknown bridge: %q", got)
	}
}

// TestSubnets: the subnets are known only if each port says its own.
func TestSubnets(t *testing.T) {
	port := func(subnet, state string) NetworkFunction {
		return NetworkFunction{RDMA: []RDMADevice{{Ports: []RDMAPort{{Subnet: subnet, State: state}}}}}
	}
	unknown := port("b", "active")
	unknown.Unknown = "no answer"
	for what, c := range map[string]struct {
		network []NetworkFunction
		subnets []string
		all     bool
	}{
		"two":                {[]NetworkFunction{port("b", "active"), port("a", "active"), port("b", "active")}, []string{"a", "b"}, true},
		"one is not named":   {[]NetworkFunction{port("a", "active"), port("", "active")}, []string{"a"}, false},
		"one is down":        {[]NetworkFunction{port("a", "active"), port("b", "down")}, []string{"a"}, false},
		"one has no answer":  {[]NetworkFunction{port("a", "active"), unknown}, []string{"a", "b"}, false},
		"none":               {nil, nil, false},
		"nobody has a place": {[]NetworkFunction{{RDMA: []RDMADevice{{}}}}, nil, false},
	} {
		subnets, all := Subnets(c.network)
		if diff := cmp.Diff(c.subnets, subnets); diff != "" || all != c.all {
			t.Errorf("%s: %v, %s", what, all, diff)
		}
	}
}

// TestClosest: the node itself, then those of its package at the smallest distance.
func TestClosest(t *testing.T) {
	node := func(id, pkg int, distances ...int) NUMANode {
		return NUMANode{ID: id, Package: Known(pkg), Distances: distances}
	}
	quarters := []NUMANode{
		node(0, 0, 10, 12, 12, 32), node(1, 0, 12, 10, 12, 32), node(2, 0, 12, 12, 10, 32), node(5, 1, 32, 32, 32, 10),
	}
	two := []NUMANode{node(0, 0, 10, 21), node(1, 1, 21, 10)}
	unplaced := []NUMANode{node(0, 0, 10, 21), {ID: 1, Distances: []int{21, 10}}}
	for what, c := range map[string]struct {
		id    int
		nodes []NUMANode
		want  []int
	}{
		"quarters of a package":      {1, quarters, []int{1, 0, 2}},
		"another package is nearest": {5, quarters, []int{5}},
		"two packages":               {0, two, []int{0}},
		"a package is not known":     {0, unplaced, []int{0, 1}},
		"no distances":               {0, []NUMANode{{ID: 0}, {ID: 1}}, []int{0}},
		"not listed":                 {3, two, []int{3}},
		"alone":                      {0, []NUMANode{node(0, 0, 10)}, []int{0}},
	} {
		if diff := cmp.Diff(c.want, Closest(c.id, c.nodes)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	var many []NUMANode
	for i := range 64 {
		n := NUMANode{ID: i}
		for range 64 {
			n.Distances = append(n.Distances, 11)
		}
		many = append(many, n)
	}
	if got := Closest(0, many); len(got) != maxClosest {
		t.Errorf("%d nodes", len(got))
	}
}

// TestBesideRDMA: a device comes with the nodes of the RDMA device that is near enough, unless it is in another use.
func TestBesideRDMA(t *testing.T) {
	p := board()
	p.PCI = append(p.PCI, PCIDevice{Address: "0000:00:1f.0"})
	rdma := func(address, node string) NetworkFunction {
		ports, _ := PortsAbove("0000:"+address, p.PCI)
		return NetworkFunction{Address: "0000:" + address, Ports: ports, RDMA: []RDMADevice{{Name: "m", Verbs: node}}}
	}
	near, far := rdma("05:00.0", "/dev/infiniband/uverbs0"), rdma("00:1f.0", "/dev/infiniband/uverbs1")
	nodeless := rdma("05:00.0", "")
	for what, c := range map[string]struct {
		asks    string
		network []NetworkFunction
		other   *Switched
		want    []string
	}{
		"not asked for":           {"", []NetworkFunction{near}, nil, nil},
		"near":                    {NICBelowPort, []NetworkFunction{far, near}, nil, []string{"/dev/infiniband/uverbs0"}},
		"too far":                 {NICBelowPort, []NetworkFunction{far}, nil, nil},
		"near enough":             {NICBelowRoot, []NetworkFunction{far}, nil, []string{"/dev/infiniband/uverbs1"}},
		"in another use":          {NICBelowRoot, []NetworkFunction{near}, &Switched{}, nil},
		"no driver for programs":  {NICBelowRoot, []NetworkFunction{nodeless}, nil, nil},
		"nothing is known of any": {NICBelowRoot, nil, nil, nil},
	} {
		def := &Definition{Container: Edits{RDMA: c.asks}}
		got := BesideRDMA(def, []Accelerator{{
			ID: "0000:03:00.0", Health: Health{State: Healthy}, Switched: c.other, Beside: []string{"of the last look"},
		}}, Facts{PCI: p.PCI, Network: c.network})
		if diff := cmp.Diff(c.want, got[0].Beside); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
}
