package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// hostFiles creates a machine of two NUMA nodes with two cores of two threads each.
func hostFiles(t *testing.T, more map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(text), 0o644))
	}
	files := map[string]string{
		"sys/class/dmi/id/sys_vendor":                "Supermicro\n",
		"sys/class/dmi/id/product_name":              "SYS-821GE-TNHR\n",
		"sys/class/dmi/id/product_version":           "0123456789\n",
		"sys/class/dmi/id/product_serial":            "S1\n",
		"sys/class/dmi/id/board_vendor":              "Supermicro\n",
		"sys/class/dmi/id/board_name":                "X13DEG-OAD\n",
		"sys/class/dmi/id/board_version":             "To be filled by O.E.M.\n",
		"sys/class/dmi/id/bios_vendor":               "American Megatrends\n",
		"sys/class/dmi/id/bios_version":              "2.1\n",
		"sys/class/dmi/id/bios_date":                 "12/06/2023\n",
		"sys/class/dmi/id/chassis_type":              "23\n",
		"proc/meminfo":                               "MemTotal:        4000000 kB\nHugetlb: 0 kB\nHugepagesize: 2048 kB\n",
		"sys/devices/system/memory/block_size_bytes": "8000000\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/x": "",
		"var/log/syslog":                             "kernel: Memory: 1K/999999999K available\n",
	}
	cpuinfo := ""
	for cpu := range 8 {
		node := cpu / 4
		cpuinfo += fmt.Sprintf("processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 8480+\n\n", cpu)
		for _, dir := range []string{"sys/devices/system/cpu", fmt.Sprintf("sys/devices/system/node/node%d", node)} {
			write(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", dir, cpu), fmt.Sprintln(node))
			write(fmt.Sprintf("%s/cpu%d/topology/core_id", dir, cpu), fmt.Sprintln(cpu%2))
		}
	}
	files["proc/cpuinfo"] = cpuinfo
	for node := range 2 {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		files[dir+"distance"] = []string{"10 21\n", "21 10\n"}[node]
		files[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal:        2000000 kB\n", node)
		files[dir+"hugepages/hugepages-2048kB/nr_hugepages"] = "0\n"
		for block := range 16 {
			name := fmt.Sprintf("memory%d/state", 16*node+block)
			files[dir+name], files["sys/devices/system/memory/"+name] = "online\n", "online\n"
		}
	}
	for name, text := range files {
		write(name, text)
	}
	for name, text := range more {
		write(name, text)
	}
	return root
}

func TestInventory(t *testing.T) {
	got, err := inventory(hostFiles(t, nil))
	must(t, err)
	processor := accel.Processor{Vendor: "GenuineIntel", Model: "Xeon 8480+", Cores: 2, Threads: 4}
	want := accel.Inventory{
		Product: accel.Part{Vendor: "Supermicro", Name: "SYS-821GE-TNHR", Serial: "S1"},
		Board:   accel.Part{Vendor: "Supermicro", Name: "X13DEG-OAD"},
		BIOS:    accel.BIOS{Vendor: "American Megatrends", Version: "2.1", Date: "12/06/2023"},
		Chassis: "Rack mount chassis", MemoryMiB: 4096, UsableMiB: 3906,
		Processors: []accel.Processor{processor, processor},
		Nodes: []accel.NUMANode{
			{ID: 0, Cores: 2, Threads: 4, MemoryMiB: 2048, Distances: []int{10, 21}},
			{ID: 1, Cores: 2, Threads: 4, MemoryMiB: 2048, Distances: []int{21, 10}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const line = "Supermicro SYS-821GE-TNHR, 2 × Xeon 8480+, 8 threads, 4 GiB, 2 NUMA nodes"
	if got.String() != line {
		t.Errorf("%q, want %q", got.String(), line)
	}
}

// TestInventoryOfLittle: a missing file leaves a field empty; an impossible one is an error and does not end the
// process.
func TestInventoryOfLittle(t *testing.T) {
	got, err := inventory(t.TempDir())
	if err == nil {
		t.Error("no error without a line about memory")
	}
	if diff := cmp.Diff(accel.Inventory{}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	strange, err := inventory(hostFiles(t, map[string]string{"sys/kernel/mm/hugepages/strange/x": ""}))
	if err == nil || strange.Product.Name == "" {
		t.Errorf("%v, %+v", err, strange)
	}
	h, err := New(t.TempDir())
	must(t, err)
	if got, err := h.Inventory(t.Context()); err != nil || got.Product.Name != "" {
		t.Errorf("a copy of a machine: %+v, %v", got, err)
	}
}

// TestPackageOf: the package of a node is that of its first processor, and is not known otherwise.
func TestPackageOf(t *testing.T) {
	none := accel.Answer[int]{}
	for what, c := range map[string]struct {
		list, id string
		want     accel.Answer[int]
	}{
		"a range":             {"4-7,12-15\n", "1\n", accel.Known(1)},
		"one processor":       {"4\n", "0\n", accel.Known(0)},
		"no processor":        {"\n", "1\n", none},
		"an unknown package":  {"4\n", "-1\n", none},
		"no package":          {"4\n", "", none},
		"an impossible list":  {"99999999999\n", "1\n", none},
		"an impossible digit": {"x4\n", "1\n", none},
	} {
		files := map[string]string{"sys/devices/system/node/node2/cpulist": c.list}
		if c.id != "" {
			files["sys/devices/system/cpu/cpu4/topology/physical_package_id"] = c.id
		}
		root := t.TempDir()
		for name, text := range files {
			p := filepath.Join(root, name)
			must(t, os.MkdirAll(filepath.Dir(p), 0o755))
			must(t, os.WriteFile(p, []byte(text), 0o644))
		}
		h, err := New(root)
		must(t, err)
		if got := packageOf(h, 2); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
		if got := packageOf(h, 3); got != none {
			t.Errorf("%s: a node that is not there: %+v", what, got)
		}
	}
}

func TestSaid(t *testing.T) {
	for in, want := range map[string]string{
		" Dell\tInc. \n": "Dell Inc.", "unknown": "", "To Be Filled By O.E.M.": "", "0": "", "": "",
		"Default string": "",
		"00:00":          "00:00", "PowerEdge\x1b[31m XE9680": "PowerEdge [31m XE9680",
	} {
		if got := said(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestProcessorNodes: lists of processors are read within bounds, and one that cannot be read is left out.
func TestProcessorNodes(t *testing.T) {
	root := t.TempDir()
	for node, list := range map[string]string{
		"node0": "0-1,4\n", "node1": "2\n", "node2": "\n", "node3": "5-99999\n", "node4": "x-7,8\n", "possible": "0-4\n",
	} {
		dir := filepath.Join(root, "sys/devices/system/node", node)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cpulist"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int64]int{0: 0, 1: 0, 4: 0, 2: 1, 8: 4}, ProcessorNodes(h)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
