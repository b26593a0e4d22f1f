package main

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// links returns what a GPU is linked to by NVLink: switches, and GPUs by ID.
func links(c *calls, d nvml.Device) (switched bool, peers []string) {
	if !c.has("nvmlDeviceGetNvLinkState") || !c.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
		return false, nil
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		if !c.ok(ret) && (c.lost || ret == nvml.ERROR_INVALID_ARGUMENT) {
			break // there are no more
		}
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		kind, ret := d.GetNvLinkRemoteDeviceType(link)
		switch {
		case !c.ok(ret):
		case kind == nvml.NVLINK_DEVICE_TYPE_SWITCH:
			switched = true
		case kind == nvml.NVLINK_DEVICE_TYPE_GPU:
			if pci, ret := d.GetNvLinkRemotePciInfo(link); c.ok(ret) && !slices.Contains(peers, address(pci)) {
				peers = append(peers, address(pci))
			}
		}
	}
	return switched, peers
}

// fabrics returns the fabric of each device, by ID: a group of linked devices. A device without links to others is in
// none.
func fabrics(devices []*device) map[string]string {
	const anySwitch = "switch" // all switches of one machine form one fabric
	group := map[string]string{}
	var top func(string) string
	top = func(id string) string {
		if group[id] == "" || group[id] == id {
			return id
		}
		return top(group[id])
	}
	join := func(a, b string) {
		a, b = top(a), top(b)
		group[max(a, b)] = min(a, b) // addresses sort before the word "switch"
	}
	for _, d := range devices {
		if d.switched {
			join(d.id, anySwitch)
		}
		for _, p := range d.peers {
			join(d.id, p)
		}
	}
	size := map[string]int{}
	for _, d := range devices {
		size[top(d.id)]++
	}
	out := map[string]string{}
	for _, d := range devices {
		if t := top(d.id); size[t] > 1 {
			out[d.id] = "nvlink " + t
		}
	}
	return out
}
