package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestSwitched: journals are written whole, read by address, and removed; one that cannot be read is an error and hides
// no other.
func TestSwitched(t *testing.T) {
	root := t.TempDir()
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	d := h.Devices()
	if all, err := d.Switched(); err != nil || len(all) > 0 {
		t.Error("before the first:", all, err)
	}
	one, two := "0000:01:00.0", "0000:02:00.0"
	want := accel.Switched{Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: "u-1"}
	for _, id := range []string{one, two} {
		if err := d.Switch(id, want); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".tmp-x", "0000:03:00.0.json.tmp", "readme", "../x.json"} {
		if err := os.WriteFile(filepath.Join(root, SwitchedDir, filepath.Base(name)), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := d.Switched(); err != nil || len(all) != 2 || all[one] != want {
		t.Error(all, err)
	}
	if err := os.WriteFile(filepath.Join(root, SwitchedDir, two+".json"), []byte(strings.Repeat(" ", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Switched(); err == nil || !strings.Contains(err.Error(), two) || len(all) != 1 ||
		all[one] != want {
		t.Error("with one that cannot be read:", all, err)
	}
	if s, err := d.SwitchedOf(two); err == nil || s != nil {
		t.Error(s, err)
	}
	if err := d.Unswitch(one); err != nil {
		t.Error(err)
	}
	if s, err := d.SwitchedOf(one); err != nil || s != nil {
		t.Error(s, err)
	}
}
