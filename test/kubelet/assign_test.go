package kubelet

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"

	"github.com/acceld/acceld/accel"
)

// resources is a client of the kubelet's PodResources service.
func resources(t *testing.T) podresourcesapi.PodResourcesListerClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+PodResources, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return podresourcesapi.NewPodResourcesListerClient(conn)
}

// granted are the devices that the kubelet says a pod has, by container.
func granted(t *testing.T, pod string) map[string][]string {
	t.Helper()
	list, err := resources(t).List(t.Context(), &podresourcesapi.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				if p.GetName() == pod {
					all[c.GetName()] = append(all[c.GetName()], d.GetDeviceIds()...)
				}
			}
		}
	}
	return all
}

// What a pod was given stays with it, and goes to nobody else, over every restart; and it is free again when the pod
// was deleted while no kubelet ran.
func TestAssignmentsStay(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	p := startPlugin()
	defer func() { p.stop() }()
	whole := func() bool { return k.Allocatable(thing) == 2 && p.right() }
	wait(t, "2 devices", whole)
	if err := k.Admit("pod", thing, 1); err != nil {
		t.Fatal(err)
	}
	has := granted(t, "pod")
	given, err := k.Injected("pod")
	if err != nil || len(has["main"]) != 1 || len(given.CDIDevices) != 1 {
		t.Fatalf("the pod has %v and gets %+v: %v", has, given, err)
	}
	kubelet := func() {
		k.Stop()
		k = startKubelet(t, pods)
	}
	plugin := func() {
		p.stop()
		p = startPlugin()
	}
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"container starts again", func() {}},
		{"kubelet restarts", kubelet},
		{"plugin restarts", plugin},
		{"kubelet restarts, then the plugin", func() { kubelet(); wait(t, "2 devices", whole); plugin() }},
		{"both restart", func() { p.stop(); kubelet(); p = startPlugin() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			wait(t, "2 devices", whole)
			again, err := k.Injected("pod")
			if now := granted(t, "pod"); err != nil || !reflect.DeepEqual(now, has) ||
				!reflect.DeepEqual(again, given) {
				t.Errorf("the pod has %v and gets %+v (%v), it had %v and %+v", now, again, err, has, given)
			}
			if err := k.Admit("next", thing, 1); err != nil {
				t.Error(err)
			}
			if other := granted(t, "next"); len(other["main"]) != 1 || other["main"][0] == has["main"][0] {
				t.Errorf("another pod has %v", other)
			}
			if err := k.Admit("third", thing, 1); err == nil {
				t.Error("a third pod got one of two devices")
			}
			pods.End("next")
		})
	}
	t.Run("pod deleted while no kubelet runs", func(t *testing.T) {
		k.Stop()
		pods.End("pod")
		k = startKubelet(t, pods)
		wait(t, "2 devices", whole)
		if err := k.Admit("both", thing, 2); err != nil || len(granted(t, "both")["main"]) != 2 {
			t.Error(err)
		}
	})
}

// A node boots and the kubelet looks at its pods before the plugin is there: the pod is refused and holds nothing. What
// comes after the plugin has its devices.
func TestPodBeforePlugin(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	p := startPlugin()
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 && p.right() })
	if err := k.Admit("pod", thing, 1); err != nil {
		t.Fatal(err)
	}
	k.Stop()
	p.stop()
	k = startKubelet(t, pods)
	if n := k.Allocatable(thing); n > 0 {
		t.Errorf("%d devices without a plugin", n)
	}
	if err := k.Admit("pod", thing, 1); err == nil || !strings.Contains(err.Error(), "no healthy devices present") {
		t.Errorf("a pod without a plugin: %v", err)
	}
	if has := granted(t, "pod"); len(has) > 0 {
		t.Errorf("the refused pod has %v", has)
	}
	p = startPlugin()
	defer p.stop()
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 && p.right() })
	if err := k.Admit("again", thing, 2); err != nil {
		t.Error(err)
	}
}

