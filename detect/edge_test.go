package detect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestAddresses: only what the kernel names a PCI function is one.
func TestAddresses(t *testing.T) {
	for s, want := range map[string]bool{
		"0000:01:00.0": true, "10000:e1:00.7": true, "00010000:01:1f.0": true, "0000:01:00.8": false, "000:01:00.0": false, "0000:01:00": false,
		"000010000:01:00.0": false, "0000-01:00.0": false, "000g:01:00.0": false, "": false, "0000:01:00.0 ": false, "../00000:01:00.0": false,
	} {
		if got := isAddress(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}

// TestWorseFirst: a device is as ill as its worst attribute, in whatever order they are.
func TestWorseFirst(t *testing.T) {
	sources := []accel.HealthSource{{File: "a", Healthy: "ok"}, {File: "b", Healthy: "ok", Otherwise: accel.Verdict{State: accel.Degraded}}, {File: "c", Healthy: "ok"}}
	for name, c := range map[string]struct {
		says said
		want accel.HealthState
	}{
		"the first": {said{"a": {"x"}, "b": {"ok"}, "c": {"ok"}}, accel.Unhealthy}, "the second, a little": {said{"a": {"ok"}, "b": {"x"}, "c": {"ok"}}, accel.Degraded},
		"the first, and the second a little": {said{"a": {"x"}, "b": {"x"}, "c": {"ok"}}, accel.Unhealthy}, "none": {said{"a": {"ok"}, "b": {"ok"}, "c": {"ok"}}, accel.Healthy},
	} {
		if got, err := judge(c.says, sources, card); err != nil || got.State != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestUnreachable: a device for which the bus answers with nothing but ones has fallen off it.
func TestUnreachable(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		want   accel.Health
	}{
		"it answers":      {"\x86\x80\xff\xff", accel.Health{State: accel.Healthy}},
		"half an answer":  {"\xff\xff", accel.Health{State: accel.Healthy}},
		"nothing answers": {"\xff\xff\xff\xff\xff\xff\xff\xff", accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnreachable, Action: accel.ActionReboot, Message: "it does not answer on the bus any more"}},
		"all zero":        {"\x00\x00\x00\x00", accel.Health{State: accel.Healthy}},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, pciDevices, card)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config"), []byte(c.config), 0o644); err != nil {
			t.Fatal(err)
		}
		h, err := host.New(root)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Health(h, &accel.Definition{}, accel.Accelerator{ID: card}); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
