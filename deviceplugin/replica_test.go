package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// shared is the inventory of devices that are offered n times each.
func shared(n int, accs []accel.Accelerator) *inventory {
	inv := newInventory(&accel.Definition{Sharing: &accel.Sharing{Replicas: n}})
	inv.update(accs, time.Now())
	return inv
}

func TestReplicas(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	inv := shared(3, two())
	step := func(what string, f func(), want string) {
		t.Helper()
		f()
		if diff := cmp.Diff(want, strings.Join(rows(inv), " ")); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
	step("each device three times", func() {}, "a a::1 a::2 b b::1 b::2")
	sick := two()
	sick[0].Health.State = accel.Unhealthy
	step("health is that of the device", func() { inv.update(sick, t0) }, "a! a::1! a::2! b b::1 b::2")
	step("a vanished device", func() { inv.update(two()[1:], t0) }, "a! a::1! a::2! b b::1 b::2")
	held := map[string]PodRef{"a::2": {}}
	step("of it stays what a pod holds", func() {
		inv.sweep(held, t0.Add(time.Hour), time.Minute)
	}, "a::2! b b::1 b::2")
	step("it comes back", func() { inv.update(two(), t0) }, "a a::1 a::2 b b::1 b::2")
	for _, d := range inv.load().message.Devices {
		if DeviceOf(d.ID) == "b" && d.Topology.Nodes[0].ID != 1 {
			t.Errorf("%v", d)
		}
	}
}

// TestReplicasOfSome: one device is shared and the other is not; each changes by itself.
func TestReplicasOfSome(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(n int) *accel.Definition {
		return &accel.Definition{Sharing: &accel.Sharing{
			Replicas: 1, FailRequestsGreaterThanOne: true,
			Devices: []accel.ShareOf{{Addresses: []string{"a"}, Replicas: n}},
		}}
	}
	inv := newInventory(of(3))
	inv.update(two(), t0)
	if got := strings.Join(rows(inv), " "); got != "a a::1 a::2 b" {
		t.Fatal(got)
	}
	s := &service{cfg: Config{Resource: "x", CDI: true, Definition: inv.def}, list: inv}
	if _, err := s.Allocate(context.Background(), request("a::1", "b")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a share and another device: %v", err)
	}
	inv.adopt(heldRefs{now: map[string]PodRef{"a::2": {}}}, t0)
	inv.def = of(1)
	inv.update(two(), t0)
	for _, d := range inv.load().devices {
		if want := map[string]bool{"a::2": true, "b": true}[d.id]; d.offered() != want && d.gone.IsZero() {
			t.Errorf("%s is offered: %t, while a pod has a share", d.id, d.offered())
		}
	}
}

// With fewer replicas, what pods hold stays healthy for them until they end, and a device that is offered whole
// again is not given to anyone before that.
func TestFewerReplicas(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hold := func(ids ...string) heldRefs {
		h := heldRefs{now: map[string]PodRef{}}
		for _, id := range ids {
			h.now[id] = PodRef{Pod: id}
		}
		return h
	}
	for _, tc := range []struct {
		name     string
		replicas int
		held     heldRefs
		want     string
		after    string // when the pods have ended
		later    string // after the grace
	}{
		{"two are left", 2, hold("a", "a::3"), "a a::1 a::3 b b::1", "a a::1 a::3! b b::1", "a a::1 b b::1"},
		{"the device is whole again", 1, hold("a::3", "a::1"), "a! a::1 a::3 b", "a a::1! a::3! b", "a b"},
		{"and a pod has what was the first of them", 1, hold("a", "a::3"), "a a::3 b", "a a::3! b", "a b"},
		{"of a device that is gone", 2, hold("c::3"), "a a::1 b b::1 c::3!", "a a::1 b b::1", "a a::1 b b::1"},
		{
			"under another name", 2,
			heldRefs{before: map[string]PodRef{"b": {}}},
			"a a::1 b! b::1!", "a a::1 b b::1",
			"a a::1 b b::1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inv := shared(tc.replicas, two())
			look := func(held heldRefs, at time.Duration, want string) {
				t.Helper()
				inv.adopt(held, t0.Add(at))
				inv.sweep(held.now, t0.Add(at), time.Minute)
				inv.update(two(), t0.Add(at)) // as every pass of the agent does
				if diff := cmp.Diff(want, strings.Join(rows(inv), " ")); diff != "" {
					t.Fatalf("after %s (-want +got):\n%s", at, diff)
				}
			}
			look(tc.held, 0, tc.want)
			look(tc.held, time.Hour, tc.want)
			sick := two()
			sick[0].Health.State = accel.Unhealthy
			inv.update(sick, t0)
			for _, row := range rows(inv) {
				if strings.HasPrefix(row, "a") && !strings.HasSuffix(row, "!") {
					t.Errorf("%q is shown as healthy", row)
				}
			}
			inv.update(two(), t0)
			look(heldRefs{}, 2*time.Hour, tc.after)
			look(heldRefs{}, 3*time.Hour, tc.later)
			if inv.load().passing() {
				t.Errorf("something is still waited for: %+v", inv.load().devices)
			}
		})
	}
}