// Devices fall sick and recover, one under a pod: the kubelet counts them right, and the node's capacity does not move.
func TestSickDevices(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer k.Stop()
	p := newPlugin()
	list := func(sick string) (all []accel.Accelerator) {
		for _, id := range []string{"a", "b", "c", "d"} {
			a := device(id, 0, accel.Healthy)
			if strings.Contains(sick, id) {
				a.Health.State = accel.Unhealthy
			}
			all = append(all, a)
		}
		return all
	}
	p.Update(list(""))
	stop := runPlugin(p)
	counts := func(allocatable int) func() bool {
		return func() bool {
			return k.Allocatable(thing) == allocatable && k.Capacity(thing) == 4 &&
				p.State().Allocatable.Is(allocatable) && p.Problem() == nil
		}
	}
	for _, sick := range []string{"", "d", "", "bd", "b", "", "abcd", ""} {
		p.Update(list(sick))
		wait(t, "the count with sick "+sick, counts(4-len(sick)))
	}
	if err := k.Admit("pod", thing, 1); err != nil {
		t.Fatal(err)
	}
	has := granted(t, "pod")
	id := has["main"][0]
	wait(t, "the count under a pod", counts(4))
	health := func(want string) func() bool { return func() bool { return k.Health("pod")[id] == want } }
	wait(t, "healthy in the pod's status", health("Healthy"))
	p.Update(list(id))
	wait(t, "the count with a sick device under a pod", counts(3))
	wait(t, "unhealthy in the pod's status", health("Unhealthy"))
	if now := granted(t, "pod"); !reflect.DeepEqual(now, has) {
		t.Errorf("the pod has %v, it had %v", now, has)
	}
	pods.End("pod")
	if err := k.Admit("rest", thing, 3); err != nil || slices.Contains(granted(t, "rest")["main"], id) {
		t.Errorf("the other three: %v, %v", granted(t, "rest"), err)
	}
	wait(t, "the count after the pod", counts(3))
	p.Update(list(""))
	wait(t, "the count at the end", counts(4))
	// A plugin that ends leaves none, and the kubelet remembers how many there were.
	stop()
	wait(t, "none without a plugin", func() bool { return k.Allocatable(thing) == 0 && k.Capacity(thing) == 4 })
}

// A new plugin takes over from an old one: pods get devices before, while both run, while the new one has nothing to
// say yet, after the old one has ended, and when it is the new one that ends.
func TestRollout(t *testing.T) {
	need(t)
	if !newest {
		t.Skip("a kubelet before 1.37 knows one plugin of a resource: a rollout without a dip is not to be had")
	}
	pods := NewPods()
	k := startKubelet(t, pods)
	defer k.Stop()
	old := startPlugin()
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 && old.right() })
	admitted := func(when string) {
		t.Helper()
		if n := k.Allocatable(thing); n != 2 {
			t.Errorf("%s %d devices are allocatable", when, n)
		}
		if err := k.Admit("pod", thing, 1); err != nil || len(granted(t, "pod")["main"]) != 1 {
			t.Errorf("%s: %v", when, err)
		}
		pods.End("pod")
	}
	if err := k.Admit("stays", thing, 1); err != nil {
		t.Fatal(err)
	}
	has := granted(t, "stays")
	next := &plugin{Plugin: newPlugin()}
	next.stop = runPlugin(next.Plugin)
	admitted("while the new one knows no device")
	next.Update(two())
	wait(t, "the new one", next.right)
	admitted("while both run")
	old.stop()
	for range 50 { // the kubelet may be told of the end at any moment
		admitted("after the old one")
		time.Sleep(10 * time.Millisecond)
	}
	mind := startPlugin()
	wait(t, "a third one", mind.right)
	admitted("with a third one")
	mind.stop()
	wait(t, "the one before", func() bool { return k.Allocatable(thing) == 2 && next.right() })
	admitted("after the third one")
	if now := granted(t, "stays"); !reflect.DeepEqual(now, has) {
		t.Errorf("a pod has %v after all of it, it had %v", now, has)
	}
	next.stop()
}

