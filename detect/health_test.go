package detect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestUnreachable: the bus returns all bits set for a lost device, and for a suspended one, which is not woken and is
// healthy. A virtual function has no IDs. A file that cannot be read proves nothing.
func TestUnreachable(t *testing.T) {
	lost := strings.Repeat("\xff", 64)
	for name, c := range map[string]struct {
		config, status string // no file if empty
		want           accel.Reason
	}{
		"awake and there":                {"\x34\x12\xe8\x11" + strings.Repeat("\x00", 60), "active", ""},
		"awake and lost":                 {lost, "active", accel.DeviceUnreachable},
		"asleep":                         {lost, "suspended", ""},
		"falling asleep":                 {lost, "suspending", accel.DeviceUnreachable},
		"a kernel without power control": {lost, "", accel.DeviceUnreachable},
		"only the vendor is all ones":    {"\xff\xff\xe8\x11", "active", ""},
		"cut short":                      {"\xff\xff", "active", ""},
		"a virtual function": {
			"\xff\xff\xff\xff\x00\x00\x10\x00\x00\x00\x00\x02" + strings.Repeat("\x00", 52), "active", "",
		},
		"no config space": {"", "active", ""},
	} {
		root := t.TempDir()
		for file, text := range map[string]string{
			"config": c.config, "power/runtime_status": c.status,
			"health": "ok",
		} {
			p := filepath.Join(root, pciDevices, card, file)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				continue
			}
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h, err := host.New(root)
		if err != nil {
			t.Fatal(err)
		}
		def := &accel.Definition{Health: []accel.HealthSource{{File: "health", Healthy: "ok"}}}
		got, err := health(h, h.Devices().Attributes(card), def, card)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := accel.Health{State: accel.Healthy}
		if c.want != "" {
			want = accel.Health{
				State: accel.Unhealthy, Reason: c.want, Action: accel.ActionReboot,
				Message: "it does not answer on the bus any more",
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
