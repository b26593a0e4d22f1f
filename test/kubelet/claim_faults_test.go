package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
)

// untouched is false as soon as something is kept for the claim of a name.
func (n *claimNode) untouched(p *dra.Plugin, name string) bool {
	n.t.Helper()
	held, known := p.Held()
	_, err := os.Stat("/var/run/cdi/acceld-claim-" + driver + "-uid-of-" + name + ".json")
	return known && len(held) == 0 && os.IsNotExist(err)
}

// restart is another kubelet. The plugins that run have seen the end of the one before.
func (n *claimNode) restart(k *Claims, running ...*dra.Plugin) *Claims {
	n.t.Helper()
	k.Stop()
	wait(n.t, "the kubelet to be gone", func() bool {
		return !slices.ContainsFunc(running, func(p *dra.Plugin) bool { return p.State().Registered })
	})
	return n.kubelet()
}

// A claim that cannot be prepared, because the API server refuses or hangs, is prepared when the kubelet asks again:
// this kubelet, or the next one.
func TestPrepareIsTriedAgain(t *testing.T) {
	long(t, "the kubelet gives a call its time")
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer func() { stop() }()
	wait(t, "two devices in slices", n.offered(p))
	for name, fault := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return errors.New("connection refused") },
		"hanging": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kubelet restarts %t", name, restarts), func(t *testing.T) {
				pod := n.claim(name+fmt.Sprint(restarts), "0000-01-00-0")
				n.server.failClaims(fault)
				began := time.Now()
				if names, err := k.Prepare(t.Context(), pod); err == nil ||
					!strings.Contains(err.Error(), string(accel.APIUnreachable)) {
					t.Errorf("prepared without an API server: %v %v", names, err)
				}
				t.Logf("the kubelet was answered after %s", time.Since(began).Round(time.Millisecond))
				if !n.untouched(p, pod.Name) {
					t.Error("something of the claim is kept")
				}
				if restarts {
					k = n.restart(k, p)
				}
				n.server.failClaims(nil)
				wait(t, "two devices in slices", n.offered(p))
				if names, err := k.Prepare(t.Context(), pod); err != nil || len(names) != 1 {
					t.Errorf("prepared again: %v %v", names, err)
				}
				if err := k.Unprepare(t.Context(), pod); err != nil || !n.untouched(p, pod.Name) {
					t.Errorf("taken back: %v", err)
				}
				n.pods.End(pod.Name)
			})
		}
	}
}

