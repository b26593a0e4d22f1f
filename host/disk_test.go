package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

func TestMounts(t *testing.T) {
	const table = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n" +
		`37 36 0:44 / /a\040b\134 rw - fuse.x x\09\7 rw` + "\n"
	want := []Mount{{98, 0, "/dev/root", "/mnt2"}, {0, 44, `x\09\7`, `/a b\`}}
	got, err := parseMounts(strings.NewReader(table), int64(len(table)))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{
		"x\n", "36 35 98:0 /mnt1 /mnt2 rw - ext3\n", "36 35 98 / /a rw - ext3 /dev/a rw\n", "36 35 - ext3 /dev/a rw\n",
		"36 35 98:99999999999 / /a rw - ext3 /dev/a rw\n", strings.Repeat("x", 1<<17),
	} {
		if got, err := parseMounts(strings.NewReader(bad), 1<<20); err == nil {
			t.Errorf("%.40q: %v", bad, got)
		}
	}
	if _, err := parseMounts(strings.NewReader(table), int64(len(table))-1); err == nil {
		t.Error("a table beyond the limit is believed")
	}
}

func FuzzMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n")
	f.Add(`37 36 0:44 / /a\040b\134 rw - fuse.x x\09\7 rw`)
	f.Fuzz(func(t *testing.T, table string) {
		const limit = 1 << 16
		all, err := parseMounts(strings.NewReader(table), limit)
		if err == nil && len(table) > limit {
			t.Error("beyond the limit")
		}
		for _, m := range all {
			if len(m.Source)+len(m.Target) > len(table) {
				t.Errorf("%+v", m)
			}
		}
	})
}

// TestClaimed asks the running machine about a loop device that this test holds, and about what is no disk.
func TestClaimed(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]accel.DeviceNode{
		"a character device": {Path: "/dev/null", Major: 1, Minor: 3}, "no device": {Path: "/dev/acceld-none"},
	} {
		if claimed, err := h.Devices().Claimed(n); err == nil || claimed {
			t.Errorf("%s: claimed %v, %v", name, claimed, err)
		}
	}
	for _, name := range h.Glob("/sys/class/block", "loop*") {
		n, err := h.Devices().Disk(filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		held, err := os.OpenFile(n.Path, unix.O_RDONLY|unix.O_EXCL, 0)
		if err != nil {
			continue // somebody uses it, or this process may not
		}
		claimed, err := h.Devices().Claimed(n)
		closeQuietly(held)
		if !claimed || err != nil {
			t.Errorf("%q is open exclusively: claimed %v, %v", n.Path, claimed, err)
		}
		if claimed, err := h.Devices().Claimed(n); claimed || err != nil {
			t.Errorf("nobody has %q: claimed %v, %v", n.Path, claimed, err)
		}
		n.Minor++
		if _, err := h.Devices().Claimed(n); err == nil {
			t.Error("another disk than sysfs says is believed")
		}
		return
	}
	t.Skip("no loop device of this machine may be opened")
}

func TestAddresses(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Kernel().Addresses("acceld-none"); err == nil {
		t.Errorf("an interface that is not there has the addresses %q", got)
	}
	if got, err := h.Kernel().Addresses("lo"); err != nil || len(got) > 0 && !strings.Contains(got[0], "/") {
		t.Errorf("%q, %v", got, err)
	}
}
