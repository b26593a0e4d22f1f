package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

const (
	ownNode = "node-a"
	driver  = "example-thing.acceld.dev"
)

// claimNode is a node on which kubelets and plugins come and go.
type claimNode struct {
	t      *testing.T
	server *apiServer
	pods   *Pods
	state  string
}

func newClaimNode(t *testing.T) *claimNode {
	need(t)
	for _, dir := range []string{Registry, "/var/lib/kubelet/plugins", "/var/run/cdi"} {
		os.RemoveAll(filepath.Join(dir, driver))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(filepath.Join(claimsDir, "dra_manager_state"))
	return &claimNode{
		t: t, pods: NewPods(), state: "/var/lib/acceld-" + strings.ToLower(t.Name()),
		server: newAPIServer(t, ownNode),
	}
}

func (n *claimNode) kubelet() *Claims {
	n.t.Helper()
	k, err := StartClaims(n.pods, n.server.client, ownNode)
	if err != nil {
		n.t.Fatal(err)
	}
	return k
}

// plugin starts a plugin with two devices.
func (n *claimNode) plugin() (*dra.Plugin, func()) {
	n.t.Helper()
	return n.kind("example-thing")
}

// kind starts the plugin of a kind with two devices.
func (n *claimNode) kind(kind string, change ...func(*accel.Definition)) (*dra.Plugin, func()) {
	n.t.Helper()
	h, err := host.New("/")
	if err != nil {
		n.t.Fatal(err)
	}
	state := n.state + "/" + kind
	l, err := ledger.Open(h, state, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	cfg := dra.Config{
		Definition: &accel.Definition{Kind: kind, Resource: "example.com/" + kind, Capacity: []accel.Capacity{
			{Name: "memory", Value: "8Gi", Share: &accel.Share{Default: "1Gi", Min: "1Gi", Max: "8Gi", Step: "512Mi"}},
			{Name: "engines", Value: "2"},
		}},
		Node: ownNode, Host: h, Ledger: l, StateDir: state, API: n.server,
		Machine: func() accel.Machine {
			return accel.Machine{Facts: accel.Facts{PCI: []accel.PCIDevice{{
				Address: "0000:01:00.0", Vendor: "f00d",
				Device: "0001", DeviceName: strings.Repeat("long ", 30),
				Link: accel.Link{MaxSpeedGTs: 16, MaxWidth: 16},
			}}}}
		},
		Edits: func(_ *accel.Definition, a accel.Accelerator) (shared, own specs.ContainerEdits,
			problem *accel.Problem,
		) {
			return shared, specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/null"}}}, nil
		},
	}
	for _, f := range change {
		f(cfg.Definition)
	}
	if *verbose {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	p := dra.New(cfg)
	p.Update(things())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.t.Errorf("Run: %v", err)
		}
	})
	return p, func() { cancel(); wg.Wait() }
}

func things() []accel.Accelerator {
	return []accel.Accelerator{device("0000:01:00.0", 0, accel.Healthy), device("0000:02:00.0", -1, accel.Healthy)}
}

// claim makes a claim of one device and a pod that has it.
func (n *claimNode) claim(name, device string) *v1.Pod {
	n.t.Helper()
	return n.claimOf(name, resourceapi.DeviceRequestAllocationResult{
		Request: "r", Driver: driver, Pool: ownNode,
		Device: device,
	})
}

// claimOf makes a claim that has its devices and a pod that has the claim.
func (n *claimNode) claimOf(name string, devices ...resourceapi.DeviceRequestAllocationResult) *v1.Pod {
	n.t.Helper()
	uid := types.UID("uid-of-" + name)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "test", UID: types.UID("pod-" + name)},
		Spec: v1.PodSpec{
			ResourceClaims: []v1.PodResourceClaim{{Name: "thing", ResourceClaimName: &name}},
			Containers: []v1.Container{{
				Name:      "main",
				Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "thing"}}},
			}},
		},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}},
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "test", UID: uid}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	c.Status.Allocation.Devices.Results = devices
	if _, err := n.server.client.ResourceV1().ResourceClaims("test").Create(n.t.Context(), c,
		metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	n.pods.set(name, pod)
	return pod
}

