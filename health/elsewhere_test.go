package health

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

// TestLineElsewhere: a line of the kernel about a device of another subsystem has the kernel's name of the device, and
// an interface's name stands for its USB device.
func TestLineElsewhere(t *testing.T) {
	m := hosttest.New(t)
	m.AddDevice("virtio", "/sys/devices/pci0000:00/0000:00:05.0/virtio2", "", nil)
	m.File("/sys/devices/pci0000:00/0000:00:14.0/usb1/version", " 2.00\n")
	m.AddDevice("usb", "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2", "", nil)
	book := compile(map[string]*accel.Definition{"x": {Log: []accel.LogRule{{Match: "failed"}}}})
	book.find = m.Host.Devices().Address
	for field, want := range map[string]string{
		"+pci:0000:01:00.0": "0000:01:00.0", "+virtio:virtio2": "virtio:0000:00:05.0", "+virtio:virtio3": "",
		"+usb:1-2": "usb:0000:00:14.0-v2-2", "+usb:1-2:1.0": "usb:0000:00:14.0-v2-2", "+usb:usb1": "",
		"+virtio:../virtio2": "", "+net:eth0": "", "c10:200": "", "": "",
	} {
		got, _ := book.read(host.KmsgRecord{Text: "x: failed", Fields: map[string]string{"DEVICE": field}})
		if got.device != want {
			t.Errorf("%q is about %q, want %q", field, got.device, want)
		}
	}
}

// TestLinkElsewhere: the link and the bus errors of a function are those of the device on it.
func TestLinkElsewhere(t *testing.T) {
	m := hosttest.New(t)
	function := accel.Device{
		Address: "0000:00:05.0", ParentPort: "0000:00:01.0",
		Link: accel.Link{SpeedGTs: 8, MaxSpeedGTs: 8, Width: 4, MaxWidth: 16},
	}
	all := []accel.Device{
		function,
		{Address: "0000:00:01.0", Link: accel.Link{MaxSpeedGTs: 8, MaxWidth: 16}},
		{Subsystem: "virtio", Address: "virtio:0000:00:05.0", ParentPort: "0000:00:05.0"},
	}
	m.AddPCI(function)
	m.SetAttribute("0000:00:05.0", "aer_dev_fatal", "TOTAL_ERR_FATAL 0")
	e := New(Options{
		Host: m.Host, File: "/run/health.json", Now: time.Now, Changed: func() {},
		Definitions: func() map[string]*accel.Definition { return nil },
	})
	judge := func() accel.Health {
		return e.Judge(&accel.Definition{}, all, []accel.Accelerator{
			{ID: "virtio:0000:00:05.0", Health: accel.Health{State: accel.Healthy}},
		})[0].Health
	}
	if h := judge(); h.Reason != accel.LinkDegraded {
		t.Errorf("%+v", h)
	}
	all[0].Link.Width = 16
	if h := judge(); h.State != accel.Healthy {
		t.Errorf("%+v", h)
	}
	m.SetAttribute("0000:00:05.0", "aer_dev_fatal", "TOTAL_ERR_FATAL 1")
	if h := judge(); h.State != accel.Unhealthy || h.Reason != accel.BusErrors {
		t.Errorf("%+v", h)
	}
}
