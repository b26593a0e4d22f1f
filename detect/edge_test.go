package detect

import (
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestAddresses: only the kernel's names of PCI functions are addresses.
func TestAddresses(t *testing.T) {
	for s, want := range map[string]bool{
		"0000:01:00.0": true, "10000:e1:00.7": true, "00010000:01:1f.0": true, "0000:01:00.8": false,
		"000:01:00.0": false, "0000:01:00": false,
		"000010000:01:00.0": false, "0000-01:00.0": false, "000g:01:00.0": false, "": false, "0000:01:00.0\x20": false,
		"../00000:01:00.0": false,
	} {
		if got := isAddress(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}

// TestUnreadFunction: a function that is there and cannot be read is as it was. One that has left is not.
func TestUnreadFunction(t *testing.T) {
	h := machine(t, map[string]string{
		"sys/bus/pci/devices/0000:01:00.0/class/x": "", // a directory cannot be read
		"sys/bus/pci/devices/0000:03:00.0/x":       "",
	})
	var last []accel.PCIDevice
	for _, address := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		last = append(last, accel.PCIDevice{Address: address, Vendor: "f00d"})
	}
	r := NewTimeoutReader(h, nil)
	r.facts.PCI = last
	for range 2 {
		if f := r.Detect(); len(f.PCI) != 1 || f.PCI[0] != last[0] {
			t.Errorf("%+v", f.PCI)
		}
	}
}

// TestWorseFirst: a device is as unhealthy as its worst attribute, in any order.
func TestWorseFirst(t *testing.T) {
	sources := []accel.HealthSource{
		{File: "a", Healthy: "ok"},
		{File: "b", Healthy: "ok", Otherwise: accel.Verdict{State: accel.Degraded}},
		{File: "c", Healthy: "ok"},
	}
	for name, c := range map[string]struct {
		says said
		want accel.HealthState
	}{
		"the first":                          {said{"a": {"x"}, "b": {"ok"}, "c": {"ok"}}, accel.Unhealthy},
		"the second, a little":               {said{"a": {"ok"}, "b": {"x"}, "c": {"ok"}}, accel.Degraded},
		"the first, and the second a little": {said{"a": {"x"}, "b": {"x"}, "c": {"ok"}}, accel.Unhealthy},
		"none":                               {said{"a": {"ok"}, "b": {"ok"}, "c": {"ok"}}, accel.Healthy},
	} {
		if got, err := judge(c.says, sources, card); err != nil || got.State != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
