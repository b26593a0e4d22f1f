package tree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every way in which two trees can differ shows.
func TestDiffers(t *testing.T) {
	all := Options{Mtime: true, DirTime: true}
	for name, change := range map[string]func(root string) error{
		"content":  func(r string) error { return os.WriteFile(filepath.Join(r, "d/f"), []byte("other"), 0o644) },
		"mode":     func(r string) error { return os.Chmod(filepath.Join(r, "d/f"), 0o600) },
		"dir mode": func(r string) error { return os.Chmod(filepath.Join(r, "d"), 0o700) },
		"new":      func(r string) error { return os.WriteFile(filepath.Join(r, "d/g"), nil, 0o644) },
		"gone":     func(r string) error { return os.Remove(filepath.Join(r, "d/f")) },
		"link": func(r string) error {
			_ = os.Remove(filepath.Join(r, "l"))
			return os.Symlink("b", filepath.Join(r, "l"))
		},
		"time":      func(r string) error { return os.Chtimes(filepath.Join(r, "d/f"), time.Time{}, time.Unix(1, 1)) },
		"dir time":  func(r string) error { return os.Chtimes(filepath.Join(r, "d"), time.Time{}, time.Unix(1, 1)) },
		"attribute": func(r string) error { return unix.Setxattr(filepath.Join(r, "d/f"), "user.x", []byte("1"), 0) },
		"fifo":      func(r string) error { return unix.Mkfifo(filepath.Join(r, "p"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "d"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "d/f"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("a", filepath.Join(root, "l")); err != nil {
				t.Fatal(err)
			}
			before, err := Of(root, all)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := Of(root, all); err != nil || Diff(before, same) != "" {
				t.Fatalf("it differs from itself: %v\n%s", err, Diff(before, same))
			}
			if err := change(root); err != nil {
				if name == "attribute" {
					t.Skip("needs a file system with extended attributes")
				}
				t.Fatal(err)
			}
			after, err := Of(root, all)
			if err != nil || Diff(before, after) == "" {
				t.Errorf("the change does not show: %v\n%s", err, after)
			}
		})
	}
}

func TestPathsAndSkip(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/a", "etc/b", "var"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := Of(root, Options{Paths: []string{"/etc", "/nothing"}, Skip: []string{"/etc/b"}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "/var") || strings.Contains(text, "/etc/b") ||
		!strings.Contains(text, "/etc/a dir 0755") {
		t.Errorf("the snapshot is\n%s", text)
	}
}

func TestKernel(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"sys/module/edu/initstate": "live\n", "sys/module/edu/parameters/debug": "1\n", "sys/module/edu/refcnt": "3\n",
		"sys/bus/pci/devices/0000:00:04.0/driver_override": "(null)\n", "etc/systemd/system/a.service": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const want = `/etc/systemd/system/a.service  
/sys/bus/pci/devices/0000:00:04.0/driver_override "(null)"
/sys/module/edu/initstate "live"
/sys/module/edu/parameters/debug "1"
`
	if got := Kernel(root); got != want {
		t.Errorf("got\n%s", got)
	}
}
