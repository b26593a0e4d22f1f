package deviceplugin

import (
	"cmp"
	"context"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// GetPreferredAllocation prefers what the scheduler's extender chose, if that can be found out. It never fails: an
// error here would fail the admission of the pod.
func (s *service) GetPreferredAllocation(ctx context.Context,
	req *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	defer s.list.enter()()
	devices := s.list.load().devices
	resp := &pluginapi.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		available, must, size := c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize())
		ids := s.chooser.prefer(ctx, devices, available, must, size)
		if ids == nil {
			ids = prefer(devices, available, must, size)
		}
		resp.ContainerResponses = append(resp.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return resp, nil
}

// stock is a device with its free replicas.
type stock struct {
	spot
	ids   []string
	given int // replicas that the container gets
	taken int // replicas that are not free
}

// prefer chooses size of the available devices: first those that must be included, then others close to them and to
// each other (see [pick]). Among shared devices it prefers those of which the container has the fewest replicas, and
// then those of which others have the fewest. It chooses devices that are not offered here only if nothing else is
// left.
func prefer(devices map[string]device, available, must []string, size int) []string {
	chosen := slices.Compact(slices.Sorted(slices.Values(must)))
	stocks, poor := stocksOf(devices, available, chosen)
	near := make([]spot, 0, len(chosen))
	for _, id := range chosen {
		near = append(near, spot{devices[id].of, devices[id].at})
	}
	for missing := size - len(chosen); missing > 0 && len(stocks) > 0; missing = size - len(chosen) {
		var free []spot
		for _, s := range leastUsed(stocks) {
			free = append(free, s.spot)
		}
		for _, s := range pick(free, near, missing, 0).spots {
			t := stocks[s.id]
			chosen, near = append(chosen, t.ids[0]), append(near, s)
			t.ids, t.given, t.taken = t.ids[1:], t.given+1, t.taken+1
			if len(t.ids) == 0 {
				delete(stocks, s.id)
			}
		}
	}
	return append(chosen, poor[:max(0, min(len(poor), size-len(chosen)))]...)
}

// stocksOf groups the available ids by device, without those already chosen. Poor are the ids that are not offered
// here.
func stocksOf(devices map[string]device, available, chosen []string) (stocks map[string]*stock, poor []string) {
	stocks = map[string]*stock{}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(available))) {
		if _, taken := slices.BinarySearch(chosen, id); taken {
			continue
		}
		d := devices[id]
		if !d.offered() {
			poor = append(poor, id)
			continue
		}
		s := stocks[d.of]
		if s == nil {
			s = &stock{spot: spot{d.of, d.at}}
			stocks[d.of] = s
		}
		s.ids = append(s.ids, id)
		s.taken--
	}
	for _, d := range devices {
		if s := stocks[d.of]; s != nil && d.offered() {
			s.taken++
		}
	}
	for _, id := range chosen {
		if s := stocks[devices[id].of]; s != nil {
			s.given++
		}
	}
	return stocks, poor
}

// leastUsed returns the least used devices, sorted by place.
func leastUsed(stocks map[string]*stock) []*stock {
	var least []*stock
	for _, s := range stocks {
		switch {
		case len(least) == 0 || use(s, least[0]) < 0:
			least = []*stock{s}
		case use(s, least[0]) == 0:
			least = append(least, s)
		}
	}
	slices.SortFunc(least, func(a, b *stock) int { return comparePlaces(a.spot, b.spot) })
	return least
}

// use compares how much devices are used: first by the container itself, then by others.
func use(a, b *stock) int {
	return cmp.Or(cmp.Compare(a.given, b.given), cmp.Compare(a.taken, b.taken))
}
