package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// divided returns a machine with one device in two halves, one of them without a node, and a whole device.
func divided() accel.Machine {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	healthy := accel.Health{State: accel.Healthy, Since: now}
	part := func(name string, h accel.Health) accel.Accelerator {
		return accel.Accelerator{
			ID: "0000:01:00.0-half-" + name, Parent: "0000:01:00.0", Profile: "half", Health: h, NUMANode: -1,
			Nodes: []accel.DeviceNode{{Path: "/dev/edu0" + name}},
		}
	}
	def := &accel.Definition{
		Kind: "qemu-edu", Resource: "qemu.org/edu",
		Partitions: &accel.Partitions{Profiles: []accel.Profile{{Name: "quarter"}}},
	}
	return accel.Machine{
		Taken: now, Want: accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"qemu-edu": def}},
		Status: map[string]accel.Status{"qemu-edu": {State: accel.Ready, Sentence: "well"}},
		Have: map[string]accel.Have{"qemu-edu": {
			Accelerators: []accel.Accelerator{
				{
					ID: "0000:01:00.0", Bound: "edu", Health: healthy, NUMANode: -1,
					Nodes: []accel.DeviceNode{{Path: "/dev/edu0"}},
					Partitions: []accel.Accelerator{
						part("p0", healthy), part("p1", accel.Health{
							State: accel.Unhealthy, Reason: accel.NodeMissing,
							Message: "no node", Since: now,
						}),
					},
				},
				{ID: "0000:02:00.0", Bound: "edu", Health: healthy, NUMANode: -1},
			},
			Plugin: accel.PluginHave{Registered: true, Allocatable: accel.Known(2)},
		}},
	}
}

// TestPartitionsInStatus: partitions are listed below their device, and allocatable counts what can be given out.
func TestPartitionsInStatus(t *testing.T) {
	var s tableWriter
	m := divided()
	printMachine(&s, shown{Machine: m, now: m.Taken})
	var got []string
	for line := range strings.Lines(s.String()) {
		if strings.Contains(line, "0000:") || strings.Contains(line, "kubelet") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	want := []string{
		"kubelet 2 of 3 allocatable as qemu.org/edu, qemu.org/edu-half",
		"0000:01:00.0 healthy 0s /dev/edu0",
		"- 0000:01:00.0-half-p0 healthy 0s /dev/edu0p0",
		"- 0000:01:00.0-half-p1 unhealthy 0s /dev/edu0p1",
		"0000:02:00.0 healthy 0s -",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPartitionIsNotReady: a kind with an unhealthy partition does not look ready. A partition that is gone does not
// count.
func TestPartitionIsNotReady(t *testing.T) {
	m := divided()
	for _, ready := range []bool{false, true} {
		s := &tableWriter{palette: true}
		printMachine(s, shown{Machine: m, now: m.Taken})
		if green := strings.Contains(s.String(), s.good(string(accel.Ready))); green != ready || allReady(m) != ready {
			t.Errorf("ready %v, want %v:\n%s", allReady(m), ready, s)
		}
		m.Have["qemu-edu"].Accelerators[0].Partitions[1].Health.State = accel.Gone
	}
}
