//go:build !kubelet136

package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
)

// newest is whether the kubelet is of the version that this module is about in the first place. It keeps several
// plugins of a resource apart (kubernetes/kubernetes#135437); older ones show a dip of allocatable when one of two
// ends.
const newest = true

func newManager(log klog.Logger) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(log, nil, topologymanager.NewFakeManager(log))
}

func capacity(m *devicemanager.ManagerImpl, log klog.Logger) (all, allocatable v1.ResourceList) {
	all, allocatable, _ = m.GetCapacity(log)
	return all, allocatable
}

func allocate(m *devicemanager.ManagerImpl, pod *v1.Pod, c *v1.Container) error {
	return m.Allocate(context.Background(), pod, c, lifecycle.AddOperation)
}

func updateStatus(m *devicemanager.ManagerImpl, log klog.Logger, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(log, pod, status)
}

// claimsHandler is what the plugin watcher tells of plugins, and how their connections end.
func claimsHandler(m *dra.Manager) (cache.PluginHandler, func()) {
	return m.GetWatcherHandler(), m.Stop
}

func updateClaimStatus(m *dra.Manager, log klog.Logger, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(log, pod, status)
}

func (d devices) GetAllocatableDevices(log klog.Logger) []*podresourcesapi.ContainerDevices {
	return convert(d.ManagerImpl.GetAllocatableDevices(log))
}

func (nothing) GetCPUs(*v1.Pod, *v1.Container) []int64 { return nil }
func (nothing) GetPodCPUs(string) []int64              { return nil }
func (nothing) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.ContainerMemory {
	return nil
}
func (nothing) GetPodMemory(klog.Logger, string) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory(klog.Logger) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetDynamicResources(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
