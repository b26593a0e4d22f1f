package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/acceld/acceld/accel"
	"google.golang.org/protobuf/testing/protocmp"
)

// divided returns devices, some of them divided: "a b:half0,half1" is a whole one and one in two halves.
func divided(words string) []accel.Accelerator {
	var accs []accel.Accelerator
	for _, w := range strings.Fields(words) {
		id, parts, _ := strings.Cut(w, ":")
		a := thing(strings.TrimSuffix(id, "!"), 0, accel.Healthy)
		if strings.HasSuffix(id, "!") {
			a.Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy}
		}
		for _, name := range strings.FieldsFunc(parts, func(r rune) bool { return r == ',' }) {
			profile := strings.TrimRight(name, "0123456789")
			p := thing(accel.PartitionID(a.ID, profile, name), 0, accel.Healthy)
			p.Parent, p.Profile = a.ID, profile
			p.Nodes, p.Env = []accel.DeviceNode{{Path: "/dev/" + a.ID + name}}, []string{"PART=" + name}
			a.Partitions = append(a.Partitions, p)
		}
		accs = append(accs, a)
	}
	return accs
}

// offered returns the lists of all resources, by the ends of their names: "id", or "id!" for an unhealthy device.
func offered(k *Kind) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, profile := range slices.Sorted(maps.Keys(k.plugins)) {
		all = append(all, strings.TrimPrefix(k.plugins[profile].cfg.Resource, "example.com/")+"=["+
			strings.Join(rows(k.plugins[profile].list), " ")+"]")
	}
	return strings.Join(all, " ")
}

// The layout changes while the plugin runs: profiles are resources of their own, a divided device is not offered
// whole, and a vanished one stays as a tombstone as long as a pod holds it.
func TestPartitionsComeAndGo(t *testing.T) {
	now := time.Now()
	def := &accel.Definition{
		Kind: "example-thing", Resource: testResource,
		Partitions: &accel.Partitions{Profiles: []accel.Profile{{Name: "quarter", Rename: "example.com/small"}}},
	}
	k := NewKind(Config{Resource: testResource, Definition: def})
	sweep := func(held ...string) {
		refs := map[string]PodRef{}
		for _, id := range held {
			refs[id] = PodRef{Pod: "p"}
		}
		now = now.Add(time.Hour)
		for _, p := range k.all() {
			p.list.sweep(refs, now, time.Minute)
		}
	}
	step := func(what, layout, want string) {
		t.Helper()
		k.Update(accel.Units(divided(layout)))
		if diff := cmp.Diff(want, offered(k)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
	step("whole devices", "a b", "thing=[a b]")
	step("one is divided", "a b:half0,half1", "thing=[a b!] thing-half=[b-half-half0 b-half-half1]")
	sweep("b-half-half1")
	step("nobody counts it whole any more", "a b:half0,half1", "thing=[a] thing-half=[b-half-half0 b-half-half1]")
	step("it is sick, and so are its parts", "a b!:half0,half1", "thing=[a] thing-half=[b-half-half0! b-half-half1!]")
	step("it is well again", "a b:half0,half1", "thing=[a] thing-half=[b-half-half0 b-half-half1]")
	step("it is divided otherwise", "a b:quarter0,half1",
		"thing=[a] thing-half=[b-half-half0! b-half-half1] small=[b-quarter-quarter0]")
	step("and whole again", "a b", "thing=[a b] thing-half=[b-half-half0! b-half-half1!] small=[b-quarter-quarter0!]")
	sweep("b-half-half1")
	step("what a pod holds stays", "a b", "thing=[a b] thing-half=[b-half-half1!] small=[]")
	sweep()
	step("until it has ended", "a b", "thing=[a b] thing-half=[] small=[]")
	step("and it comes back", "a:half1 b", "thing=[a! b] thing-half=[a-half-half1] small=[]")
}

// A container gets what belongs to its partition, and nothing of another one.
func TestAllocatePartition(t *testing.T) {
	for _, cdi := range []bool{true, false} {
		t.Run(fmt.Sprintf("CDI %v", cdi), func(t *testing.T) {
			def := &accel.Definition{
				Kind: "example-thing", Resource: testResource,
				Partitions: &accel.Partitions{Nodes: []accel.NodeSource{{Glob: ".", Permissions: "r"}}},
			}
			k := NewKind(Config{Resource: testResource, Definition: def, CDI: cdi})
			k.Update(accel.Units(divided("a:half0,half1")))
			p := k.plugins["half"]
			s := &service{cfg: p.cfg, list: p.list}
			resp, err := s.Allocate(t.Context(),
				&pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{
					{DevicesIds: []string{"a-half-half1"}},
				}})
			if err != nil {
				t.Fatal(err)
			}
			got := resp.ContainerResponses[0]
			if cdi {
				if len(got.CdiDevices) != 1 || got.CdiDevices[0].Name != testResource+"=a-half-half1" ||
					len(got.Envs) != 0 {
					t.Errorf("%v", got)
				}
				return
			}
			if len(got.Devices) != 1 || got.Devices[0].HostPath != "/dev/ahalf1" || got.Devices[0].Permissions != "r" ||
				got.Envs["PART"] != "half1" {
				t.Errorf("%v", got)
			}
		})
	}
	k := NewKind(Config{Resource: testResource, Definition: &accel.Definition{Kind: "example-thing", Resource: testResource}})
	k.Update(accel.Units(divided("a:half0")))
	s := &service{cfg: k.plugins[""].cfg, list: k.plugins[""].list}
	_, err := s.Allocate(t.Context(),
		&pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{
			{DevicesIds: []string{"a"}},
		}})
	if err == nil || !strings.Contains(err.Error(), "DevicePartitioned") {
		t.Errorf("the whole of a divided device: %v", err)
	}
}

