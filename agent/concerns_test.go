package agent

import (
	"testing"

	"github.com/acceld/acceld/host"
)

// TestConcerns: events of every subsystem with devices wake the loop, wherever the device is; the others do not.
func TestConcerns(t *testing.T) {
	for _, c := range []struct {
		event host.Uevent
		want  bool
	}{
		{host.Uevent{Subsystem: "pci", DevPath: "/devices/x"}, true},
		{host.Uevent{Subsystem: "usb", DevPath: "/devices/platform/fe9c.usb/usb1/1-1"}, true},
		{host.Uevent{Subsystem: "platform", DevPath: "/devices/platform/fe8.npu"}, true},
		{host.Uevent{Subsystem: "infiniband", DevPath: "/devices/virtual/infiniband/rxe0"}, true},
		{host.Uevent{Subsystem: "accelerator", DevPath: "/devices/pci0000:00/0000:00:04.0/accelerator/edu0"}, true},
		{host.Uevent{Action: host.UeventOverflow}, true},
		{host.Uevent{Subsystem: "net", DevPath: "/devices/virtual/net/veth0"}, false},
		{host.Uevent{Subsystem: "block", DevPath: "/devices/virtual/block/loop0"}, false},
	} {
		if got := concerns(c.event); got != c.want {
			t.Errorf("%+v: %t", c.event, got)
		}
	}
}