// The kubelet restarts while a claim is being prepared: the next one is answered, and what the first one asked for is
// neither lost nor given twice.
func TestKubeletRestartsDuringPrepare(t *testing.T) {
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer stop()
	wait(t, "two devices in slices", n.offered(p))
	pod := n.claim("slow", "0000-01-00-0")
	asked, answer := make(chan struct{}, 8), make(chan struct{})
	n.server.failClaims(func(context.Context) error {
		asked <- struct{}{}
		<-answer
		return errors.New("connection refused")
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func(k *Claims) {
		_, err := k.Prepare(ctx, pod)
		over <- err
	}(k)
	<-asked
	cancel() // with the kubelet its calls end
	if err := <-over; err == nil {
		t.Error("prepared without an answer of the API server")
	}
	k = n.restart(k, p)
	wait(t, "two devices in slices", n.offered(p))
	n.server.failClaims(nil)
	close(answer)
	names, err := k.Prepare(t.Context(), pod)
	if held, _ := p.Held(); err != nil || len(names) != 1 || len(held) != 1 {
		t.Errorf("prepared: %v, held: %v: %v", names, held, err)
	}
	if err := k.Unprepare(t.Context(), pod); err != nil || !n.untouched(p, pod.Name) {
		t.Errorf("taken back: %v", err)
	}
}

// A claim that cannot be taken back, because the plugin is away, is taken back when it is there again: by this kubelet,
// or by the next one.
func TestUnprepareIsTriedAgain(t *testing.T) {
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer func() { stop() }()
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("kubelet restarts %t", restarts), func(t *testing.T) {
			wait(t, "two devices in slices", n.offered(p))
			pod := n.claim(fmt.Sprint("late-", restarts), "0000-01-00-0")
			if _, err := k.Prepare(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			stop()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := k.Unprepare(ctx, pod); err == nil {
				t.Error("taken back without a plugin")
			}
			if restarts {
				k = n.restart(k)
			}
			p, stop = n.plugin()
			wait(t, "two devices in slices", n.offered(p))
			if held, _ := p.Held(); len(held) != 1 {
				t.Errorf("held: %v", held)
			}
			if err := k.Unprepare(t.Context(), pod); err != nil || !n.untouched(p, pod.Name) {
				t.Errorf("taken back: %v", err)
			}
			n.pods.End(pod.Name)
		})
	}
}

// A pod is deleted while no kubelet runs: the next kubelet finds that out by itself, within its minute.
func TestClaimOfADeletedPod(t *testing.T) {
	long(t, "the kubelet looks for it once a minute")
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer stop()
	wait(t, "two devices in slices", n.offered(p))
	pod := n.claim("deleted", "0000-01-00-0")
	if _, err := k.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	k.Stop()
	n.pods.End(pod.Name)
	wait(t, "the kubelet to be gone", func() bool { return !p.State().Registered })
	k = n.kubelet()
	wait(t, "two devices in slices", n.offered(p))
	within(t, 90*time.Second, "the claim to be taken back", func() bool { return n.untouched(p, pod.Name) })
}

// A plugin that comes back at once finds its slices as they were. One that does not come back has none, and the health
// of its devices is unknown, until it does.
func TestPluginIsAway(t *testing.T) {
	long(t, "the kubelet waits 30 s")
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer func() { stop() }()
	wait(t, "two devices in slices", n.offered(p))
	pod := n.claim("one", "0000-01-00-0")
	if _, err := k.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	health := func(want string) func() bool {
		return func() bool { return slices.Equal(k.Health(pod), []string{want}) }
	}
	wait(t, "a healthy device", health("Healthy"))
	published := func() []resourceapi.ResourceSlice {
		list, err := n.server.slices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	before, wipes := published(), n.server.wipes.Load()

	stop()
	time.Sleep(5 * time.Second)
	p, stop = n.plugin()
	wait(t, "two devices in slices", n.offered(p))
	// the kubelet deletes slices when a plugin was away for 30 s (pkg/kubelet/cm/dra, defaultWipingDelay)
	time.Sleep(32 * time.Second)
	if now := published(); n.server.wipes.Load() != wipes || !reflect.DeepEqual(now, before) {
		t.Errorf("after a quick restart the slices are %+v, they were %+v", now, before)
	}

	stop()
	within(t, time.Minute, "the kubelet to delete the slices", func() bool { return len(published()) == 0 })
	within(t, time.Minute, "unknown health", health("Unknown"))
	p, stop = n.plugin()
	wait(t, "two devices in slices again", n.offered(p))
	wait(t, "a healthy device again", health("Healthy"))
	second := n.claim("two", "0000-02-00-0")
	if _, err := k.Prepare(t.Context(), second); err != nil {
		t.Error(err)
	}
	sick := things()
	sick[1].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "parity error"}
	p.Update(sick)
	wait(t, "the sick one", func() bool {
		return slices.Equal(k.Health(second), []string{"Unhealthy: parity error"}) && health("Healthy")()
	})
}

// within is wait with a patience of its own.
func within(t *testing.T, d time.Duration, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > d {
			t.Fatalf("it did not happen in %s: %s", d, what)
		}
	}
}

// One claim with devices of two kinds: each plugin prepares its part, and one that cannot does so later, also for
// another kubelet.
func TestClaimOfTwoKinds(t *testing.T) {
	const other = "example-other.acceld.dev"
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer func() { stop() }()
	q, halt := n.kind("example-other")
	defer func() { halt() }()
	right := func() bool {
		return p.State().Registered && q.State().Registered && p.State().Allocatable.Is(2) &&
			q.State().Allocatable.Is(2)
	}
	wait(t, "both kinds", right)
	pod := n.claimOf("both",
		resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: ownNode, Device: "0000-01-00-0"},
		resourceapi.DeviceRequestAllocationResult{Request: "s", Driver: other, Pool: ownNode, Device: "0000-02-00-0"})
	want := []string{other + "/claim=uid-of-both-0000-02-00-0", driver + "/claim=uid-of-both-0000-01-00-0"}
	prepared := func(when string) {
		t.Helper()
		names, err := k.Prepare(t.Context(), pod)
		slices.Sort(names)
		if err != nil || !slices.Equal(names, want) {
			t.Fatalf("%s: %v %v", when, names, err)
		}
	}
	back := func(when string) {
		t.Helper()
		err := k.Unprepare(t.Context(), pod)
		one, _ := p.Held()
		two, _ := q.Held()
		if err != nil || len(one)+len(two) > 0 {
			t.Fatalf("%s: held %v %v: %v", when, one, two, err)
		}
	}
	prepared("at first")
	back("at first")

	sick := things()
	sick[1].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "parity error"}
	for _, restarts := range []bool{false, true} {
		q.Update(sick)
		if names, err := k.Prepare(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "parity error") {
			t.Errorf("prepared with a sick device: %v %v", names, err)
		}
		if restarts {
			k = n.restart(k, p, q)
		}
		q.Update(things())
		wait(t, "both kinds again", right)
		prepared(fmt.Sprintf("well again, kubelet restarted %t", restarts))
		halt()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := k.Unprepare(ctx, pod); err == nil {
			t.Error("taken back by a plugin that is away")
		}
		cancel()
		if restarts {
			k = n.restart(k, p)
		}
		q, halt = n.kind("example-other")
		wait(t, "both kinds again", right)
		back(fmt.Sprintf("there again, kubelet restarted %t", restarts))
	}
}

