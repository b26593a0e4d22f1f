package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
)

// divided returns a kind with one device that is partitioned into two halves.
func divided() (*accel.Definition, []accel.Accelerator) {
	half := func(name string) accel.Accelerator {
		return accel.Accelerator{
			ID: "0000:01:00.0-half-" + name, Parent: "0000:01:00.0", Profile: "half",
			Nodes: []accel.DeviceNode{{Path: "/dev/edu0" + name}},
		}
	}
	def := &accel.Definition{
		Kind:       "qemu-edu",
		Partitions: &accel.Partitions{Profiles: []accel.Profile{{Name: "quarter"}}},
	}
	return def, []accel.Accelerator{{
		ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu0"}}, Partitions: []accel.Accelerator{
			half("p0"),
			half("p1"),
		},
	}}
}

// TestProfiles: the holder of a partition is found even if the definition does not name its profile, or the partition
// is gone.
func TestProfiles(t *testing.T) {
	def, accs := divided()
	if diff := cmp.Diff([]string{"half", "quarter"}, profiles(def, accs)); diff != "" {
		t.Error(diff)
	}
}

func TestNameHoldersOfPartitions(t *testing.T) {
	_, accs := divided()
	holders := []accel.Holder{{PID: 7, PodUID: "u", Device: "/dev/edu0p1"}}
	held := map[string][]deviceplugin.PodRef{"0000:01:00.0-half-p1": {{Namespace: "team", Pod: "train"}}}
	got := nameHolders(holders, held, accs)
	if len(got) != 1 || got[0].Pod != "train" {
		t.Errorf("%+v", got)
	}
}
