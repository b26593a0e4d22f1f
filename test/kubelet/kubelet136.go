//go:build kubelet136

package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
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

// stopClaims does nothing: the connections of this version's manager end with its context.
func stopClaims(*dra.Manager) {}

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
