package host

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hostileHost has what a copy of a machine should not have.
func hostileHost(t *testing.T) *Host {
	t.Helper()
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	root := t.TempDir()
	d := filepath.Join(root, "d")
	must(t, os.MkdirAll(filepath.Join(d, "directory"), 0o755))
	for name, target := range map[string]string{
		"absolute": outside + "/secret", "up": strings.Repeat("../", 40) + outside[1:] + "/secret", "loop": "loop",
		"dangling": "nothing",
		"inside":   "/d/plain", "fromtop": "/../../d/plain",
	} {
		must(t, os.Symlink(target, filepath.Join(d, name)))
	}
	must(t, os.Symlink(outside, filepath.Join(root, "out")))
	must(t, os.WriteFile(filepath.Join(d, "plain"), []byte(" value\n\x00"), 0o644))
	must(t, os.WriteFile(filepath.Join(d, "limit"), bytes.Repeat([]byte("x"), AttributeLimit), 0o644))
	must(t, os.WriteFile(filepath.Join(d, "huge"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(d, "huge"), 1<<40))
	must(t, syscall.Mkfifo(filepath.Join(d, "fifo"), 0o644))
	h, err := New(root)
	must(t, err)
	return h
}

func TestReadAttributeHostile(t *testing.T) {
	h := hostileHost(t)
	dir, err := h.OpenDir("/d")
	must(t, err)
	defer dir.Close()
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"plain", "value", nil},
		{"inside", "value", nil},
		{"fromtop", "value", nil},
		{"limit", strings.Repeat("x", AttributeLimit), nil},
		{"huge", "", errTooLong},
		{"fifo", "", errNotRegular},
		{"directory", "", syscall.EISDIR},
		{"loop", "", syscall.ELOOP},
		{"absolute", "", fs.ErrNotExist},
		{"up", "", fs.ErrNotExist},
		{"dangling", "", fs.ErrNotExist},
		{"absent", "", fs.ErrNotExist},
		{"../out/secret", "", fs.ErrNotExist},
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for how, read := range map[string]func() (string, error){
				"ReadAttribute": func() (string, error) { return h.ReadAttribute("/d/" + c.name) },
				"Dir.Read":      func() (string, error) { return dir.Read(c.name) },
				"openJoined": func() (string, error) { // as on Linux before 5.6
					name := filepath.Join("/d", c.name)
					fd, err := openJoined(h.root, name, syscall.O_RDONLY|syscall.O_NONBLOCK, c.name)
					if err != nil {
						return "", err
					}
					b, err := readClose(fd, c.name, make([]byte, 64))
					return trimAttribute(b), err
				},
			} {
				got, err := read()
				if got != c.want || !errors.Is(err, c.err) {
					t.Errorf("%s(%q) is %.20q, %v; want %.20q, %v", how, c.name, got, err, c.want, c.err)
				}
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("reading %q blocks", c.name)
		}
	}
	if _, err := h.OpenDir("/out"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory outside the root was opened: %v", err)
	}
	if _, err := h.ReadFile("/d/fifo"); !errors.Is(err, errNotRegular) {
		t.Errorf("ReadFile of a FIFO: %v", err)
	}
	if h.Exists("/out/secret") || !h.Exists("/d/inside") {
		t.Error("Exists does not stay in the root, or does not follow a link in it")
	}
}

func TestDirNamesAndLinks(t *testing.T) {
	h := hostileHost(t)
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(h.Root(), "d/directory",
			strings.Repeat("n", 30)+string(rune('0'+i%10))+strings.Repeat("m", i/10%200)+string(rune('a'+i/2000))), nil,
			0o644))
	}
	dir, err := h.OpenDir("/d")
	must(t, err)
	defer dir.Close()
	if got := dir.Readlink("inside"); got != "/d/plain" {
		t.Errorf("link %q", got)
	}
	if got := dir.Readlink("plain"); got != "" {
		t.Errorf("a file is the link %q", got)
	}
	sub, err := dir.Sub("directory")
	must(t, err)
	defer sub.Close()
	names, err := sub.Names()
	must(t, err)
	entries, err := h.ReadDir("/d/directory")
	must(t, err)
	if len(names) != len(entries) || len(names) < 2000 {
		t.Errorf("%d names, %d entries", len(names), len(entries))
	}
}

func TestReadLiveSysfs(t *testing.T) {
	h, err := New("/")
	must(t, err)
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	must(t, err)
	got, err := h.ReadAttribute("/proc/sys/kernel/osrelease")
	if err != nil || got != strings.TrimSpace(string(want)) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if h.Kernel().Arch() == "" {
		t.Error("a running machine has an architecture")
	}
}
