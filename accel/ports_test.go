package accel

import (
	"slices"
	"testing"
)

func TestPortsAbove(t *testing.T) {
	pci := []PCIDevice{
		{Address: "0000:00:01.0"},
		{Address: "0000:01:00.0", ParentPort: "0000:00:01.0"},
		{Address: "0000:02:00.0", ParentPort: "0000:01:00.0"},
		{Address: "0000:05:00.0", ParentPort: "0000:04:00.0"},
		{Address: "0000:06:00.0", ParentPort: "0000:07:00.0"},
		{Address: "0000:07:00.0", ParentPort: "0000:06:00.0"},
	}
	for _, c := range []struct {
		address string
		want    []string
		known   bool
	}{
		{"0000:00:01.0", nil, true},
		{"0000:02:00.0", []string{"0000:00:01.0", "0000:01:00.0"}, true},
		{"0000:05:00.0", []string{"0000:04:00.0"}, false}, // the bridge itself was not read
		{"0000:06:00.0", nil, false},                      // a cycle, which only a damaged tree has
		{"0000:09:00.0", nil, false},
	} {
		if got, known := PortsAbove(c.address, pci); !slices.Equal(got, c.want) || known != c.known {
			t.Errorf("%s: %q %t, want %q %t", c.address, got, known, c.want, c.known)
		}
	}
}
