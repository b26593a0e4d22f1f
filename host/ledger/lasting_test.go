package ledger

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// disk is what a power cut leaves of a tree: the contents of synced files and the names in synced directories. With
// eager, names are durable at once and contents are not, as on file systems that journal only metadata. It follows a
// ledger through its fault.
type disk struct {
	t     testing.TB
	root  string
	eager bool
	known map[uint64]*inode
	// steps is how many more steps the ledger may take; step and key are the last one that was allowed.
	steps     int
	step, key string
}

// inode is the durable part of a file, link or directory.
type inode struct {
	held    int // an open descriptor, so that the inode number is not reused while we watch
	mode    uint32
	content string            // of a file; the text of a link
	names   map[string]uint64 // of a directory
}

// newDisk returns a disk on which all of a tree is durable.
func newDisk(t testing.TB, root string, eager bool) *disk {
	t.Helper()
	d := &disk{t: t, root: root, eager: eager, known: map[uint64]*inode{}, steps: 1 << 30}
	must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		must(t, err)
		d.sync(p)
		return nil
	}))
	return d
}

// close closes the descriptors.
func (d *disk) close() {
	for _, i := range d.known {
		_ = unix.Close(i.held)
	}
}

// inode returns what is known about a path; for a new path, only that it exists.
func (d *disk) inode(p string) (uint64, *inode) {
	d.t.Helper()
	var st unix.Stat_t
	must(d.t, unix.Lstat(p, &st))
	i := d.known[st.Ino]
	if i == nil {
		held, err := unix.Open(p, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		must(d.t, err)
		i = &inode{held: held, mode: st.Mode, names: map[string]uint64{}}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			i.content, err = os.Readlink(p)
			must(d.t, err)
		}
		d.known[st.Ino] = i
	}
	return st.Ino, i
}

// sync acts like fsync(2) of a file or directory.
func (d *disk) sync(p string) {
	d.t.Helper()
	_, i := d.inode(p)
	switch i.mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(p)
		must(d.t, err)
		i.content = string(b)
	case unix.S_IFDIR:
		entries, err := os.ReadDir(p)
		must(d.t, err)
		i.names = map[string]uint64{}
		for _, e := range entries {
			i.names[e.Name()], _ = d.inode(filepath.Join(p, e.Name()))
		}
	}
}

// fault follows the steps of a ledger and ends its process when the power is cut.
func (d *disk) fault(step, key string) error {
	d.settle()
	if d.steps--; d.steps < 0 {
		return errCrash
	}
	d.step, d.key = step, key
	return nil
}

// settle records what the last allowed step made durable.
func (d *disk) settle() {
	d.t.Helper()
	if d.steps < 0 {
		return
	}
	if p := filepath.Join(d.root, d.key); d.step == "fsync" {
		if _, err := os.Lstat(p); err == nil {
			d.sync(p)
		}
	}
	d.step = ""
}

// after creates the tree of the next boot.
func (d *disk) after() string {
	d.t.Helper()
	d.settle()
	if d.eager {
		must(d.t, filepath.WalkDir(d.root, func(p string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				d.sync(p)
			}
			return err
		}))
	}
	root := d.t.TempDir()
	ino, _ := d.inode(d.root)
	var grow func(ino uint64, at string)
	grow = func(ino uint64, at string) {
		i := d.known[ino]
		switch i.mode & unix.S_IFMT {
		case unix.S_IFDIR:
			must(d.t, os.MkdirAll(at, 0o755))
			for _, n := range slices.Sorted(maps.Keys(i.names)) {
				grow(i.names[n], filepath.Join(at, n))
			}
		case unix.S_IFLNK:
			must(d.t, os.Symlink(i.content, at))
		default:
			must(d.t, os.WriteFile(at, []byte(i.content), 0o600))
		}
	}
	grow(ino, root)
	must(d.t, os.RemoveAll(filepath.Join(root, "run")))
	must(d.t, os.MkdirAll(filepath.Join(root, "run"), 0o755))
	must(d.t, os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("boot-2\n"), 0o644))
	return root
}

// contents returns the kind and content of every path that survives a reboot, except acceld's own.
func contents(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		must(t, err)
		key := "/" + strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
		if below(key, stateDir) || volatile(key) || passing(path.Base(key)) {
			return nil
		}
		out[key] = e.Type().String()
		switch {
		case e.Type().IsRegular():
			b, err := os.ReadFile(p)
			must(t, err)
			out[key] += " " + string(b)
		case e.Type() == os.ModeSymlink:
			text, err := os.Readlink(p)
			must(t, err)
			out[key] += " " + text
		}
		return nil
	}))
	return out
}