// Two parts of one device: in one claim, and each in a claim of its own. The health of the device is that of its parts.
func TestClaimsOfParts(t *testing.T) {
	n := newClaimNode(t)
	k := n.kubelet()
	defer k.Stop()
	p, stop := n.plugin()
	defer stop()
	wait(t, "two devices in slices", n.offered(p))
	part := func(request, share string) resourceapi.DeviceRequestAllocationResult {
		id := types.UID(share)
		return resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: driver, Pool: ownNode,
			Device: "0000-01-00-0", ShareID: &id,
		}
	}
	both := n.claimOf("both", part("r", "s-1"), part("r", "s-2"))
	more := n.claimOf("more", part("r", "s-3"))
	for pod, parts := range map[*v1.Pod]int{both: 2, more: 1} {
		if names, err := k.Prepare(t.Context(), pod); err != nil || len(names) != parts {
			t.Errorf("%s: %v %v", pod.Name, names, err)
		}
	}
	says := func(pod *v1.Pod, want string) bool {
		health := k.Health(pod)
		return len(health) > 0 && !slices.ContainsFunc(health, func(s string) bool { return s != want })
	}
	wait(t, "healthy parts", func() bool { return says(both, "Healthy") && says(more, "Healthy") })
	sick := things()
	sick[0].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "parity error"}
	p.Update(sick)
	wait(t, "sick parts", func() bool {
		return says(both, "Unhealthy: parity error") && says(more, "Unhealthy: parity error")
	})
	p.Update(things())
	wait(t, "healthy parts again", func() bool { return says(both, "Healthy") && says(more, "Healthy") })
	for _, pod := range []*v1.Pod{both, more} {
		if err := k.Unprepare(t.Context(), pod); err != nil {
			t.Errorf("%s: %v", pod.Name, err)
		}
	}
	if held, _ := p.Held(); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
}

// Pods start all at once while the health of their devices changes.
func TestClaimsAtOnce(t *testing.T) {
	n := newClaimNode(t)
	k := n.kubelet()
	defer k.Stop()
	p, stop := n.plugin()
	defer stop()
	wait(t, "two devices in slices", n.offered(p))
	var list []accel.Accelerator
	var pods []*v1.Pod
	for i := range 8 {
		list = append(list, device(fmt.Sprintf("0000:0%d:00.0", i+1), 0, accel.Healthy))
		pods = append(pods, n.claim(fmt.Sprint("pod-", i), fmt.Sprintf("0000-0%d-00-0", i+1)))
	}
	p.Update(list)
	var wg sync.WaitGroup
	for _, pod := range pods {
		wg.Go(func() {
			if names, err := k.Prepare(t.Context(), pod); err != nil || len(names) != 1 {
				t.Errorf("%s: %v %v", pod.Name, names, err)
			}
		})
	}
	for i := range 20 {
		now := slices.Clone(list)
		now[7].Health.Message = fmt.Sprint("look ", i)
		p.Update(now)
	}
	wg.Wait()
	all := func(want string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
				return !slices.Equal(k.Health(pod), []string{want})
			})
		}
	}
	p.Update(list)
	wait(t, "eight healthy devices", all("Healthy"))
	for i := range list {
		list[i].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "parity error"}
	}
	p.Update(list)
	wait(t, "eight sick devices", all("Unhealthy: parity error"))
	for _, pod := range pods {
		wg.Go(func() {
			if err := k.Unprepare(t.Context(), pod); err != nil {
				t.Errorf("%s: %v", pod.Name, err)
			}
		})
	}
	wg.Wait()
	if held, _ := p.Held(); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
}