// An init container's device is used again by the next one; one that goes on beside the pod has its own.
func TestInitContainers(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer k.Stop()
	p := startPlugin()
	defer p.stop()
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 && p.right() })
	one := v1.ResourceRequirements{Limits: v1.ResourceList{thing: resource.MustParse("1")}}
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "test", UID: "pod"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{
				{Name: "first", Resources: one},
				{Name: "beside", Resources: one, RestartPolicy: &always},
			},
			Containers: []v1.Container{{Name: "main", Resources: one}},
		},
	}
	pods.set("pod", pod)
	devices := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if err := allocate(k.manager, pod, &c); err != nil {
			t.Fatal(err)
		}
		given, err := k.manager.GetDeviceRunContainerOptions(t.Context(), pod, &c)
		if err != nil || len(given.CDIDevices) != 1 {
			t.Fatalf("%s gets %+v: %v", c.Name, given, err)
		}
		devices[c.Name] = given.CDIDevices[0].Name
	}
	if devices["first"] != devices["beside"] || devices["beside"] == devices["main"] {
		t.Errorf("containers get %v", devices)
	}
	if has := granted(t, "pod"); len(has["beside"]) != 1 || len(has["main"]) != 1 {
		t.Errorf("the kubelet says %v", has)
	}
}

// A device is listed with its memory node, one that has none without, also after a restart of the kubelet.
func TestTopologyIsTold(t *testing.T) {
	need(t)
	k := startKubelet(t, NewPods())
	defer func() { k.Stop() }()
	p := newPlugin()
	p.Update([]accel.Accelerator{device("a", 1, accel.Healthy), device("b", -1, accel.Healthy)})
	defer runPlugin(p)()
	for _, when := range []string{"at first", "after a restart of the kubelet"} {
		wait(t, "2 devices "+when, func() bool { return k.Allocatable(thing) == 2 && p.State().Allocatable.Is(2) })
		list, err := resources(t).GetAllocatableResources(t.Context(), &podresourcesapi.AllocatableResourcesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[string][]int64{}
		for _, d := range list.GetDevices() {
			nodes[d.GetDeviceIds()[0]] = nil
			for _, n := range d.GetTopology().GetNodes() {
				nodes[d.GetDeviceIds()[0]] = append(nodes[d.GetDeviceIds()[0]], n.GetID())
			}
		}
		if want := map[string][]int64{"a": {1}, "b": nil}; !reflect.DeepEqual(nodes, want) {
			t.Errorf("%s: %v, want %v", when, nodes, want)
		}
		k.Stop()
		k = startKubelet(t, NewPods())
	}
}

// Others use up what the kubelet answers in a second: the plugin stays registered, and knows what it knew.
func TestOthersAskTooMuch(t *testing.T) {
	need(t)
	k := startKubelet(t, NewPods())
	defer k.Stop()
	p := startPlugin()
	defer p.stop()
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 && p.right() })
	if err := k.Admit("pod", thing, 1); err != nil {
		t.Fatal(err)
	}
	before, err := p.Holders(t.Context())
	if err != nil || len(before) != 1 {
		t.Fatalf("holders: %v %v", before, err)
	}
	client, limited, unanswered := resources(t), 0, 0
	for range 4 * podresources.DefaultQPS {
		if _, err := client.List(context.Background(), &podresourcesapi.ListPodResourcesRequest{}); err != nil {
			if err.Error() != apisgrpc.ErrorLimitExceeded.Error() {
				t.Fatal(err)
			}
			limited++
			held, err := p.Holders(t.Context())
			if !reflect.DeepEqual(held, before) {
				t.Fatalf("holders: %v, were %v", held, before)
			}
			if err != nil {
				unanswered++
			}
		}
		if s := p.State(); !s.Registered || s.Registrations != 1 || !s.Allocatable.Is(2) {
			t.Fatalf("%+v", s)
		}
	}
	t.Logf("%d calls limited, the plugin's own unanswered %d times", limited, unanswered)
	if limited == 0 || unanswered == 0 {
		t.Error("the limit was not met")
	}
	wait(t, "all well", p.right)
}
