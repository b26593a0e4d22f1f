package gate

import (
	"strings"
	"testing"
)

// TestGiven: a container gets no node of a device that is not ready, neither by its number nor by its name. A kernel
// that has loaded a driver again may have assigned another number to the same name, and the container's
// specification has the old one.
func TestGiven(t *testing.T) {
	f := File{Devices: []Device{
		{ID: "0000:01:00.0", Nodes: []Node{{Path: "/dev/edu0", Major: 240, Minor: 0}, {
			Path: "/dev/edu0ctl", Major: 241,
			Minor: 7,
		}}, Reason: "DeviceUnhealthy"},
		{ID: "0000:02:00.0", Nodes: []Node{{Path: "/dev/edu1", Major: 240, Minor: 1}}, Ready: true},
		{ID: "0000:03:00.0", Reason: "DeviceGone"},
	}}
	for name, c := range map[string]struct {
		given  []ContainerDevice
		closed bool
	}{
		"nothing": {nil, false},
		"by name and number": {
			[]ContainerDevice{{Path: "/dev/edu0", Type: "c", Major: 240, Minor: 0}},
			true,
		},
		"under another name": {
			[]ContainerDevice{{Path: "/dev/accel", Type: "c", Major: 240, Minor: 0}},
			true,
		},
		"with the old number": {
			[]ContainerDevice{{Path: "/dev/edu0", Type: "c", Major: 239, Minor: 5}},
			true,
		},
		"with the number of a ready device": {
			[]ContainerDevice{{Path: "/dev/edu0", Type: "c", Major: 240, Minor: 1}},
			true,
		},
		"its second node, another number": {
			[]ContainerDevice{{Path: "/dev/edu0ctl", Type: "c", Major: 1, Minor: 1}},
			true,
		},
		"unbuffered, by number":        {[]ContainerDevice{{Path: "/dev/x", Type: "u", Major: 241, Minor: 7}}, true},
		"a block device with its name": {[]ContainerDevice{{Path: "/dev/edu0", Type: "b", Major: 8, Minor: 0}}, true},
		"a block device with its number": {
			[]ContainerDevice{{Path: "/dev/sda", Type: "b", Major: 240, Minor: 0}},
			false,
		},
		"a FIFO with its name":   {[]ContainerDevice{{Path: "/dev/edu0", Type: "p"}}, false},
		"the major number alone": {[]ContainerDevice{{Path: "/dev/x", Type: "c", Major: 240, Minor: 7}}, false},
		"the minor number alone": {[]ContainerDevice{{Path: "/dev/x", Type: "c", Major: 239, Minor: 0}}, false},
		"one that is ready":      {[]ContainerDevice{{Path: "/dev/edu1", Type: "c", Major: 240, Minor: 1}}, false},
		"one that is not known":  {[]ContainerDevice{{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}}, false},
		"behind others": {[]ContainerDevice{
			{Path: "/dev/null", Type: "c", Major: 1, Minor: 3},
			{Path: "/dev/edu1", Type: "c", Major: 240, Minor: 1},
			{Path: "/dev/edu0", Type: "c", Major: 9},
		}, true},
	} {
		err := f.Given(c.given)
		if (err != nil) != c.closed {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "/dev/edu0 (0000:01:00.0) is not ready: DeviceUnhealthy") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
