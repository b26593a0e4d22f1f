package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFailedWriteLeavesNothing: a temporary file that could not be renamed is removed.
func TestFailedWriteLeavesNothing(t *testing.T) {
	root := t.TempDir()
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/x/full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile("/etc/x", []byte("text"), 0o644); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if left, err := os.ReadDir(filepath.Join(root, "etc")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBorn(t *testing.T) {
	h, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	born := h.Born("/d")
	if born.IsZero() {
		t.Skip("the file system does not know when a file was made")
	}
	if age := time.Since(born); age < -time.Second || age > time.Minute {
		t.Errorf("made %s ago", age)
	}
	if !h.Born("/none").IsZero() {
		t.Error("a file that is not there was made")
	}
}

// TestCopyIsNotLive: a copy of this machine has its boot ID too, but is not the machine.
func TestCopyIsNotLive(t *testing.T) {
	const bootID = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile(bootID)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(bootID)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, bootID), id, 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if h.Live() {
		t.Error("a copy passes for the machine")
	}
	if h, err = New("/"); err != nil || !h.Live() {
		t.Errorf("this machine is not live: %v", err)
	}
}

// still returns a control group that accepts no process, or that does not limit memory.
func still(err error, dir string) *controlGroup {
	return &controlGroup{dir: dir, add: func(context.Context, int) error { return err }}
}

// TestAdmit: each program has its own limit if no control group limits all of them together.
func TestAdmit(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"limits/memory.max": "1073741824\n", "none/memory.max": "max\n"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		group *controlGroup
		bytes int64
		want  string
	}{
		"no group":                    {nil, 1 << 30, "1048576\n"},
		"no limit is wanted":          {nil, 0, "unlimited\n"},
		"a group that limits":         {still(nil, "/limits"), 1 << 30, "unlimited\n"},
		"a group that does not limit": {still(nil, "/none"), 1 << 30, "1048576\n"},
		"a group without such a file": {still(nil, "/gone"), 1 << 30, "1048576\n"},
		"a group that takes it not":   {still(os.ErrPermission, "/limits"), 1 << 30, "1048576\n"},
	} {
		s := &Scope{h: h, group: c.group, o: ScopeOptions{MemoryBytes: c.bytes}}
		if got := s.admit(t.Context(), os.Getpid()); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