// A profile that makes no valid resource name is reported, and does not stop the others.
func TestProfileThatCannotBeOffered(t *testing.T) {
	long := strings.Repeat("x", 60)
	k := NewKind(Config{Resource: testResource, Definition: &accel.Definition{
		Kind:     "example-thing",
		Resource: testResource,
	}})
	k.Update(accel.Units(divided("a:half0," + long + "1")))
	if p := k.Problem(); p == nil || p.Reason != accel.RegistrationFailed || !strings.Contains(p.Message, long) {
		t.Errorf("%+v", p)
	}
	if want := "thing=[a!] thing-half=[a-half-half0]"; offered(k) != want {
		t.Errorf("offered %s, want %s", offered(k), want)
	}
	k.Update(accel.Units(divided("a:half0")))
	if p := k.Problem(); p != nil {
		t.Errorf("it is gone, and still: %+v", p)
	}
}

// A profile that appears while the plugin runs is registered at once, in addition to the others.
func TestProfileRegisters(t *testing.T) {
	kubelet := newFakeKubelet(t)
	kubelet.start()
	defer kubelet.stop()
	k := NewKind(Config{Resource: testResource, Dir: kubelet.dir, Definition: &accel.Definition{
		Kind:     "example-thing",
		Resource: testResource,
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	registered := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " registrations"), func() bool {
			have := k.State()
			return have.Registered && have.Registrations == n
		})
	}
	k.Update(accel.Units(divided("a b")))
	registered(1)
	k.Update(accel.Units(divided("a b:half0,half1")))
	registered(2)
	eventually(t, "the halves", func() bool {
		return slices.Equal(kubelet.health(), []string{"b-half-half0", "b-half-half1"})
	})
	kubelet.start() // both come back
	registered(4)
	cancel()
	if err := <-done; err != nil || k.State().Registered {
		t.Errorf("the end: %v, %+v", err, k.State())
	}
}

// TestAllocateSetAside: a container that asks for a device which is set aside gets the nodes of VFIO and the addresses
// in the variable that KubeVirt reads, and nothing that belongs to the kind's own driver.
func TestAllocateSetAside(t *testing.T) {
	def := &accel.Definition{
		Kind: "example-thing", Resource: testResource, Driver: accel.DriverDefinition{Binds: "thing"},
		VFIO:      &accel.VFIO{Devices: []string{accel.AllDevices}},
		Container: accel.Edits{Env: []string{"THING=1"}, Nodes: []string{"/dev/ctl"}},
	}
	var all []accel.Accelerator
	for i, id := range []string{"0000:01:00.0", "0000:02:00.0"} {
		a := thing(id, 0, accel.Healthy)
		a.Bound, a.Nodes = "vfio-pci", []accel.DeviceNode{{Path: fmt.Sprintf("/dev/vfio/%d", i+7)}}
		a.Switched = &accel.Switched{Use: accel.UseVFIO, Driver: "vfio-pci", Group: i + 7, Claim: accel.AsideClaim(id)}
		a.WithholdSwitched()
		all = append(all, a)
	}
	k := NewKind(Config{Resource: testResource, Definition: def, CDI: true})
	k.Update(accel.Units(accel.SetAside(def, all)))
	if got := offered(k); got != "thing=[0000:01:00.0! 0000:02:00.0!] thing-vfio=[0000:01:00.0-vfio-7 0000:02:00.0-vfio-8]" {
		t.Fatal(got)
	}
	p := k.plugins[accel.AsideProfile]
	s := &service{cfg: p.cfg, list: p.list}
	resp, err := s.Allocate(t.Context(),
		&pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{
			{DevicesIds: []string{"0000:01:00.0-vfio-7", "0000:02:00.0-vfio-8"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	want := &pluginapi.ContainerAllocateResponse{
		Annotations: map[string]string{"acceld.dev/devices": "0000:01:00.0-vfio-7,0000:02:00.0-vfio-8"},
		Envs:        map[string]string{"PCI_RESOURCE_EXAMPLE_COM_THING-VFIO": "0000:01:00.0,0000:02:00.0"},
		Devices: []*pluginapi.DeviceSpec{
			{HostPath: "/dev/vfio/vfio", ContainerPath: "/dev/vfio/vfio", Permissions: "mrw"},
			{HostPath: "/dev/vfio/7", ContainerPath: "/dev/vfio/7", Permissions: "mrw"},
			{HostPath: "/dev/vfio/8", ContainerPath: "/dev/vfio/8", Permissions: "mrw"},
		},
	}
	if diff := cmp.Diff(want, resp.ContainerResponses[0], protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s = &service{cfg: k.plugins[""].cfg, list: k.plugins[""].list}
	if _, err := s.Allocate(t.Context(),
		&pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{
			{DevicesIds: []string{"0000:01:00.0"}},
		}}); err == nil || !strings.Contains(err.Error(), "OtherUse") {
		t.Errorf("the kind's own resource gives it, too: %v", err)
	}
}
