package deviceplugin

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// rows is the list as the kubelet would get it: "id" or "id!" for an unhealthy device.
func rows(inv *inventory) []string {
	var rows []string
	for _, d := range inv.load().message.Devices {
		row := d.ID
		if d.Health != pluginapi.Healthy {
			row += "!"
		}
		rows = append(rows, row)
	}
	return rows
}

func TestTombstones(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const grace = 5 * time.Minute
	at := t0.Add
	held := map[string]PodRef{"b": {Namespace: "ns", Pod: "pod", Container: "main"}}
	inv := newInventory(&accel.Definition{})
	step := func(what string, f func(), want ...string) {
		t.Helper()
		f()
		if diff := cmp.Diff(want, rows(inv)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
	step("two devices", func() { inv.update(two(), t0) }, "a", "b")
	step("b vanished", func() { inv.update(two()[:1], t0) }, "a", "b!")
	step("nobody holds it, too early", func() { inv.sweep(nil, at(grace-1), grace) }, "a", "b!")
	step("a pod holds it", func() { inv.sweep(held, at(2*grace), grace) }, "a", "b!")
	leave := inv.enter()
	step("a call is in flight", func() { inv.sweep(nil, at(2*grace), grace) }, "a", "b!")
	leave()
	step("dropped", func() { inv.sweep(nil, at(2*grace), grace) }, "a")
	step("it comes back", func() { inv.update(two(), at(3*grace)) }, "a", "b")

	gone := []accel.Accelerator{two()[0], thing("b", 1, accel.Gone)}
	step("the agent names it as gone", func() { inv.update(gone, at(4*grace)) }, "a", "b!")
	step("again: the first time counts", func() {
		inv.update(gone, at(5*grace))
		inv.sweep(nil, at(5*grace), grace)
	}, "a")
	step("a dropped one does not return as gone", func() { inv.update(gone, at(6*grace)) }, "a")
	step("it returns healthy", func() { inv.update(two(), at(7*grace)) }, "a", "b")
	step("gone again", func() { inv.update(gone, at(8*grace)) }, "a", "b!")

	step("held and never named: it vanished while no agent ran", func() {
		inv.adopt(heldRefs{now: map[string]PodRef{"a": {}, "c": {}}}, at(8*grace))
	}, "a", "b!", "c!")
	step("an update keeps it", func() { inv.update(two(), at(8*grace)) }, "a", "b", "c!")
	step("all gone", func() { inv.update(nil, at(8*grace)) }, "a!", "b!", "c!")
}

func TestRevision(t *testing.T) {
	now := time.Now()
	inv := newInventory(&accel.Definition{})
	inv.update(two(), now)
	l := inv.load()
	inv.update(two(), now.Add(time.Minute))
	if inv.load() != l {
		t.Error("the same devices made a new list")
	}
	other := two()
	other[0].Nodes = []accel.DeviceNode{{Path: "/dev/a"}}
	inv.update(other, now)
	if got := inv.load(); got == l || got.revision != l.revision {
		t.Error("a change that the kubelet does not see must make a new list of the same revision")
	}
	if _, open := <-l.replaced; open {
		t.Error("the old list is not marked as replaced")
	}
	sick := two()
	sick[0].Health.State = ""
	inv.update(sick, now)
	if got := inv.load(); got.revision != l.revision+1 || len(got.healthy) != 1 {
		t.Errorf("revision %d with %v healthy: health that is not known must count as unhealthy", got.revision,
			got.healthy)
	}
}

// The tombstone of a held device reaches the kubelet over a restart of the plugin.
func TestTombstoneOverRestart(t *testing.T) {
	k := newFakeKubelet(t)
	k.held = map[string]PodRef{"b": {Namespace: "ns", Pod: "pod", Container: "main"}}
	k.start()
	defer k.stop()
	p := newPlugin(k, nil)
	p.timing.grace = 0
	p.Update(two()[:1])
	run(t, p)
	eventually(t, "b is unhealthy", func() bool { return cmp.Equal(k.health(), []string{"a", "b!"}) })
	k.set(func() { k.held = nil })
	eventually(t, "b is dropped when its pod ended", func() bool { return cmp.Equal(k.health(), []string{"a"}) })
	eventually(t, "settled", settled(p, 1, 1))
}

func TestSameListIsNotSentAgain(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	for range 100 {
		p.Update(two())
	}
	p.Update(two()[:1])
	eventually(t, "the change arrives", settled(p, 1, 1))
	k.set(func() {
		if k.messages != 2 {
			t.Errorf("%d lists sent, want 2", k.messages)
		}
	})
}

// Updates, calls of the kubelet and its restarts all at once, for the race detector. The last update must arrive.
func TestStorm(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer func() { k.stop() }()
	p := newPlugin(k, nil)
	p.timing.grace = 0
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	client := k.plugin()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				switch {
				case w < 2:
					p.Update([]accel.Accelerator{
						thing("a", i%2, accel.Healthy),
						thing(fmt.Sprint("x", i%3), -1, accel.Unhealthy),
					})
				case w == 2:
					resp, err := client.Allocate(context.Background(), request("a"))
					if err == nil && resp.ContainerResponses[0].CdiDevices[0].Name != testResource+"=a" {
						t.Errorf("answer %v", resp)
					}
				default:
					p.State()
					p.Problem()
				}
			}
		})
	}
	for range 5 {
		k.cut()
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
	p.Update(two())
	eventually(t, "the last list is counted", func() bool { return p.State().Allocatable.Is(2) && p.Problem() == nil })
	k.set(func() {
		if k.duplicate {
			t.Error("a registration came while a stream was open")
		}
	})
}

func request(ids ...string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}}
}
