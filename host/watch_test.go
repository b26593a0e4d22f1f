package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// expect reads until want is reported. The directory's own name is enough if the entry exists, because its reader then
// reads the directory.
func expect(t *testing.T, root string, changes <-chan string, want string) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case got := <-changes:
			_, err := os.Lstat(filepath.Join(root, want))
			if got == want || got == filepath.Dir(want) && err == nil {
				return
			}
		case <-timeout:
			t.Fatalf("no change of %q was told", want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func watchedHost(t *testing.T, names ...string) (string, <-chan string) {
	t.Helper()
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	h, err := New(root)
	must(t, err)
	changes, err := h.Watch(t.Context(), names...)
	must(t, err)
	return root, changes
}

func TestWatchTellsWhatChanged(t *testing.T) {
	root, changes := watchedHost(t, "/etc")
	file := filepath.Join(root, "etc/a")
	must(t, os.WriteFile(file, []byte("1"), 0o644))
	expect(t, root, changes, "/etc/a")
	must(t, os.Chmod(file, 0o600))
	expect(t, root, changes, "/etc/a")
	must(t, os.Rename(file, filepath.Join(root, "etc/b")))
	expect(t, root, changes, "/etc/b")
	must(t, os.Remove(filepath.Join(root, "etc/b")))
	expect(t, root, changes, "/etc/b")
}

func TestWatchWaitsForADirectory(t *testing.T) {
	root, changes := watchedHost(t, "/var/lib/kubelet/device-plugins", "/var/lib/kubelet")
	plugins := filepath.Join(root, "var/lib/kubelet/device-plugins")
	must(t, os.MkdirAll(plugins, 0o755))
	expect(t, root, changes, "/var/lib/kubelet/device-plugins")
	for i := range 50 {
		must(t, os.WriteFile(filepath.Join(plugins, "kubelet.sock"), nil, 0o600))
		expect(t, root, changes, "/var/lib/kubelet/device-plugins/kubelet.sock")
		if i%2 == 0 {
			must(t, os.RemoveAll(filepath.Join(root, "var")))
		} else {
			must(t, os.Rename(plugins, fmt.Sprintf("%s.%d", plugins, i)))
		}
		must(t, os.MkdirAll(plugins, 0o755))
		expect(t, root, changes, "/var/lib/kubelet/device-plugins")
	}
}

// A directory that is removed and created again at once must not leave the watch on the old one.
func TestWatchSurvivesRapidReplacement(t *testing.T) {
	root, changes := watchedHost(t, "/run/cdi")
	dir := filepath.Join(root, "run/cdi")
	for i := range 200 {
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.RemoveAll(dir))
		must(t, os.MkdirAll(dir, 0o755))
		expect(t, root, changes, "/run/cdi")
		if i%10 != 9 {
			continue
		}
		// Drain the queued changes; after that, a new file must be reported.
		for quiet := false; !quiet; {
			select {
			case <-changes:
			case <-time.After(50 * time.Millisecond):
				quiet = true
			}
		}
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
		expect(t, root, changes, fmt.Sprintf("/run/cdi/%d", i))
	}
}

func TestWatchFollowsLinksInsideTheRoot(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "run/cdi"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "var"), 0o755))
	must(t, os.Symlink("/run", filepath.Join(root, "var/run")))
	h, err := New(root)
	must(t, err)
	changes, err := h.Watch(t.Context(), "/var/run/cdi")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "run/cdi/x.json"), nil, 0o600))
	expect(t, root, changes, "/var/run/cdi/x.json")
}

func TestWatchTellsOnceWhatNobodyTook(t *testing.T) {
	root, changes := watchedHost(t, "/etc")
	for range 500 {
		must(t, os.WriteFile(filepath.Join(root, "etc/a"), []byte("x"), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(root, "etc/last"), nil, 0o644))
	time.Sleep(100 * time.Millisecond) // the kernel's queue has been read by then
	for n := 0; ; n++ {
		if got := <-changes; got == "/etc/last" {
			if n > 2 {
				t.Errorf("%d changes of one path were told to a reader that took none", n)
			}
			return
		}
	}
}

func TestWatchManyChangesAreTheDirectory(t *testing.T) {
	w := &watcher{waiting: map[string]bool{}, targets: []*target{{name: "/etc"}}}
	for i := range watchPending + 1 {
		w.deliver(fmt.Sprintf("/etc/%d", i))
	}
	if len(w.pending) != 1 || w.pending[0] != "/etc" {
		t.Errorf("pending is %d paths, the first %q; want the directory", len(w.pending), w.pending[0])
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	h, err := New(t.TempDir())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := h.Watch(ctx, "/x")
	must(t, err)
	cancel()
	for range changes {
	}
}
