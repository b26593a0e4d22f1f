package host

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// again runs the calling test once more in a process with another role, its own mounts and the given further
// namespaces. It skips if that is not allowed.
func again(t *testing.T, role, dir string, namespaces uintptr) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "ACCELD_TEST_ROLE="+role, "ACCELD_TEST_DIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Skipf("needs a mount namespace: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("as %s: %v\n%s", role, err, out)
	}
}

// tick is longer than the kernel's resolution of a process's start time.
const tick = 20 * time.Millisecond

// seal makes the directory read-only to this process, as a service manager does for a service.
func seal(t *testing.T, dir string) {
	t.Helper()
	err := errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""),
		unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if err != nil {
		t.Fatal(err)
	}
}

func root(t *testing.T) *Host {
	t.Helper()
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestViewOutdated runs three processes: this one, a process 1 in its own PID namespace, and a service of that one.
func TestViewOutdated(t *testing.T) {
	dir := os.Getenv("ACCELD_TEST_DIR")
	switch os.Getenv("ACCELD_TEST_ROLE") {
	case "process 1":
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
			t.Fatal(err)
		}
		viewOfAll(t, filepath.Join(dir, "all"))
		again(t, "service", filepath.Join(dir, "some"), 0)
	case "service":
		viewOfService(t, dir)
	default:
		if os.Getuid() != 0 {
			t.Skip("needs root to make a mount read-only")
		}
		dir = t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "all"), 0o755), os.MkdirAll(filepath.Join(dir, "some/old"),
			0o755)); err != nil {
			t.Fatal(err)
		}
		if root(t).Born(dir).IsZero() {
			t.Skip("needs a file system that knows when a file was made")
		}
		again(t, "process 1", dir, unix.CLONE_NEWPID)
	}
}

// viewOfAll: if process 1 cannot write either, as on a failed disk, a new view does not help.
func viewOfAll(t *testing.T, dir string) {
	time.Sleep(tick)
	if err := os.Mkdir(filepath.Join(dir, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	seal(t, dir)
	if root(t).ViewOutdated(filepath.Join(dir, "new/file")) {
		t.Error("process 1 cannot write either, and the view is outdated")
	}
}

func viewOfService(t *testing.T, dir string) {
	seal(t, dir)
	h := root(t)
	asks := func(what, name string, want bool) {
		t.Helper()
		if got := h.ViewOutdated(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: outdated is %t, want %t", what, got, want)
		}
	}
	asks("a directory that was there before", "old/file", false)
	asks("a directory that is not there at all", "none/below/file", false)
	time.Sleep(tick)
	outside := filepath.Join("/proc/1/root", dir) // this process can only read what is created there
	if err := errors.Join(os.MkdirAll(filepath.Join(outside, "new/below"), 0o755), os.Symlink(filepath.Join(dir, "new"),
		filepath.Join(outside, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile(filepath.Join(dir, "new/file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Fatalf("a write in the new directory: %v, want %v", err, unix.EROFS)
	}
	asks("a new directory", "new/file", true)
	asks("below it", "new/below/file", true)
	asks("what is to be made in it", "new/none/below/file", true)
	asks("by a link", "link/file", true)
	asks("a directory that was there before, still", "old/file", false)
	asks("the directory above, which was there before", "file", false)
	if h, err := New(dir); err != nil || h.ViewOutdated(filepath.Join(dir, "new/file")) {
		t.Errorf("another root than the machine's: %v, or outdated", err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	asks("a mount that can be written again", "new/file", false)
}

// TestStarted: on the given clock, this process is a few seconds old.
func TestStarted(t *testing.T) {
	now := time.Now()
	p := root(t).Processes()
	started, err := p.started(now)
	if err != nil {
		t.Fatal(err)
	}
	if age := now.Sub(started); age < -10*time.Millisecond || age > 15*time.Minute {
		t.Errorf("this process started %s ago", age)
	}
	if later, err := p.started(now.Add(24 * time.Hour)); err != nil || later.Sub(started) < 23*time.Hour {
		t.Errorf("a clock that was set forward by a day: started %s later, %v", later.Sub(started), err)
	}
}

// TestSince: no change of the clock makes a service restart over and over.
func TestSince(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	started := now.Add(-time.Hour)
	for what, c := range map[string]struct {
		born time.Time
		want bool
	}{
		"made after the start":                      {now.Add(-time.Minute), true},
		"made before it":                            {now.Add(-2 * time.Hour), false},
		"nobody knows when":                         {time.Time{}, false},
		"made before the clock was set back":        {now.Add(time.Minute), false},
		"made in 1970, before the clock was set":    {time.Unix(100, 0), false},
		"made before the start, with a clock ahead": {now.Add(-time.Minute), true}, // once:
	} {
		if got := since(c.born, started, now); got != c.want {
			t.Errorf("%s: %t, want %t", what, got, c.want)
		}
		if later := now.Add(time.Second); since(c.born, now, later) && !c.born.After(now) {
			t.Errorf("%s: the next process says so again", what)
		}
	}
}
