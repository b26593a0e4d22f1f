package deviceplugin

import (
	"cmp"
	"context"
	"maps"
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

// prefer chooses size of the available devices, those that must be included first. It touches as few NUMA nodes as it
// can: first the nodes of the devices that must be included, then one node that has enough, the one with the fewest to
// spare, else the largest ones. Equal choices fall to the lower node and the lower id, a device without node comes
// last. Devices that are not healthy here are chosen only when nothing else is left.
func prefer(devices map[string]device, available, must []string, size int) []string {
	chosen := slices.Compact(slices.Sorted(slices.Values(must)))
	free := map[int][]string{} // by NUMA node, ids sorted
	var poor []string
	for _, id := range slices.Compact(slices.Sorted(slices.Values(available))) {
		switch {
		case slices.Contains(chosen, id):
		case devices[id].healthy():
			free[nodeOf(devices, id)] = append(free[nodeOf(devices, id)], id)
		default:
			poor = append(poor, id)
		}
	}
	used := map[int][]string{}
	for _, id := range chosen {
		n := nodeOf(devices, id)
		if ids, ok := free[n]; ok {
			used[n] = ids
			delete(free, n)
		}
	}
	for _, nodes := range []map[int][]string{used, free} {
		for len(chosen) < size && len(nodes) > 0 {
			n := bestNode(nodes, size-len(chosen))
			chosen = append(chosen, nodes[n][:min(len(nodes[n]), size-len(chosen))]...)
			delete(nodes, n)
		}
	}
	if missing := size - len(chosen); missing > 0 {
		chosen = append(chosen, poor[:min(len(poor), missing)]...)
	}
	return chosen
}

// bestNode is the node with the fewest devices that still has enough, else the one with the most.
func bestNode(nodes map[int][]string, enough int) int {
	return slices.MinFunc(slices.Collect(maps.Keys(nodes)), func(a, b int) int {
		na, nb := len(nodes[a]), len(nodes[b])
		switch {
		case na >= enough && nb >= enough:
			return cmp.Or(cmp.Compare(na, nb), compareNodes(a, b))
		case na >= enough:
			return -1
		case nb >= enough:
			return 1
		}
		return cmp.Or(cmp.Compare(nb, na), compareNodes(a, b))
	})
}

// compareNodes orders NUMA nodes by number, "none" (-1) last.
func compareNodes(a, b int) int {
	if (a < 0) != (b < 0) {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

func nodeOf(devices map[string]device, id string) int {
	d, known := devices[id]
	if !known || d.numa < 0 {
		return -1
	}
	return d.numa
}
