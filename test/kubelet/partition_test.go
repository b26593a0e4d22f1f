package kubelet

import (
	"context"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/acceld/acceld/accel"
)

// divided are two devices, the first of which is in two halves.
func divided() []accel.Accelerator {
	accs := things()
	for _, name := range []string{"p0", "p1"} {
		p := device(accel.PartitionID(accs[0].ID, "half", name), 0, accel.Healthy)
		p.Parent, p.Profile = accs[0].ID, "half"
		accs[0].Partitions = append(accs[0].Partitions, p)
	}
	return accel.Units(accs)
}

// TestClaimPartitions: the API's own validation takes devices, partitions and counters, its selectors tell partitions
// from whole devices, and the kubelet's manager of claims prepares a partition.
func TestClaimPartitions(t *testing.T) {
	n := newClaimNode(t)
	k := n.kubelet()
	defer k.Stop()
	p, stop := n.kind("example-thing", func(def *accel.Definition) {
		def.Capacity = nil
		def.Partitions = &accel.Partitions{Counters: map[string]string{"slots": "2"}, Profiles: []accel.Profile{
			{
				Name: "half", Uses: map[string]string{"slots": "1"}, Possible: []string{"p0", "p1"},
				Capacity: []accel.Capacity{{Name: "memory", Value: "4Gi"}},
			},
		}}
	})
	defer stop()
	p.Update(divided())
	wait(t, "a device and two halves offered", func() bool {
		return p.State().Registered && p.State().Allocatable.Is(3)
	})
	list, err := n.server.slices().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%d slices, want one of devices and one of counters; %v", len(list.Items), err)
	}
	devices := slices.Concat(list.Items[0].Spec.Devices, list.Items[1].Spec.Devices)
	for class, want := range map[string][]string{
		driver: {"0000-01-00-0", "0000-02-00-0"},
		"half." + driver: {
			"0000-01-00-0-half-p0", "0000-01-00-0-half-p1", "0000-02-00-0-half-p0",
			"0000-02-00-0-half-p1",
		},
	} {
		wait(t, "class "+class, func() bool {
			_, err := n.server.client.ResourceV1().DeviceClasses().Get(t.Context(), class, metav1.GetOptions{})
			return err == nil
		})
		if got := selected(t, n, class, devices); !slices.Equal(got, want) {
			t.Errorf("class %s selects %v, want %v", class, got, want)
		}
	}
	pod := n.claim("half", "0000-01-00-0-half-p1")
	names, err := k.Prepare(t.Context(), pod)
	if want := []string{driver + "/claim=uid-of-half-0000-01-00-0-half-p1"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("prepared: %v %v", names, err)
	}
	if err := k.Unprepare(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

// selected are the devices that the scheduler's selectors find by a class.
func selected(t *testing.T, n *claimNode, class string, devices []resourceapi.Device) (names []string) {
	t.Helper()
	c, err := n.server.client.ResourceV1().DeviceClasses().Get(t.Context(), class, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	program := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(c.Spec.Selectors[0].CEL.Expression,
		dracel.Options{})
	if program.Error != nil {
		t.Fatal(program.Error)
	}
	for _, d := range devices {
		ok, _, err := program.DeviceMatches(t.Context(), dracel.Device{Driver: driver, Attributes: d.Attributes})
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return names
}
