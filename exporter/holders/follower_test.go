package holders

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/guard"
)

const (
	thing  = "example.com/thing"
	driver = "thing.example.com"
)

// node is the part of a node that a follower sees.
type node struct {
	mu       sync.Mutex
	asked    int
	fail     error
	hangs    bool
	active   bool
	life     uint64
	pods     []*podresources.PodResources
	prepared []Hold
	uids     map[string]string
	started  chan string // the kubelet wrote its checkpoint
	changed  chan string // the directory of pods changed
}

func newNode() *node {
	return &node{
		active: true, life: 1, uids: map[string]string{}, started: make(chan string),
		changed: make(chan string),
	}
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) questions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// gives makes a pod hold devices of an extended resource.
func (n *node) gives(pod string, ids ...string) {
	n.set(func() {
		n.pods = append(n.pods, &podresources.PodResources{
			Namespace: "ns", Name: pod,
			Containers: []*podresources.ContainerResources{
				{Name: "main", Devices: []*podresources.ContainerDevices{
					{ResourceName: thing, DeviceIds: ids},
					{ResourceName: "example.com/other", DeviceIds: []string{"x"}},
				}},
				{Name: "sidecar"},
			},
		})
		n.uids["ns/"+pod] = "uid-" + pod
	})
}

// ends removes all pods.
func (n *node) ends() { n.set(func() { n.pods = nil }) }

// follow runs a follower on the node in a bubble of the test.
func (n *node) follow(t *testing.T) *Follower {
	t.Helper()
	f := New(Options{
		Root:   func() string { return "/var/lib/kubelet" },
		Active: func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.active },
		Device: func(resource, id string) (string, bool) {
			id, _, _ = strings.Cut(id, "::")
			return id, resource == thing
		},
		Claimed: func(d, device string) (string, bool) { return strings.TrimPrefix(device, "dev-"), d == driver },
		Claims:  func() []Hold { n.mu.Lock(); defer n.mu.Unlock(); return n.prepared },
	})
	f.list = func(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
		n.mu.Lock()
		n.asked++
		hangs, fail, pods := n.hangs, n.fail, n.pods
		n.mu.Unlock()
		if len(pods) == 1 && pods[0].GetNamespace() == "panic" {
			panic("an answer that nobody thought of")
		}
		if hangs {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &podresources.ListPodResourcesResponse{PodResources: pods}, fail
	}
	f.identity = func() uint64 { n.mu.Lock(); defer n.mu.Unlock(); return n.life }
	f.uids = func() map[string]string { n.mu.Lock(); defer n.mu.Unlock(); return n.uids }
	f.streams = func(ctx context.Context) { <-ctx.Done() }
	f.watch = func(_ context.Context, names ...string) (<-chan string, error) {
		if names[0] == devicePlugins {
			return n.started, nil
		}
		return n.changed, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); guard.Keep(ctx, f.String(), f.Run) }()
	t.Cleanup(func() {
		cancel()
		<-done
		close(n.started)
		close(n.changed)
	})
	synctest.Wait()
	return f
}

// after waits and then compares who is shown to hold what.
func after(t *testing.T, f *Follower, d time.Duration, want ...string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if diff := cmp.Diff(want, lines(f.Holdings().By)); diff != "" {
		t.Errorf("after %v (-want +got):\n%s", d, diff)
	}
}

// TestFollow: a pod is shown soon after the kubelet has given it a device, and is gone soon after its deletion. On
// an idle node there are hardly any requests.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		f := n.follow(t)
		after(t, f, time.Hour+time.Minute) // not at the time of a request: the next one would wait
		if q := n.questions(); q > 13 {
			t.Errorf("%d questions in an idle hour", q)
		}
		n.gives("p", "a", "b::2")
		n.started <- "kubelet_internal_checkpoint"
		after(t, f, 200*time.Millisecond, "a ns/p/main uid-p", "b ns/p/main uid-p")
		before := n.questions()
		after(t, f, time.Hour, "a ns/p/main uid-p", "b ns/p/main uid-p")
		if q := n.questions() - before; q > 245 {
			t.Errorf("%d questions in an hour with a pod that holds something", q)
		}
		n.ends()
		n.changed <- "uid-p"
		after(t, f, 4*time.Second)
		n.gives("q", "a")
		n.started <- "kubelet_internal_checkpoint"
		after(t, f, 2*time.Second, "a ns/q/main uid-q")
		n.ends() // it has completed, which no event reports
		after(t, f, 20*time.Second)
	})
}

// TestFollowGently: endless events cause few requests, so that the kubelet's other clients get answers.
func TestFollowGently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.gives("p", "a")
		f := n.follow(t)
		after(t, f, time.Second, "a ns/p/main uid-p")
		before := n.questions()
		for range 1000 {
			n.changed <- "some pod"
			time.Sleep(10 * time.Millisecond)
		}
		if q := n.questions() - before; q > 11 {
			t.Errorf("%d questions in ten seconds of events", q)
		}
	})
}

