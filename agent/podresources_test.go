package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/probe"
)

// illKubelet serves PodResources, and an API server's pods of the node. It is safe for concurrent use.
type illKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu      sync.Mutex
	holder  string        // the pod that holds the device; empty if none does
	told    *string       // what is answered instead; nil while the truth is
	lag     time.Duration // before each answer
	hangs   bool
	pods    map[string]types.UID // of the API server
	evicted []string
}

func (k *illKubelet) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error,
) {
	k.mu.Lock()
	name, lag, hangs := k.holder, k.lag, k.hangs
	if k.told != nil {
		name = *k.told
	}
	k.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	select {
	case <-time.After(lag):
	case <-ctx.Done():
		return nil, status.Error(codes.DeadlineExceeded, "late")
	}
	answer := &podresources.ListPodResourcesResponse{}
	if name != "" {
		answer.PodResources = []*podresources.PodResources{{
			Namespace: "team", Name: name, Containers: []*podresources.ContainerResources{{
				Name:    "main",
				Devices: []*podresources.ContainerDevices{{ResourceName: "example.com/npu", DeviceIds: []string{illDevice}}},
			}},
		}}
	}
	return answer, nil
}

const illDevice = "0000:01:00.0"

// pods is what the API server knows; an eviction ends the pod at once.
type pods struct{ *illKubelet }

func (p pods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := &corev1.PodList{}
	for name, uid := range p.pods {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: uid,
		}})
	}
	return list, nil
}

func (p pods) Evict(_ context.Context, e *policyv1.Eviction) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evicted = append(p.evicted, string(*e.DeleteOptions.Preconditions.UID))
	delete(p.pods, e.Name)
	if p.holder == e.Name {
		p.holder = ""
	}
	return nil
}

func (k *illKubelet) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// TestPodResourcesFaults: an upgrade that evicts asks a kubelet that is slow, repeats an old answer or hangs. The
// driver is not replaced under a holder, no pod is evicted but a holder, the node says why it waits, and goes on when
// the kubelet is well.
func TestPodResourcesFaults(t *testing.T) {
	text := func(s string) *string { return &s }
	const holder = "pod team/train"
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range map[string]struct {
		holder    string
		ill       func(*illKubelet)
		processes []accel.Holder    // that use the device while the kubelet is ill
		later     func(*illKubelet) // after the first look
		// while the kubelet is ill: what is said, and whether the pod that holds the device is evicted; replaced only
		// after that.
		says    string
		evicted bool
		done    bool
	}{
		"well":            {holder: "train", ill: func(*illKubelet) {}, evicted: true, says: holder, done: true},
		"a second late":   {holder: "train", ill: func(k *illKubelet) { k.lag = time.Second }, evicted: true, says: holder},
		"later than that": {holder: "train", ill: func(k *illKubelet) { k.lag = 20 * time.Second }, says: "the kubelet does not say"},
		"hangs":           {holder: "train", ill: func(k *illKubelet) { k.hangs = true }, says: "the kubelet does not say"},
		"hangs, nobody":   {ill: func(k *illKubelet) { k.hangs = true }, says: "the kubelet does not say"},
		"old, nobody": {
			holder: "train", ill: func(k *illKubelet) { k.told = text("") },
			processes: []accel.Holder{{PID: 7, Comm: "python3", PodUID: "u-1", Device: "/dev/npu0"}},
			evicted:   true, says: "python3",
		},
		"old, ended": {
			ill:  func(k *illKubelet) { k.told, k.pods = text("train"), map[string]types.UID{} },
			says: holder,
		},
		"old, succeeded": {
			ill:   func(k *illKubelet) { k.told, k.pods = text("train"), map[string]types.UID{} },
			later: func(k *illKubelet) { k.pods["train"] = "u-2" },
			says:  holder,
		},
	} {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				k := &illKubelet{holder: c.holder, pods: map[string]types.UID{"train": "u-1", "other": "u-3"}}
				c.ill(k)
				u := upgradeBeside(t, k, c.processes)
				time.Sleep(3 * time.Second)
				if c.later != nil {
					k.set(func() { c.later(k) })
				}
				time.Sleep(loopLooks)
				said := u.says()
				k.set(func() {
					if want := c.evicted; slices.Contains(k.evicted, "u-1") != want || len(k.evicted) > 1 {
						t.Errorf("evicted %q while it was ill", k.evicted)
					}
					k.told, k.lag, k.hangs = nil, 0, false
				})
				if got := u.replaced(); got && !c.evicted {
					t.Error("the driver was replaced while the kubelet was ill")
				}
				if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, c.says) }) {
					t.Errorf("it says %q, want %q", said, c.says)
				}
				u.end()
				await(t, "the upgrade, when the kubelet is well", u.replaced)
				k.set(func() {
					if slices.Contains(k.evicted, "u-2") || slices.Contains(k.evicted, "u-3") {
						t.Errorf("evicted %q", k.evicted)
					}
				})
				if u.under() {
					t.Error("the driver was replaced under a holder")
				}
			})
		})
	}
}

// loopLooks is longer than the loop waits between two looks for holders.
const loopLooks = 11 * time.Second

// upgradeTest is a loop in which one kind is to be upgraded.
type upgradeTest struct {
	k         *illKubelet
	mu        sync.Mutex
	live      string
	processes []accel.Holder
	wrong     bool
	said      []string
}

func (u *upgradeTest) replaced() bool { u.mu.Lock(); defer u.mu.Unlock(); return u.live == "2" }
func (u *upgradeTest) under() bool    { u.mu.Lock(); defer u.mu.Unlock(); return u.wrong }
func (u *upgradeTest) says() []string { u.mu.Lock(); defer u.mu.Unlock(); return slices.Clone(u.said) }
func (u *upgradeTest) end()           { u.mu.Lock(); defer u.mu.Unlock(); u.processes = nil }

