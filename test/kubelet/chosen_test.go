package kubelet

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
)

// booked is what the API server says of the pods of the node: which devices the scheduler's extender chose, in its
// order.
type booked struct {
	mu      sync.Mutex
	all     []deviceplugin.Bound
	changed chan struct{}
}

func newBooked() *booked { return &booked{changed: make(chan struct{})} }

// bind adds a pod with cards; without any nobody chose.
func (b *booked) bind(pod string, cards ...string) {
	b.edit(func() {
		b.all = append(b.all, deviceplugin.Bound{
			PodRef: deviceplugin.PodRef{Namespace: "test", Pod: pod, Container: "main"}, UID: pod,
			Count: max(1, len(cards)), Cards: cards,
		})
	})
}

// take is the kubelet's first status of a pod.
func (b *booked) take(pod string) {
	b.edit(func() {
		for i := range b.all {
			b.all[i].Taken = b.all[i].Taken || b.all[i].Pod == pod
		}
	})
}

func (b *booked) end(pod string) {
	b.edit(func() { b.all = slices.DeleteFunc(b.all, func(x deviceplugin.Bound) bool { return x.Pod == pod }) })
}

func (b *booked) edit(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.Clone(b.all)
	change()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *booked) bound(string) ([]deviceplugin.Bound, <-chan struct{}, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all, b.changed, true
}

// holding are the devices that a pod has. The kubelet answers so many questions a second, and the plugin asks too.
func holding(t *testing.T, pod string) (ids []string) {
	t.Helper()
	client := resources(t)
	wait(t, "an answer about "+pod, func() bool {
		ids = nil
		list, err := client.List(t.Context(), &podresourcesapi.ListPodResourcesRequest{})
		for _, p := range list.GetPodResources() {
			for _, c := range p.GetContainers() {
				for _, d := range c.GetDevices() {
					if p.GetName() == pod {
						ids = append(ids, d.GetDeviceIds()...)
					}
				}
			}
		}
		return err == nil
	})
	return ids
}

// TestChosenDevices: pods have the devices that were chosen for them and not those that the kubelet would give them,
// over restarts of the kubelet and of the plugin; what cannot be had is refused with the reason.
func TestChosenDevices(t *testing.T) {
	need(t)
	pods, book := NewPods(), newBooked()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	choose := func(c *deviceplugin.Config) { c.Bound = book.bound }
	start := func() *plugin {
		p := &plugin{Plugin: newPlugin(choose)}
		p.Update(two())
		p.stop = runPlugin(p.Plugin)
		return p
	}
	p := start()
	defer func() { p.stop() }()
	whole := func() bool { return k.Allocatable(thing) == 2 && p.right() }
	wait(t, "2 devices", whole)
	admit := func(pod, want string) {
		t.Helper()
		err := k.Admit(pod, thing, 1)
		if has := holding(t, pod); err != nil || !reflect.DeepEqual(has, []string{want}) {
			t.Errorf("%s has %v, want %s: %v", pod, has, want, err)
		}
		book.take(pod)
	}
	over := func(names ...string) {
		for _, pod := range names {
			pods.End(pod)
			book.end(pod)
		}
	}
	for _, first := range []string{"a", "b"} { // one of them is not what the kubelet takes by itself
		second := map[string]string{"a": "b", "b": "a"}[first]
		one, two := "one-"+first, "two-"+first
		book.bind(one, first)
		admit(one, first)
		book.bind(two, second)
		admit(two, second)
		over(one, two)
	}
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"kubelet", func() { k.Stop(); k = startKubelet(t, pods) }},
		{"plugin", func() { p.stop(); p = start() }},
		{"both", func() { p.stop(); k.Stop(); k = startKubelet(t, pods); p = start() }},
	} {
		stays, late := "stays-"+c.name, "late-"+c.name
		book.bind(stays, "b")
		admit(stays, "b")
		c.do()
		wait(t, "2 devices after a restart of "+c.name, whole)
		if has := holding(t, stays); !reflect.DeepEqual(has, []string{"b"}) {
			t.Errorf("after a restart of %s: %v", c.name, has)
		}
		over(stays)
		// Bound while it was away: the plugin hears of it with the kubelet.
		book.bind(late, "b")
		admit(late, "b")
		over(late)
	}
	// A pod for which nobody chose has the device that was chosen for another one.
	book.bind("free")
	if err := k.Admit("free", thing, 1); err != nil {
		t.Fatal(err)
	}
	has := holding(t, "free")[0]
	book.take("free")
	book.bind("refused", has)
	if err := k.Admit("refused", thing, 1); err == nil || !strings.Contains(err.Error(), "the scheduler chose "+has) {
		t.Errorf("a pod whose device somebody has: %v", err)
	}
	if got := holding(t, "refused"); len(got) > 0 {
		t.Errorf("the refused pod has %v", got)
	}
	over("refused")
	book.bind("again", map[string]string{"a": "b", "b": "a"}[has])
	admit("again", map[string]string{"a": "b", "b": "a"}[has])
}

// TestChosenTogether: two pods of one choice at the same time, on shared devices.
func TestChosenTogether(t *testing.T) {
	need(t)
	pods, book := NewPods(), newBooked()
	k := startKubelet(t, pods)
	defer k.Stop()
	p := &plugin{Plugin: newPlugin(func(c *deviceplugin.Config) {
		def := *c.Definition
		def.Sharing = &accel.Sharing{Replicas: 3}
		c.Definition, c.Bound = &def, book.bound
	})}
	p.Update(two())
	p.stop = runPlugin(p.Plugin)
	defer p.stop()
	wait(t, "6 replicas", func() bool { return k.Allocatable(thing) == 6 && p.right() })
	names := []string{"one", "two", "three"}
	for _, pod := range names {
		book.bind(pod, "b")
	}
	slices.Reverse(names) // the kubelet's order is its own
	for _, pod := range names {
		err := k.Admit(pod, thing, 1)
		if has := holding(t, pod); err != nil || len(has) != 1 || deviceplugin.DeviceOf(has[0]) != "b" {
			t.Errorf("%s has %v: %v", pod, has, err)
		}
	}
}