// TestFollowSilence: whatever a kubelet does, the last good answer stays and says how old it is.
func TestFollowSilence(t *testing.T) {
	for name, trouble := range map[string]func(*node){
		"refuses":  func(n *node) { n.fail = errors.New("resource exhausted") },
		"hangs":    func(n *node) { n.hangs = true },
		"restarts": func(n *node) { n.life++; n.pods = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.gives("p", "a")
				f := n.follow(t)
				after(t, f, time.Second, "a ns/p/main uid-p")
				lastSeen := f.Holdings().Told
				pods := n.pods
				n.set(func() { trouble(n) })
				before := n.questions()
				if name == "restarts" {
					n.started <- "kubelet.sock"
					after(t, f, 25*time.Second, "a ns/p/main uid-p")
				} else {
					after(t, f, time.Hour, "a ns/p/main uid-p")
					if !f.Holdings().Told.Equal(lastSeen) {
						t.Error("an answer was shown that nobody gave")
					}
					if q := n.questions() - before; q > 160 {
						t.Errorf("%d questions in an hour of silence", q)
					}
				}
				n.set(func() { n.fail, n.hangs, n.pods = nil, false, pods })
				after(t, f, time.Minute, "a ns/p/main uid-p")
				if !f.Holdings().Told.After(lastSeen) {
					t.Error("the answer after the silence was not taken")
				}
			})
		})
	}
}

// TestFollowClaims: a pod with a device by a claim, as reported by the claim's record and by the kubelet.
func TestFollowClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		f := n.follow(t)
		n.set(func() {
			n.prepared = []Hold{{"a", exporter.Holder{
				Namespace: "ns", Pod: "p", UID: "from the claim",
				Resource: driver, Claim: "c",
			}}}
			device := &podresources.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: "dev-a"}
			other := &podresources.ClaimResource{DriverName: "other.example.com", DeviceName: "dev-b"}
			n.pods = []*podresources.PodResources{{
				Namespace: "ns", Name: "p",
				Containers: []*podresources.ContainerResources{
					{Name: "main", DynamicResources: []*podresources.DynamicResource{{
						ClaimName:      "c",
						ClaimNamespace: "ns", ClaimResources: []*podresources.ClaimResource{device, other},
					}}},
				},
			}}
		})
		f.Poke()
		after(t, f, time.Second, "a ns/p/main from the claim")
		if h := f.Holdings().By["a"][0]; h.Claim != "c" || h.Resource != driver {
			t.Errorf("%+v", h)
		}
		// Another pod of that name shares the claim, which is not prepared again for it.
		n.set(func() { n.uids["ns/p"] = "new" })
		f.Poke()
		after(t, f, 2*time.Second, "a ns/p/main new")
		n.set(func() { n.prepared, n.pods = nil, nil })
		f.Poke()
		after(t, f, 4*time.Second)
	})
}

// TestFollowNothing: on a node that offers nothing, nothing is asked, and what was known is forgotten.
func TestFollowNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.gives("p", "a")
		n.active = false
		f := n.follow(t)
		after(t, f, time.Hour)
		if q := n.questions(); q != 0 {
			t.Errorf("%d questions", q)
		}
		n.set(func() { n.active = true })
		f.Poke()
		after(t, f, time.Second, "a ns/p/main uid-p")
		n.set(func() { n.active = false })
		f.Poke()
		after(t, f, 2*time.Second)
	})
}

// TestFollowLateUID: a pod is not shown without its UID if that will be known soon.
func TestFollowLateUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		f := n.follow(t)
		n.gives("p", "a")
		n.set(func() { n.uids = nil })
		f.Poke()
		after(t, f, time.Second)
		n.set(func() { n.uids = map[string]string{"ns/p": "late"} })
		after(t, f, time.Second, "a ns/p/main late")
	})
}

// TestFollowStreamUID: the kubelet's stream knows the UID if the log directories are elsewhere.
func TestFollowStreamUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.gives("p", "a")
		n.set(func() { n.uids = nil })
		f := n.follow(t)
		after(t, f, time.Second)
		f.pods.begin()
		if _, err := f.pods.take(podEvent(t, podsapi.EventType_ADDED, "p", "told", corev1.PodRunning)); err != nil {
			t.Fatal(err)
		}
		after(t, f, time.Second, "a ns/p/main told")
	})
}

// TestFollowPanic: a panic in the midst of the task ends neither the watches nor the task, which knows the holders
// again when it is run again.
func TestFollowPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.gives("p", "a")
		f := n.follow(t)
		after(t, f, time.Second, "a ns/p/main uid-p")
		pods := n.pods
		n.set(func() { n.pods = []*podresources.PodResources{{Namespace: "panic"}} })
		n.started <- "kubelet_internal_checkpoint"
		after(t, f, 500*time.Millisecond, "a ns/p/main uid-p")
		n.set(func() { n.pods = pods })
		n.gives("q", "b")
		after(t, f, 5*time.Second, "a ns/p/main uid-p", "b ns/q/main uid-q")
	})
}
