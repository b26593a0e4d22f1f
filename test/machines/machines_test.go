package machines

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// TestFacts compares what is detected in each machine with its golden file. -update writes the golden files.
func TestFacts(t *testing.T) {
	update := flag.Lookup("update").Value.String() == "true"
	for _, name := range Names(t) {
		t.Run(name, func(t *testing.T) {
			h := Unpack(t, name)
			done := make(chan accel.Facts, 1)
			go func() { done <- detect.Detect(h, detect.Options{Names: true}) }()
			var facts accel.Facts
			select {
			case facts = <-done:
			case <-time.After(30 * time.Second):
				t.Fatal("detection blocks")
			}
			got, err := json.MarshalIndent(facts, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(got), h.Root()) {
				t.Error("a fact names the path under the root, not the machine's")
			}
			golden := name + ".json"
			if update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("facts of %s: -golden +got\n%s", name, diff)
			}
		})
	}
}

// The hostile machine's secret must not be seen, whatever the golden file says.
func TestNothingLeavesTheRoot(t *testing.T) {
	h := Unpack(t, "hostile")
	facts := detect.Detect(h, detect.Options{Names: true})
	def := &accel.Definition{
		Match: []accel.Match{{Vendor: "1234"}}, Serial: "serial", Nodes: []accel.NodeSource{
			{Glob: "accel/*"},
			{Glob: "loop/*"},
		},
		Health: []accel.HealthSource{{File: "health", Healthy: "ok"}},
	}
	list := detect.Accelerators(h, def, facts.PCI)
	if len(list) == 0 {
		t.Fatal("the hostile machine has no accelerator: this tests nothing")
	}
	for _, a := range list {
		if len(a.Nodes) != 0 || a.Serial != "" || a.Health.State != "" {
			t.Errorf("something was read through a hostile file: %+v", a)
		}
	}
	version, err := os.ReadFile("/proc/version")
	if err == nil && strings.Contains(facts.Kernel.Version, strings.TrimSpace(string(version))) {
		t.Error("a link to the real /proc/version was followed")
	}
}

// A machine that has the data, and each definition's view of it.
func TestAcceleratorsOfTheGuest(t *testing.T) {
	h := Unpack(t, "qemu-edu")
	def := &accel.Definition{
		Match: []accel.Match{{Vendor: "1234", Device: "11e8"}}, Serial: "serial",
		Nodes:   []accel.NodeSource{{Glob: "accel/edu*"}},
		Health:  []accel.HealthSource{{File: "health", Healthy: "ok"}},
		Metrics: []accel.MetricSource{{Name: "celsius", File: "temperature", Scale: 0.001}},
	}
	pci, _ := detect.PCI(h)
	want := []accel.Accelerator{
		{
			ID: "0000:00:04.0", NUMANode: -1, Bound: "edu", Serial: "EDU0000000400",
			Health: accel.Health{State: accel.Healthy},
			Nodes:  []accel.DeviceNode{{Path: "/dev/accel/edu0", Major: 240}},
		},
		{
			ID: "0000:00:05.0", NUMANode: -1, Bound: "edu", Serial: "EDU0000000500",
			Health: accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "overheated"},
			Nodes:  []accel.DeviceNode{{Path: "/dev/accel/edu1", Major: 240, Minor: 1}},
		},
	}
	got := detect.Accelerators(h, def, pci)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if m, err := detect.Collect(h, def, got[0]); err != nil || m["celsius"] != 41.5 {
		t.Errorf("metrics %v, %v", m, err)
	}
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files")
	flag.Parse()
	os.Exit(m.Run())
}