// onDisk makes each kind of change to paths that survive a reboot.
func onDisk() []func(*Ledger) error {
	return []func(*Ledger) error{
		func(l *Ledger) error { return l.WriteFile("/etc/secret", []byte("ours"), 0o600) },
		func(l *Ledger) error { return l.WriteFile("/etc/secret", []byte("ours again"), 0o644) },
		func(l *Ledger) error {
			return l.WriteFile("/usr/local/lib/acceld/abc/acceld-hook", []byte("ELF"), 0o755)
		},
		func(l *Ledger) error { return l.WriteFile("/etc/crio/crio.conf.d/10-a.conf", []byte("b"), 0o644) },
		func(l *Ledger) error { return l.Symlink("elsewhere", "/etc/alias") },
		func(l *Ledger) error { return l.Remove("/etc/cdi/other.json") },
		func(l *Ledger) error { return l.Remove("/etc/empty") },
		func(l *Ledger) error { return l.MkdirAll("/etc/containers/oci/hooks.d", 0o755) },
		func(l *Ledger) error { return l.WriteFile("/etc/gone", []byte("x"), 0o644) },
		func(l *Ledger) error { return l.Remove("/etc/gone") },
	}
}

// eachDisk runs a test for both kinds of disk.
func eachDisk(t *testing.T, do func(t *testing.T, eager bool)) {
	t.Helper()
	quick(t)
	for _, eager := range []bool{false, true} {
		t.Run(fmt.Sprintf("eager %t", eager), func(t *testing.T) { do(t, eager) })
	}
}

// What a call has changed survives a power cut, because the caller relies on it.
func TestPowerCutAfterAChange(t *testing.T) {
	eachDisk(t, func(t *testing.T, eager bool) {
		root := newRoot(t)
		d := newDisk(t, root, eager)
		defer d.close()
		l := open(t, root)
		l.files.fault = d.fault
		for i, change := range onDisk() {
			must(t, change(l))
			if diff := cmp.Diff(contents(t, root), contents(t, d.after())); diff != "" {
				t.Errorf("change %d is lost (-made +after the power cut):\n%s", i, diff)
			}
		}
	})
}

// If the power is cut at any step of a change, the next purge restores the previous state: there is no change without
// its record, and no record without the content that it needs.
func TestPowerCutAtEveryStep(t *testing.T) {
	eachDisk(t, func(t *testing.T, eager bool) {
		for n := 0; ; n++ {
			root := newRoot(t)
			before := contents(t, root)
			d := newDisk(t, root, eager)
			d.steps = n
			l := open(t, root)
			l.files.fault = d.fault
			var err error
			for _, change := range onDisk() {
				err = errors.Join(err, change(l))
			}
			d.purged(fmt.Sprintf("power cut at step %d (%v)", n, err), before)
			must(t, os.RemoveAll(root))
			if d.steps >= 0 {
				t.Logf("%d steps", n)
				return
			}
		}
	})
}

// If the power is cut at any step of a purge, the next one finishes it.
func TestPowerCutAtEveryStepOfUndo(t *testing.T) {
	eachDisk(t, func(t *testing.T, eager bool) {
		stride := 1
		if testing.Short() {
			stride = 3
		}
		for n := 0; ; n += stride {
			root := newRoot(t)
			before := contents(t, root)
			l := open(t, root)
			for _, change := range onDisk() {
				must(t, change(l))
			}
			d := newDisk(t, root, eager)
			d.steps = n
			l.files.fault = d.fault
			_, err1 := l.Undo(UndoOptions{})
			_, err2 := l.Discard(false)
			d.purged(fmt.Sprintf("power cut at step %d (%v)", n, errors.Join(err1, err2)), before)
			must(t, os.RemoveAll(root))
			if d.steps >= 0 {
				t.Logf("%d steps", n)
				return
			}
		}
	})
}

// purged boots what is left, purges it and compares the result.
func (d *disk) purged(when string, before map[string]string) {
	d.t.Helper()
	root := d.after()
	d.close()
	if left := purge(d.t, root); len(left) > 0 {
		d.t.Fatalf("%s: left %+v", when, left)
	}
	if diff := cmp.Diff(before, contents(d.t, root)); diff != "" {
		d.t.Fatalf("%s (-before +after the purge):\n%s", when, diff)
	}
	must(d.t, os.RemoveAll(root))
}