// offered reports whether the slices offer both devices and the plugin says so.
func (n *claimNode) offered(p *dra.Plugin) func() bool {
	return func() bool {
		list, err := n.server.slices().List(context.Background(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && len(list.Items[0].Spec.Devices) == 2 && p.State().Registered &&
			p.State().Allocatable.Is(2)
	}
}

// TestClaims takes a pod with a claim through its life at the real kubelet.
func TestClaims(t *testing.T) {
	n := newClaimNode(t)
	k := n.kubelet()
	defer func() { k.Stop() }()
	p, stop := n.plugin()
	defer func() { stop() }()
	wait(t, "two devices in slices", n.offered(p))
	pod := n.claim("one", "0000-01-00-0")
	names, err := k.Prepare(t.Context(), pod)
	if want := []string{driver + "/claim=uid-of-one-0000-01-00-0"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("prepared: %v %v", names, err)
	}
	spec := "/var/run/cdi/acceld-claim-" + driver + "-uid-of-one.json"
	if _, err := os.Stat(spec); err != nil {
		t.Error(err)
	}
	healthy := func(want string) func() bool {
		return func() bool { return slices.Equal(k.Health(pod), []string{want}) }
	}
	wait(t, "a healthy device in the pod's status", healthy("Healthy"))
	sick := things()
	sick[0].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "parity error"}
	p.Update(sick)
	wait(t, "a sick one", healthy("Unhealthy: parity error"))
	p.Update(things())
	wait(t, "a healthy one again", healthy("Healthy"))
	// Both sides again: the kubelet asks again, and what a reboot has taken is made again.
	stop()
	k.Stop()
	os.Remove(spec)
	k = n.kubelet()
	p, stop = n.plugin()
	wait(t, "two devices in slices", n.offered(p))
	if again, err := k.Prepare(t.Context(), pod); err != nil || !slices.Equal(again, names) {
		t.Errorf("prepared again: %v %v", again, err)
	}
	if _, err := os.Stat(spec); err != nil {
		t.Error(err)
	}
	if err := k.Unprepare(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if held, _ := p.Held(); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
	other := n.claim("two", "0000-09-00-0")
	if _, err := k.Prepare(t.Context(), other); err == nil || !strings.Contains(err.Error(), "DeviceGone") {
		t.Errorf("a device that is not there: %v", err)
	}
}

// TestClaimRestarts restarts the kubelet, the plugin and both. The kubelet deletes every slice at its start.
func TestClaimRestarts(t *testing.T) {
	n := newClaimNode(t)
	pod := n.claim("one", "0000-01-00-0")
	for name, which := range map[string][2]bool{
		"kubelet": {true, false}, "plugin": {false, true},
		"both": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			n.t, n.server.t = t, t
			k := n.kubelet()
			p, stop := n.plugin()
			wait(t, "two devices in slices", n.offered(p))
			var took []time.Duration
			for i := range *restarts {
				before := p.State().Registrations
				if which[1] {
					stop()
					before = 0
				}
				if which[0] {
					k.Stop()
					wait(t, "the kubelet to be gone", func() bool { return which[1] || !p.State().Registered })
				}
				begin, wipes := time.Now(), n.server.wipes.Load()
				if which[0] {
					k = n.kubelet()
					wipes++
				}
				if which[1] {
					p, stop = n.plugin()
				}
				wait(t, fmt.Sprintf("two devices in slices after restart %d", i), func() bool {
					return n.server.wipes.Load() >= wipes && p.State().Registrations > before && n.offered(p)()
				})
				took = append(took, time.Since(begin))
				if _, err := k.Prepare(t.Context(), pod); err != nil {
					t.Fatalf("restart %d: %v", i, err)
				}
			}
			slices.Sort(took)
			t.Logf("%d restarts of %s: slices right after %v (median), %v (worst)", len(took), name,
				took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
			stop()
			k.Stop()
		})
	}
}