func TestPreferReplicas(t *testing.T) {
	accs := func(words string) (out []accel.Accelerator) {
		for _, w := range strings.Fields(words) {
			id, node, _ := strings.Cut(w, "@")
			a := thing(id, 0, accel.Healthy)
			fmt.Sscan(node, &a.NUMANode)
			out = append(out, a)
		}
		return out
	}
	for _, tc := range []struct {
		name, devices, available, must string
		size                           int
		want                           string
	}{
		{"different devices", "a@0 b@0 c@0", "a a::1 b b::1 c c::1", "", 3, "a b c"},
		{"different devices of two nodes", "a@0 b@1", "a a::1 b b::1", "", 2, "a b"},
		{"the device that nobody has", "a@0 b@0", "a::1 b b::1", "", 1, "b"},
		{"the device with the fewest", "a@0 b@0 c@0", "a b b::1 c", "", 1, "b"},
		{"the free ones first, then close to them", "a@0 b@1 c@1 d@0", "a::1 b b::1 c::1 d::1", "", 2, "b c::1"},
		{"two of one only when it cannot be avoided", "a@0 b@0", "a a::1 b b::1", "", 3, "a b a::1"},
		{"one device", "a@0", "a a::1", "", 2, "a a::1"},
		{"not the one that must be included", "a@0 b@0", "a a::1 b::1", "a", 2, "a b::1"},
		{"must has two of one", "a@0 b@0", "a a::1 b b::1", "a a::1", 3, "a a::1 b"},
		{"all", "a@0 b@0", "a a::1 b b::1", "", 4, "a b a::1 b::1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := prefer(shared(2, accs(tc.devices)).load().devices, strings.Fields(tc.available),
				strings.Fields(tc.must), tc.size)
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllocateReplicas(t *testing.T) {
	accs := two()
	accs[0].Nodes = []accel.DeviceNode{{Path: "/dev/a"}}
	accs[1].Nodes = []accel.DeviceNode{{Path: "/dev/b"}}
	for _, tc := range []struct {
		name  string
		cdi   bool
		fail  bool
		ids   []string
		names []string
		code  codes.Code
	}{
		{name: "cdi", cdi: true, ids: []string{"b::1", "a::1", "a"}, names: []string{
			testResource + "=a",
			testResource + "=b",
		}},
		{name: "nodes", ids: []string{"b::1", "a", "a::1"}, names: []string{"/dev/a", "/dev/b"}},
		{
			name: "one, when one is allowed", cdi: true, fail: true, ids: []string{"a::1"},
			names: []string{testResource + "=a"},
		},
		{name: "two, when one is allowed", cdi: true, fail: true, ids: []string{"a", "b"}, code: codes.InvalidArgument},
		{name: "no such replica", cdi: true, ids: []string{"a::2"}, code: codes.NotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			def := &accel.Definition{Resource: testResource, Sharing: &accel.Sharing{
				Replicas: 2, Rename: true,
				FailRequestsGreaterThanOne: tc.fail,
			}}
			inv := newInventory(def)
			inv.update(accs, time.Now())
			s := &service{cfg: Config{Resource: def.Offered(), CDI: tc.cdi, Definition: def}, list: inv}
			resp, err := s.Allocate(context.Background(), request(tc.ids...))
			if status.Code(err) != tc.code {
				t.Fatalf("error %v, want %s", err, tc.code)
			}
			if err != nil {
				return
			}
			answer := resp.ContainerResponses[0]
			var names []string
			for _, d := range answer.CdiDevices {
				names = append(names, d.Name)
			}
			for _, d := range answer.Devices {
				names = append(names, d.HostPath)
			}
			if diff := cmp.Diff(tc.names, names); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := answer.Annotations[DevicesAnnotation]; strings.Contains(got, replicaMark) ||
				len(strings.Split(got, ",")) != len(names) {
				t.Errorf("annotation %q", got)
			}
		})
	}
}

// A change of the sharing neither ends the kubelet's stream nor takes a replica from a pod.
func TestRedefined(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	share := func(n int, want string, allocatable int) {
		t.Helper()
		p.Redefine(&accel.Definition{
			Kind: "example-thing", Resource: testResource, Sharing: &accel.Sharing{Replicas: n},
		})
		p.Update(two())
		eventually(t, want, func() bool {
			return strings.Join(rows(p.list), " ") == want && p.State().Allocatable.Is(allocatable)
		})
	}
	share(3, "a a::1 a::2 b b::1 b::2", 2)
	k.set(func() { k.held = map[string]PodRef{"a::2": {Namespace: "ns", Pod: "pod", Container: "main"}} })
	share(1, "a! a::1! a::2 b b::1! b::2!", 1) // a itself is not offered while a pod has a replica of it
	if n := p.State().Registrations; n != 1 {
		t.Errorf("registered %d times", n)
	}
}

// A replica that the kubelet chose in the moment before it heard that there are fewer is given: its pod would fail.
func TestChosenBefore(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		after time.Duration
		sick  bool
		given bool
	}{
		"at once":                {given: true},
		"when it should know":    {after: callDeadline},
		"the device is not well": {sick: true},
	} {
		inv := shared(3, two())
		inv.redefine(&accel.Definition{Resource: testResource})
		accs := two()
		if tc.sick {
			accs[1].Health.State = accel.Unhealthy
		}
		inv.update(accs, now)
		s := &service{cfg: Config{Resource: testResource, CDI: true, Now: func() time.Time {
			return now.Add(tc.after)
		}}, list: inv}
		resp, err := s.Allocate(t.Context(), request("b::2"))
		if given := err == nil && resp.ContainerResponses[0].CdiDevices[0].Name == testResource+"=b"; given != tc.given {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
}

// The kubelet's replicas are counted as devices. If their number changes, a pod keeps what it holds from the first
// list on.
func TestReplicasOverRestart(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	share := func(n int) *Plugin {
		return newPlugin(k, func(c *Config) { c.Definition.Sharing = &accel.Sharing{Replicas: n} })
	}
	p := share(3)
	p.Update(two())
	stop := run(t, p)
	eventually(t, "two devices count", settled(p, 1, 2))
	if got := len(k.health()); got != 6 {
		t.Errorf("%d rows", got)
	}
	stop()

	k.set(func() {
		k.held = map[string]PodRef{"b::2": {Namespace: "ns", Pod: "pod", Container: "main"}}
		k.messages = 0
	})
	p = share(1)
	p.timing.grace = 0
	p.Update(two())
	run(t, p)
	eventually(t, "b is not offered while it is held", func() bool {
		return slices.Equal(k.health(), []string{"a", "b!", "b::2"}) && p.State().Allocatable.Is(1)
	})
	k.set(func() {
		if k.messages != 1 {
			t.Errorf("%d lists, want 1: the first must have what pods hold", k.messages)
		}
	})
	if problem := p.Problem(); problem == nil || problem.Reason != accel.DeviceHeld {
		t.Errorf("problem %v", problem)
	}
	k.set(func() { k.held = nil })
	eventually(t, "it is offered when the pod has ended", func() bool {
		return slices.Equal(k.health(), []string{"a", "b"})
	})
	eventually(t, "settled", settled(p, 1, 2))
}

// A device that a pod holds under a previous name of the resource is not given to another pod.
func TestRenamedResource(t *testing.T) {
	k := newFakeKubelet(t)
	// fakePods adds that the pod has "x" of example.com/other.
	k.held = map[string]PodRef{"x": {Namespace: "ns", Pod: "pod", Container: "main"}}
	k.start()
	defer k.stop()
	p := newPlugin(k, func(c *Config) { c.Former = []string{"example.com/other"} })
	accs := append(two(), thing("x", 0, accel.Healthy))
	p.Update(accs)
	run(t, p)
	eventually(t, "both ways count for the same pod", settled(p, 1, 3)) // both count for the same pod: it also holds "x" by the new name
	holders, err := p.Holders(t.Context())
	if err != nil || holders["x"].Pod != "pod" {
		t.Errorf("%v, %v", holders, err)
	}
	k.set(func() { k.held = map[string]PodRef{"a": {Namespace: "ns", Pod: "pod", Container: "main"}} })
	k.cut()
	eventually(t, "x is not offered", func() bool { return slices.Equal(k.health(), []string{"a", "b", "x!"}) })
}

// TestHeldBeforePodsArrive: a kubelet that has just restarted lists no pods until the API server has sent them. Until
// then what a pod holds under a previous name stays withheld.
func TestHeldBeforePodsArrive(t *testing.T) {
	k := newFakeKubelet(t)
	// fakePods adds that the pod has "x" of example.com/other.
	k.held = map[string]PodRef{"a": {Namespace: "ns", Pod: "pod", Container: "main"}}
	k.start()
	defer func() { k.stop() }()
	p := newPlugin(k, func(c *Config) { c.Former = []string{"example.com/other"} })
	p.kubelet.young = 2 * time.Second
	p.Update(append(two(), thing("x", 0, accel.Healthy)))
	run(t, p)
	withheld := func() bool { return slices.Equal(k.health(), []string{"a", "b", "x!"}) }
	eventually(t, "x is not offered", withheld)
	k.stop()
	k.set(func() { k.held = nil })
	k.start()
	eventually(t, "registered again", withheld)
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		if !withheld() {
			t.Fatalf("x is offered before the kubelet knows its pods: %v", k.health())
		}
	}
	if _, err := p.Holders(t.Context()); err == nil {
		t.Error("who holds devices is said to be known")
	}
	eventually(t, "x is offered when it is clear that nobody has it", func() bool {
		return slices.Equal(k.health(), []string{"a", "b", "x"})
	})
}

func BenchmarkPreferReplicas(b *testing.B) {
	accs, _ := sixtyFour()
	inv := shared(16, accs)
	var ids []string
	for _, d := range inv.load().message.Devices {
		ids = append(ids, d.ID)
	}
	s := &service{list: inv}
	req := &pluginapi.PreferredAllocationRequest{ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: ids, AllocationSize: 9},
	}}
	for b.Loop() {
		if _, err := s.GetPreferredAllocation(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
