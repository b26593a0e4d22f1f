package dra

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// TestObjects compares the few fields that are written here with the types of k8s.io/api: those types know every
// field, and reading and writing through them changes nothing.
func TestObjects(t *testing.T) {
	def := &accel.Definition{Kind: "qemu-edu", Resource: "qemu.org/edu", Capacity: []accel.Capacity{
		{Name: "memory", Value: "8192Mi", Share: &accel.Share{Default: "1Gi", Min: "1Gi", Max: "8Gi", Step: "512Mi"}},
		{Name: "engines", Value: "2"},
	}}
	a := sick(edu(1))
	a.NUMANode, a.Serial = 1, "S-1"
	v := View{
		Node: node, Definition: def, DriverVersion: "580.65.06",
		Accelerators: []accel.Accelerator{a, edu(2)}, Devices: []accel.PCIDevice{
			{Address: "0000:00:01.0"}, {
				Address: "0000:01:00.0", ParentPort: "0000:00:01.0", Vendor: "1234",
				Device: "11e8", DeviceName: "Edu", Link: accel.Link{MaxSpeedGTs: 2.5, MaxWidth: 4},
			},
		},
	}
	s := Slices(v)[0]
	s.Spec.Pool.Generation = 3
	s.Metadata.ResourceVersion = "7"
	s.Metadata.OwnerReferences = []kube.Owner{{APIVersion: "v1", Kind: "Node", Name: node, UID: "u", Controller: true}}
	roundTrip[resourceapi.ResourceSlice](t, s)
	for _, c := range classesFor(def, nil) {
		roundTrip[resourceapi.DeviceClass](t, c)
	}
}

// roundTrip reads x strictly as a type of the API, writes it, and reads it back as x.
func roundTrip[API, T any](t *testing.T, x T) {
	t.Helper()
	data, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var theirs API
	if err := d.Decode(&theirs); err != nil {
		t.Fatalf("%T: %v\n%s", theirs, err, data)
	}
	if data, err = json.Marshal(theirs); err != nil {
		t.Fatal(err)
	}
	var again T
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(x, again); diff != "" {
		t.Errorf("%T does not come back (-sent +read):\n%s", theirs, diff)
	}
}

// TestClaim compares what is read of a claim with the type of k8s.io/api.
func TestClaim(t *testing.T) {
	yes, share := true, "share-1"
	var theirs resourceapi.ResourceClaim
	theirs.Name, theirs.Namespace, theirs.UID = "c", "team", "uid-1"
	theirs.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{
		Resource: "pods", Name: "p",
		UID: "pod-uid",
	}}
	theirs.Status.Allocation = &resourceapi.AllocationResult{}
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "gpu/big", Driver: "d", Pool: "p", Device: "x",
		AdminAccess: &yes,
	}
	if err := json.Unmarshal([]byte(
		`{"request":"gpu/big","driver":"d","pool":"p","device":"x","adminAccess":true,"shareID":"share-1","consumedCapacity":{"memory":"5Gi"}}`),
		&result); err != nil {
		t.Fatal(err)
	}
	theirs.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{result}
	opaque := &resourceapi.OpaqueDeviceConfiguration{Driver: "d"}
	opaque.Parameters.Raw = []byte(`{"kind":"X"}`)
	theirs.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClass, Requests: []string{"gpu"},
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: opaque},
	}}
	data, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var c claim
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	r := c.Status.Allocation.Devices.Results[0]
	if r.Request != "gpu/big" || !r.AdminAccess || r.ShareID != share || r.Consumed["memory"] != "5Gi" ||
		c.Metadata.UID != "uid-1" {
		t.Errorf("the result is read as %+v", r)
	}
	g := c.Status.Allocation.Devices.Config[0]
	if g.Source != "FromClass" || string(g.Opaque.Parameters) != `{"kind":"X"}` || g.Requests[0] != "gpu" ||
		c.Status.ReservedFor[0].UID != "pod-uid" {
		t.Errorf("the configuration is read as %+v", g)
	}
}

func TestTaintHasTime(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 0, 5, time.UTC)
	gone := accel.Accelerator{Health: accel.Health{
		State: accel.Gone, Reason: accel.DeviceGone, Action: accel.ActionService, Since: at,
	}}
	for effect, def := range map[string]*accel.Definition{
		"NoSchedule": {}, "NoExecute": {Repair: &accel.Repair{NoExecute: []accel.Action{accel.ActionService}}},
	} {
		want := []Taint{{Key: TaintKey, Value: "DeviceGone", Effect: effect, TimeAdded: at.Truncate(time.Second)}}
		if diff := cmp.Diff(want, View{Definition: def}.taints(gone)); diff != "" {
			t.Error(diff)
		}
	}
}
