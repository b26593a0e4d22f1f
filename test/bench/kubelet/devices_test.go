package kubelet

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const peerResource = "bench.example/edu"

// patience is how long anything may take that is waited for.
const patience = time.Minute

// TestBesideGenericPlugin has the calls that a kubelet makes to a device plugin, and how soon it hears of a device that
// is pulled or put in. Both plugins serve the same devices.
func TestBesideGenericPlugin(t *testing.T) {
	need(t)
	file := peer(t, pluginPeer)
	for _, n := range []int{8, 64} {
		t.Run(fmt.Sprintf("%d devices", n), func(t *testing.T) {
			m := newMachine(t, n)
			k := newKubelet(t, m)
			ours, theirs := m.agent(""), m.genericPlugin(file)
			k.await(resource, n, patience)
			if theirs != nil {
				k.await(peerResource, n, patience)
			}
			b := newTable("acceld", "generic-device-plugin")
			for _, callers := range []int{1, callers} {
				allocate(t, k, b, callers, ours, theirs)
			}
			preferred(t, k, b, ours, n)
			bystander(t, m, b, ours, theirs)
			hotplug(t, m, k, b, theirs != nil)
			attribute(t, m, k, b)
			memory(t, b, ours, theirs)
			t.Log(b.String())
		})
	}
}

// genericPlugin starts the peer for the nodes of the machine; nil without one.
func (m *machine) genericPlugin(file string) *program {
	m.t.Helper()
	if file == "" {
		return nil
	}
	return start(m.t, "generic-device-plugin", exec.Command(file,
		"--plugin-directory="+m.path("var/lib/kubelet/device-plugins"), "--listen="+freePort(m.t),
		"--domain=bench.example",
		fmt.Sprintf(`--device={"name": "edu", "groups": [{"paths": [{"path": %q}]}]}`, m.path("dev/edu*"))))
}

// freePort returns an address on loopback that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().String()
}

// allocate asks for one device per call, each in turn.
func allocate(t *testing.T, k *kubelet, b *table, callers int, ours, theirs *program) {
	t.Helper()
	caller := func(by *program, resource string,
		right func(id string, c *pluginapi.ContainerAllocateResponse) bool,
	) *contestant {
		client, ids := k.client(resource), k.healthy(resource)
		return &contestant{name: by.name, by: by, do: func(i int) error {
			id := ids[i%len(ids)]
			resp, err := client.Allocate(t.Context(), &pluginapi.AllocateRequest{
				ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{id}}},
			})
			if err != nil {
				return err
			}
			if c := resp.GetContainerResponses(); len(c) != 1 || !right(id, c[0]) {
				return fmt.Errorf("for %s it answers %v", id, resp)
			}
			return nil
		}}
	}
	all := []*contestant{caller(ours, resource, func(id string, c *pluginapi.ContainerAllocateResponse) bool {
		return len(c.GetCdiDevices()) == 1 && c.GetCdiDevices()[0].GetName() == resource+"="+id
	})}
	var peer *figures
	if theirs != nil {
		c := caller(theirs, peerResource, func(_ string, c *pluginapi.ContainerAllocateResponse) bool {
			return len(c.GetDevices()) == 1 && strings.Contains(c.GetDevices()[0].GetHostPath(), "/dev/edu")
		})
		all, peer = append(all, c), &c.figures
	}
	n, calls := rounds()
	contest(t, n, calls, callers, all)
	b.calls(fmt.Sprintf("Allocate, %d at a time", callers), &all[0].figures, peer)
}

// preferred asks which half of the devices to take, all of them free. The peer has no preference, and says so in its
// options: a kubelet does not ask it.
func preferred(t *testing.T, k *kubelet, b *table, ours *program, devices int) {
	t.Helper()
	client, ids := k.client(resource), k.healthy(resource)
	for _, size := range []int{2, devices / 2} {
		c := &contestant{name: ours.name, by: ours, do: func(int) error {
			resp, err := client.GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
				ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
					AvailableDeviceIDs: ids,
					AllocationSize:     int32(size),
				}},
			})
			if err != nil {
				return err
			}
			if c := resp.GetContainerResponses(); len(c) != 1 || !subset(c[0].GetDeviceIDs(), ids, size) {
				return fmt.Errorf("it answers %v", resp)
			}
			return nil
		}}
		n, calls := rounds()
		contest(t, n, calls, callers, []*contestant{c})
		b.calls(fmt.Sprintf("GetPreferredAllocation, %d of %d, %d at a time", size, devices, callers), &c.figures, nil)
	}
}