// Update, State and Problem make it a device plugin whose kubelet agrees at once.
func (u *upgradeTest) Update([]accel.Accelerator) {}
func (u *upgradeTest) Problem() *accel.Problem    { return nil }
func (u *upgradeTest) State() accel.PluginHave {
	return accel.PluginHave{Registered: true, Allocatable: accel.Known(0)}
}

// upgradeBeside runs the upgrade of a kind beside a kubelet, on which the true users and the true evictor decide.
func upgradeBeside(t *testing.T, k *illKubelet, processes []accel.Holder) *upgradeTest {
	t.Helper()
	u := &upgradeTest{k: k, live: "1", processes: processes}
	h := hosttest.New(t).Host
	socket := filepath.Join(h.Root(), kubeletDir, "pod-resources/kubelet.sock")
	answering(t, socket, k)
	started := time.Now().Add(-time.Hour)
	if err := os.Chtimes(socket, started, started); err != nil {
		t.Fatal(err)
	}
	def := &accel.Definition{
		Kind: "example-npu", Resource: "example.com/npu", Match: []accel.Match{{Vendor: "f00d", Device: "0001"}},
	}
	def.Driver.Upgrade.Holders = accel.HoldersEvict
	machine := func() accel.Machine { return accel.Machine{Want: accel.Want{Kubernetes: true}} }
	asked := &users{
		host: h, machine: machine, driver: driver.New(h, driver.Options{}),
		programs: probe.New(probe.Options{Host: h}), plugins: &plugins{
			Setup: &Setup{Host: h}, machine: machine,
			bySlot: map[string]*serving{devicesOf(def): {devices: deviceplugin.NewKind(deviceplugin.Config{
				Resource: "example.com/npu", PodResources: socket, Definition: def,
			})}},
		},
	}
	api := kube.New(kube.Config{Client: kube.Client{Pods: pods{k}}, Node: "n"})
	l := loop.New(loop.Options{
		Want: accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{def.Kind: def}},
		Log:  slog.New(slog.DiscardHandler), SampleEvery: time.Hour, Resync: time.Second,
		Probes: u.probes(),
		Effects: loop.Effects{
			Apply: func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
				return accel.RuntimeHave{Applied: true}, nil
			},
			Plugin: func(context.Context, *accel.Definition) loop.Plugin { return u },
			Prepare: func(context.Context, *accel.Definition, accel.Facts) (accel.DriverRef, *accel.Problem) {
				return accel.DriverRef{Version: "2"}, nil
			},
			Upgrade: u.upgrade, AwaitHolder: u.await,
			Holders: func(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) ([]accel.Holder,
				*accel.Problem,
			) {
				holders, problem := asked.of(ctx, def, accs)
				u.mu.Lock()
				defer u.mu.Unlock()
				return append(holders, u.processes...), problem
			},
			Evictor: func() func(context.Context, func() []accel.Holder) *accel.Problem {
				return api.NewEvictor().Evict
			},
			Publish: func(m accel.Machine) {
				up := m.Have[def.Kind].Driver.Upgrade
				u.mu.Lock()
				defer u.mu.Unlock()
				if up != nil && up.Failure != nil {
					u.said = append(u.said, up.Failure.Message)
				}
			},
		},
	})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = l.Run(ctx) }()
	t.Cleanup(func() { end(); <-ended })
	return u
}

// await waits until no process uses the device.
func (u *upgradeTest) await(ctx context.Context, _ []accel.Holder) error {
	for ; ; time.Sleep(100 * time.Millisecond) {
		u.mu.Lock()
		ended := len(u.processes) == 0
		u.mu.Unlock()
		if ended || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (u *upgradeTest) upgrade(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator, accel.DriverRef) (
	accel.DriverHave, *accel.Problem,
) {
	u.k.mu.Lock()
	held := u.k.holder != ""
	u.k.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.live, u.wrong = "2", held || len(u.processes) > 0
	return accel.DriverHave{Serves: true}, nil
}

// probes show a kind that is ready with version 1 and is to have version 2.
func (u *upgradeTest) probes() loop.Probes {
	return loop.Probes{
		Facts: func() accel.Facts {
			return accel.Facts{
				Kubelet: accel.Kubelet{Present: true},
				PCI:     []accel.PCIDevice{{Address: illDevice, Vendor: "f00d", Device: "0001"}},
			}
		},
		Read: func(*accel.Definition, map[string]bool) {},
		Accelerators: func(*accel.Definition, map[string]bool) []accel.Accelerator {
			return []accel.Accelerator{{ID: illDevice, Health: accel.Health{State: accel.Healthy}}}
		},
		Enrich: func(_ *accel.Definition, accs []accel.Accelerator) []accel.Accelerator { return accs },
		Judge: func(_ *accel.Definition, _ []accel.PCIDevice, accs []accel.Accelerator) []accel.Accelerator {
			return accs
		},
		Reset: func(string) bool { return false },
		Collect: func(*accel.Definition, accel.Accelerator) (map[string]float64, error) {
			return map[string]float64{"accelerator_temperature_celsius": 40}, nil
		},
		Program: func(string) *accel.ProbeHave { return nil },
		Driver: func(*accel.Definition, accel.Facts, []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
			have := accel.DriverHave{Serves: true}
			if !u.replaced() {
				have.Upgrade = &accel.Upgrade{To: accel.DriverRef{Version: "2"}, Wish: "2", Phase: accel.UpgradePending}
			}
			return have, nil
		},
		Runtime: func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
			return accel.RuntimeHave{Applied: true}, nil
		},
	}
}
