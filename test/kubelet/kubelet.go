// Package kubelet runs the parts of the real kubelet that a device plugin and a DRA plugin meet: its device manager
// with the registration server, its PodResources service with the real rate limit, its plugin watcher and its manager
// of claims. They work on the real paths under /var/lib/kubelet, so that they may be used only in a mount namespace of
// their own, which the tests make (root). It judges acceld's plugins and has no part in them.
//
//	CGO_ENABLED=0 go test -trimpath -vet=off . -v [-restarts 1000] [-log]
//	CGO_ENABLED=0 go test -trimpath -vet=off -modfile=go136.mod -tags=kubelet136 . -v [-restarts 1000] [-log]
//
// The second is the kubelet of Kubernetes 1.36. What differs between the two is in a file for each. The first two flags
// are those that the test bed builds Kubernetes with, so that one build cache serves both; vet would read the whole of
// Kubernetes.
package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// The real kubelet's paths. The first is a constant of the kubelet, the second follows its --root-dir.
const (
	PluginDir    = "/var/lib/kubelet/device-plugins"
	PodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"
)

// Kubelet is one life of a kubelet. Its checkpoint outlives it, as on a host.
type Kubelet struct {
	manager *devicemanager.ManagerImpl
	pods    *Pods
	server  *grpc.Server
	log     klog.Logger
}

// Pods are the pods of the node; they outlive a kubelet.
type Pods struct {
	mu   sync.Mutex
	pods map[string]*v1.Pod
}

// NewPods returns a node without pods.
func NewPods() *Pods { return &Pods{pods: map[string]*v1.Pod{}} }

// Start starts a kubelet on pods.
func Start(pods *Pods) (*Kubelet, error) {
	log := klog.Background()
	if err := os.MkdirAll(PluginDir, 0o750); err != nil {
		return nil, err
	}
	manager, err := newManager(log)
	if err != nil {
		return nil, fmt.Errorf("cannot make a device manager: %w", err)
	}
	k := &Kubelet{manager: manager, pods: pods, log: log}
	if err := manager.Start(log, pods.GetActivePods, ready{}, containermap.NewContainerMap(),
		sets.New[string]()); err != nil {
		return nil, fmt.Errorf("cannot start the device manager: %w", err)
	}
	ctx := context.Background()
	k.server = grpc.NewServer(apisgrpc.WithRateLimiter(ctx, "podresources", podresources.DefaultQPS,
		podresources.DefaultBurstTokens))
	podresourcesapi.RegisterPodResourcesListerServer(k.server, podresources.NewV1PodResourcesServer(ctx,
		podresources.PodResourcesProviders{
			Pods: pods, Devices: devices{manager}, Cpus: nothing{}, Memory: nothing{}, DynamicResources: nothing{},
		}))
	if err := os.MkdirAll(filepath.Dir(PodResources), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(PodResources); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: PodResources, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then the name may be the next kubelet's
	go k.server.Serve(l)
	return k, nil
}

// Stop ends the kubelet as SIGTERM does.
func (k *Kubelet) Stop() error {
	k.server.Stop()
	return k.manager.Stop(k.log)
}

// Allocatable is what the kubelet would write to the node's status: -1 for a resource that it does not know.
func (k *Kubelet) Allocatable(name string) int {
	_, allocatable := capacity(k.manager, k.log)
	return count(allocatable, name)
}

// Capacity is the node's capacity in the same way.
func (k *Kubelet) Capacity(name string) int {
	all, _ := capacity(k.manager, k.log)
	return count(all, name)
}

func count(list v1.ResourceList, name string) int {
	q, known := list[v1.ResourceName(name)]
	if !known {
		return -1
	}
	return int(q.Value())
}

// Admit gives a new pod n devices, as the admission of a pod does, and keeps it when it succeeds.
func (k *Kubelet) Admit(name, res string, n int) error {
	q := *resource.NewQuantity(int64(n), resource.DecimalSI)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "test", UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceName(res): q}},
		}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}},
	}
	k.pods.set(name, pod)
	if err := allocate(k.manager, pod, &pod.Spec.Containers[0]); err != nil {
		k.pods.set(name, nil)
		return err
	}
	return nil
}

// Injected is what the container of the pod gets.
func (k *Kubelet) Injected(name string) (*devicemanager.DeviceRunContainerOptions, error) {
	pod, found := k.pods.GetPodByName("test", name)
	if !found {
		return nil, fmt.Errorf("no pod %q", name)
	}
	return k.manager.GetDeviceRunContainerOptions(context.Background(), pod, &pod.Spec.Containers[0])
}

// Health is the health of the pod's devices by id, as its status would say.
func (k *Kubelet) Health(name string) map[string]string {
	pod, found := k.pods.GetPodByName("test", name)
	if !found {
		return nil
	}
	status := pod.Status.DeepCopy()
	updateStatus(k.manager, k.log, pod, status)
	health := map[string]string{}
	for _, c := range status.ContainerStatuses {
		for _, r := range c.AllocatedResourcesStatus {
			for _, d := range r.Resources {
				health[string(d.ResourceID)] = string(d.Health)
			}
		}
	}
	return health
}

// End removes a pod.
func (p *Pods) End(name string) { p.set(name, nil) }

func (p *Pods) set(name string, pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod == nil {
		delete(p.pods, name)
		return
	}
	p.pods[name] = pod
}

// GetActivePods lists all pods.
func (p *Pods) GetActivePods() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*v1.Pod
	for _, pod := range p.pods {
		all = append(all, pod)
	}
	return all
}

// GetPods lists all pods.
func (p *Pods) GetPods() []*v1.Pod { return p.GetActivePods() }

// GetPodByName finds a pod; every pod is in the namespace "test".
func (p *Pods) GetPodByName(_, name string) (*v1.Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, found := p.pods[name]
	return pod, found
}

// ready says that the kubelet has seen all its sources.
type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

// devices gives the PodResources service the device manager's view, as the kubelet's container manager does
// (cm/container_manager.go, containerDevicesFromResourceDeviceInstances).
type devices struct{ *devicemanager.ManagerImpl }

func (d devices) GetDevices(podUID, container string) []*podresourcesapi.ContainerDevices {
	return convert(d.ManagerImpl.GetDevices(podUID, container))
}

func convert(all devicemanager.ResourceDeviceInstances) []*podresourcesapi.ContainerDevices {
	var rows []*podresourcesapi.ContainerDevices
	for name, instances := range all {
		for id, d := range instances {
			nodes := d.GetTopology().GetNodes()
			if d.GetTopology() == nil {
				rows = append(rows, &podresourcesapi.ContainerDevices{ResourceName: name, DeviceIds: []string{id}})
			}
			for _, n := range nodes {
				rows = append(rows, &podresourcesapi.ContainerDevices{
					ResourceName: name, DeviceIds: []string{id},
					Topology: &podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{{ID: n.GetID()}}},
				})
			}
		}
	}
	return rows
}

// nothing is a node without exclusive processors, memory and dynamic resources.
type nothing struct{}

func (nothing) GetAllocatableCPUs() []int64 { return nil }
