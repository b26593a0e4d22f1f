package deviceplugin

import (
	"context"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// GetPreferredAllocation never fails: an error here would fail the admission of the pod.
func (s *service) GetPreferredAllocation(_ context.Context, req *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	defer s.list.enter()()
	devices := s.list.load().devices
	resp := &pluginapi.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		resp.ContainerResponses = append(resp.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{
			DeviceIDs: prefer(devices, c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize())),
		})
	}
	return resp, nil
}

// prefer chooses size of the available devices, those that must be included first and the others close to them and to each
// other (see [pick]). Devices that are not healthy here are chosen only when nothing else is left.
func prefer(devices map[string]device, available, must []string, size int) []string {
	chosen := slices.Compact(slices.Sorted(slices.Values(must)))
	near := make([]spot, 0, len(chosen))
	for _, id := range chosen {
		near = append(near, spot{id, devices[id].at})
	}
	var free []spot
	var poor []string
	for _, id := range slices.Compact(slices.Sorted(slices.Values(available))) {
		if _, taken := slices.BinarySearch(chosen, id); taken {
			continue
		}
		if d := devices[id]; d.healthy() {
			free = append(free, spot{id, d.at})
		} else {
			poor = append(poor, id)
		}
	}
	sortSpots(free)
	for _, s := range pick(free, near, size-len(chosen), 0).spots {
		chosen = append(chosen, s.id)
	}
	return append(chosen, poor[:max(0, min(len(poor), size-len(chosen)))]...)
}
