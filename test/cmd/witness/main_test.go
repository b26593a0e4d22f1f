package main

import (
	"encoding/binary"
	"testing"

	"github.com/acceld/acceld/accel"
)

func TestDescribe(t *testing.T) {
	text := "ACTION=remove\x00DEVPATH=/devices/x\x00SUBSYSTEM=pci\x00"
	header := make([]byte, 40)
	copy(header, "libudev\x00")
	binary.NativeEndian.PutUint32(header[16:], 40)
	for _, tt := range []struct{ name, message, who, what string }{
		{"kernel", "remove@/devices/x\x00" + text, "kernel", "remove pci /devices/x"},
		{"udev", string(header) + text, "udev", "remove pci /devices/x"},
		{
			"class", "add@/devices/x/y\x00ACTION=add\x00DEVPATH=/devices/x/y\x00SUBSYSTEM=accelerator_edu\x00",
			"kernel",
			"add accelerator_edu /devices/x/y",
		},
		{"another", "add@/devices/x\x00ACTION=add\x00SUBSYSTEM=net\x00", "kernel", ""},
		{"cut off", "libudev\x00abc", "kernel", ""},
	} {
		if who, what := describe([]byte(tt.message)); who != tt.who || what != tt.what {
			t.Errorf("%s: %s %q, want %s %q", tt.name, who, what, tt.who, tt.what)
		}
	}
}

func TestAbout(t *testing.T) {
	m := accel.Machine{
		Want: accel.Want{Kinds: map[string]*accel.Definition{"k-x": {Sharing: &accel.Sharing{Replicas: 3}}}},
		Have: map[string]accel.Have{"k-x": {
			Accelerators: []accel.Accelerator{
				{Health: accel.Health{State: accel.Healthy}},
				{Health: accel.Health{State: accel.Gone}},
			},
		}},
	}
	if got := about(m, "k-x"); got != "usable=1 replicas=3" {
		t.Error(got)
	}
}
