package host

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAbandonedTemporaryFiles: a write removes what a killed writer left of the same file; temporary files of other
// files, and those that another writer holds, stay.
func TestAbandonedTemporaryFiles(t *testing.T) {
	h, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string) *os.File {
		f, err := os.Create(filepath.Join(h.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	put(".a.json.1.tmp")
	held := put(".a.json.2.tmp")
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	put(".ab.json.3.tmp")
	put(".a.json.4")
	if err := h.WriteFile("/a.json", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		".a.json.1.tmp": false, ".a.json.2.tmp": true, ".ab.json.3.tmp": true,
		".a.json.4": true, "a.json": true,
	} {
		if h.Exists("/"+name) != want {
			t.Errorf("%s: there %v, want %v", name, !want, want)
		}
	}
}

// TestWritersOfOneFile: concurrent writers never remove each other's temporary file.
func TestWritersOfOneFile(t *testing.T) {
	h, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if err := h.WriteFile("/a.json", []byte("x"), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	left, err := os.ReadDir(h.Root())
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}