// subset reports whether some are n of all, each once.
func subset(some, all []string, n int) bool {
	some = slices.Compact(slices.Sorted(slices.Values(some)))
	return len(some) == n && !slices.ContainsFunc(some, func(id string) bool { return !slices.Contains(all, id) })
}

// bystander is what pods cost that have no device: the kubelet keeps its books with each, in files of its own.
func bystander(t *testing.T, m *machine, b *table, ours, theirs *program) {
	t.Helper()
	pods := 200
	if testing.Short() {
		pods = 20
	}
	before := [2]time.Duration{ours.processor(t), theirs.processor(t)}
	for range pods {
		for _, name := range []string{"allocated_pods_state", "actuated_pods_state"} {
			temp := m.path("var/lib/kubelet", "."+name+"1") // as the kubelet's checkpointmanager does
			check(t, os.WriteFile(temp, []byte("{}"), 0o600))
			check(t, os.Rename(temp, m.path("var/lib/kubelet", name)))
		}
		time.Sleep(20 * time.Millisecond)
	}
	each := func(p *program, before time.Duration) float64 { return ms(p.processor(t)-before) / float64(pods) }
	b.row(fmt.Sprintf("a pod without a device, processor for one of %d, ms", pods), each(ours, before[0]),
		each(theirs, before[1]))
}

// hotplug pulls devices one after another and puts them in again, each at another moment of the peer's period. The peer
// looks every 5 s (deviceCheckInterval, deviceplugin/generic.go); it takes the device from its list, where the agent
// says that it is unhealthy.
func hotplug(t *testing.T, m *machine, k *kubelet, b *table, beside bool) {
	t.Helper()
	times := 8
	if testing.Short() {
		times = 1
	}
	var gone, back [2][]time.Duration
	heard := func(into *[2][]time.Duration, n int, do func()) {
		begin := time.Now()
		do()
		into[0] = append(into[0], k.await(resource, n, patience).Sub(begin))
		if beside {
			into[1] = append(into[1], k.await(peerResource, n, patience).Sub(begin))
		}
	}
	for i := range times {
		heard(&gone, m.n-1, func() { m.pull(i) })
		heard(&back, m.n, func() { m.plug(i) })
		time.Sleep(calm + time.Duration(i)*5*time.Second/time.Duration(times)) // another moment of the peer's period
	}
	b.events("a device is pulled, to ListAndWatch", gone[0], gone[1])
	b.events("it is put in again, to ListAndWatch", back[0], back[1])
}

// calm is longer than the agent waits before it has devices compute again (calm in agent/loop/steps.go), which they do
// when they come back.
const calm = 1500 * time.Millisecond

// attribute makes a device ill and well again in what its driver says of it. The peer knows no health.
func attribute(t *testing.T, m *machine, k *kubelet, b *table) {
	t.Helper()
	times := 20
	if testing.Short() {
		times = 1
	}
	var ill, well []time.Duration
	for i := range times {
		for _, to := range []struct {
			word string
			n    int
			into *[]time.Duration
		}{{"overheated", m.n - 1, &ill}, {"ok", m.n, &well}} {
			begin := time.Now()
			// Another device each time: one that is ill five times in ten minutes is unstable.
			check(t, os.WriteFile(m.path(m.dir(m.n-1-i%m.n), "health"), []byte(to.word+"\n"), 0o644))
			m.nudge()
			*to.into = append(*to.into, k.await(resource, to.n, patience).Sub(begin))
		}
		time.Sleep(calm)
	}
	b.events("an attribute says ill, to ListAndWatch", ill, nil)
	b.events("it says well, to ListAndWatch", well, nil)
}

// memory is that of the processes after all of it. The agent is more than a device plugin.
func memory(t *testing.T, b *table, ours, theirs *program) {
	t.Helper()
	var peer, peerMost float64
	now, most := ours.memory(t)
	if theirs != nil {
		peer, peerMost = theirs.memory(t)
	}
	b.row("resident memory afterwards, MiB", now, peer)
	b.row("resident memory at most, MiB", most, peerMost)
}
