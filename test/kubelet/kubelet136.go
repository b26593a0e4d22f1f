//go:build kubelet136

package kubelet

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
)

// newest is explained in kubelet137.go.
const newest = false

func newManager(klog.Logger) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(nil, topologymanager.NewFakeManager())
}

func capacity(m *devicemanager.ManagerImpl, _ klog.Logger) (all, allocatable v1.ResourceList) {
	all, allocatable, _ = m.GetCapacity()
	return all, allocatable
}

func allocate(m *devicemanager.ManagerImpl, pod *v1.Pod, c *v1.Container) error {
	return m.Allocate(pod, c)
}

func updateStatus(m *devicemanager.ManagerImpl, _ klog.Logger, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(pod, status)
}

// claimsHandler is explained in kubelet137.go. The connections of this version end with the process, which is not over
// here.
func claimsHandler(m *dra.Manager) (cache.PluginHandler, func()) {
	k := &known{PluginHandler: m.GetWatcherHandler(), plugins: map[[2]string]bool{}}
	return k, k.leave
}

// known are the plugins that a manager of claims is connected to, by name and endpoint.
type known struct {
	cache.PluginHandler
	mu      sync.Mutex
	plugins map[[2]string]bool
}

func (k *known) RegisterPlugin(name, endpoint string, versions []string, timeout *time.Duration) error {
	k.mu.Lock()
	k.plugins[[2]string{name, endpoint}] = true
	k.mu.Unlock()
	return k.PluginHandler.RegisterPlugin(name, endpoint, versions, timeout)
}

func (k *known) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.plugins {
		k.DeRegisterPlugin(p[0], p[1])
	}
}

func updateClaimStatus(m *dra.Manager, _ klog.Logger, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(pod, status)
}

func (d devices) GetAllocatableDevices() []*podresourcesapi.ContainerDevices {
	return convert(d.ManagerImpl.GetAllocatableDevices())
}

func (nothing) GetCPUs(string, string) []int64                              { return nil }
func (nothing) GetMemory(string, string) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory() []*podresourcesapi.ContainerMemory    { return nil }
func (nothing) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
