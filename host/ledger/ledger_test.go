package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/tree"
)

const stateDir = "/var/lib/acceld"

// root is a small host: files with odd modes, times, owners, links, an empty directory.
func newRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{
		"etc/crio/crio.conf.d", "etc/cdi", "etc/empty", "run", "dev", "var/lib", "usr/local",
		"proc/sys/kernel/random", "sys/x",
	} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, os.Symlink("../run", filepath.Join(root, "var/run")))
	for name, text := range map[string]string{
		"etc/crio/crio.conf": "[crio]\n", "etc/crio/crio.conf.d/10-a.conf": "a", "etc/cdi/other.json": "{}",
		"etc/secret":                     "password",
		"proc/sys/kernel/random/boot_id": "boot-1\n", "sys/x/attr": "old-value\n",
	} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	must(t, os.Chmod(filepath.Join(root, "etc/secret"), 0o640))
	must(t, os.Symlink("crio/crio.conf", filepath.Join(root, "etc/alias")))
	if os.Geteuid() == 0 {
		must(t, os.Lchown(filepath.Join(root, "etc/secret"), 7, 8))
		must(t, os.Lchown(filepath.Join(root, "etc/alias"), 3, 4))
	}
	// If the file system has none, the trees are equal without them.
	_ = unix.Lsetxattr(filepath.Join(root, "etc/secret"), "user.note", []byte("kept"), 0)
	_ = unix.Lsetxattr(filepath.Join(root, "etc/secret"), "system.posix_acl_access", acl(), 0)
	old := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ts := []unix.Timespec{unix.NsecToTimespec(old.UnixNano()), unix.NsecToTimespec(old.UnixNano())}
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW)
	}))
	return root
}

// acl is user::rw-, user:42:r--, group::r--, mask::r--, other::--- as the kernel keeps it (posix_acl_xattr.h).
func acl() []byte {
	b := []byte{2, 0, 0, 0}
	for _, e := range [][3]byte{{1, 6, 0}, {2, 4, 42}, {4, 4, 0}, {0x10, 4, 0}, {0x20, 0, 0}} {
		id := []byte{0xff, 0xff, 0xff, 0xff}
		if e[2] != 0 {
			id = []byte{e[2], 0, 0, 0}
		}
		b = append(append(b, e[0], 0, e[1], 0), id...)
	}
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, root string) *Ledger {
	t.Helper()
	h, err := host.New(root)
	must(t, err)
	l, err := Open(h, stateDir, nil)
	must(t, err)
	return l
}

// snapshot leaves out acceld's own directories, and the times of their parents.
func snapshot(t testing.TB, root string, dirTimes bool) string {
	t.Helper()
	text, err := tree.Of(root, tree.Options{Mtime: true, DirTime: dirTimes})
	must(t, err)
	return text
}

// purge undoes everything and returns what was left.
func purge(t testing.TB, root string) []Outcome {
	t.Helper()
	l := open(t, root)
	out, err := l.Undo(UndoOptions{})
	must(t, err)
	var left []Outcome
	for _, o := range out {
		if o.Action == Left {
			left = append(left, o)
		}
	}
	notes, err := l.Notes("")
	must(t, err)
	for _, n := range notes { // as the driver does after unloading the module
		must(t, l.Forget(n.Kind, n.Name))
	}
	_, err = l.Discard(false)
	must(t, err)
	return left
}

// everything makes each kind of change once, and some twice.
func everything(l *Ledger) error {
	return errors.Join(
		l.WriteFile("/etc/secret", []byte("ours"), 0o600),
		l.WriteFile("/etc/secret", []byte("ours again"), 0o644),
		l.WriteFile("/etc/crio/crio.conf.d/60-acceld.conf", []byte("[crio]\n"), 0o644),
		l.WriteFile("/var/run/cdi/qemu.json", []byte("{}"), 0o644),
		l.WriteFile("/run/cdi/qemu.json", []byte("{ }"), 0o644),
		l.WriteFile("/usr/local/lib/acceld/abc/acceld-hook", []byte("ELF"), 0o755),
		l.WriteFile("/etc/crio/crio.conf", []byte("[crio]\n"), 0o600), // the mode alone
		l.WriteFile("/etc/crio/crio.conf.d/10-a.conf", []byte("b"), 0o644),
		l.WriteFile("/etc/crio/crio.conf.d/10-a.conf", []byte("a"), 0o644), // restored by its writer, but not its time
		l.Symlink("elsewhere", "/etc/alias"),
		l.Symlink("../edu0", "/dev/char/240:0"),
		l.Remove("/etc/cdi/other.json"),
		l.Remove("/etc/empty"),
		l.MkdirAll("/etc/empty", 0o700),
		l.MkdirAll("/etc/containers/oci/hooks.d", 0o755),
		l.Attribute("/sys/x/attr", "new-value"),
		l.WriteFile("/etc/gone", []byte("x"), 0o644),
		l.Remove("/etc/gone"),
		l.WriteFile(stateDir+"/kmod/x", []byte("own"), 0o600),
		l.Note("module", "edu", "{}"),
		l.Forget("module", "edu"),
	)
}

func TestUndoIsToTheByte(t *testing.T) {
	root := newRoot(t)
	before := snapshot(t, root, true)
	must(t, everything(open(t, root)))
	if tree.Diff(before, snapshot(t, root, true)) == "" {
		t.Fatal("nothing was changed")
	}
	dry, err := open(t, root).Undo(UndoOptions{DryRun: true})
	must(t, err)
	for _, o := range dry {
		if o.Action == Left {
			t.Errorf("a dry run would leave %+v", o)
		}
	}
	if left := purge(t, root); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	// An attribute has no time; here it is a file.
	if diff := tree.Diff(before, snapshot(t, root, true)); strings.Count(diff, "\n") != 2 ||
		!strings.Contains(diff, "/sys/x/attr") {
		t.Errorf("the tree is not what it was:\n%s", diff)
	}
	if left := purge(t, root); len(left) > 0 {
		t.Errorf("a second purge left %+v", left)
	}
}

func TestForeignChangesAreLeft(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		change func(p string) error
		reason accel.Reason
		detail string
	}{
		"edited": {"/etc/secret", func(p string) error {
			return os.WriteFile(p, []byte("theirs"), 0o600)
		}, accel.FileChanged, "SHA-256"},
		"removed": {"/etc/secret", os.Remove, accel.FileChanged, "gone"},
		"link for file": {"/etc/secret", func(p string) error {
			return errors.Join(os.Remove(p), os.Symlink("x", p))
		}, accel.FileChanged, "symbolic"},
		"attribute": {"/sys/x/attr", func(p string) error {
			return os.WriteFile(p, []byte("third"), 0o600)
		}, accel.FileChanged, "third"},
		"parent gone": {"/etc/cdi/other.json", func(p string) error {
			return os.RemoveAll(filepath.Dir(p))
		}, accel.FileChanged, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			l := open(t, root)
			must(t, everything(l))
			must(t, c.change(filepath.Join(root, c.path)))
			changed, err := l.Changed()
			must(t, err)
			for range 2 { // a second purge gives the same result
				theirs := snapshot(t, filepath.Join(root, c.path), true)
				left := purge(t, root)
				i := 0
				for i < len(left) && left[i].Path != c.path {
					i++
				}
				if i == len(left) || left[i].Reason != c.reason || !strings.Contains(left[i].Detail, c.detail) {
					t.Fatalf("left is %+v, want %s with %s and %q", left, c.path, c.reason, c.detail)
				}
				if diff := tree.Diff(theirs, snapshot(t, filepath.Join(root, c.path), true)); diff != "" {
					t.Errorf("what somebody else made was changed:\n%s", diff)
				}
			}
			if name == "parent gone" {
				return // nothing there can differ
			}
			if len(changed) == 0 || changed[0].Path == "" {
				t.Errorf("the ledger does not tell of the change: %+v", changed)
			}
		})
	}
}

// TestDirectoryOfOthers: a directory of acceld's that others have put a file into is theirs, and the purge is complete.
// It is not while something of acceld's has to stay there.
func TestDirectoryOfOthers(t *testing.T) {
	const dir, parent = "/etc/containers/oci/hooks.d", "/etc/containers"
	for name, changed := range map[string]bool{"theirs alone": false, "with a file that somebody changed": true} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			l := open(t, root)
			must(t, l.MkdirAll(dir, 0o755))
			must(t, l.WriteFile(dir+"/ours.json", []byte("{}"), 0o644))
			must(t, os.WriteFile(filepath.Join(root, dir, "other.json"), nil, 0o600))
			if changed {
				must(t, os.WriteFile(filepath.Join(root, dir, "ours.json"), []byte("theirs"), 0o644))
			}
			all, err := open(t, root).Undo(UndoOptions{DryRun: true})
			must(t, err)
			for _, o := range all {
				want := Kept
				if changed {
					want = Left
				}
				if strings.HasPrefix(o.Path, parent) && o.Action != want && o.Path != dir+"/ours.json" {
					t.Errorf("a dry run says %+v, want %s", o, want)
				}
				if o.Path == dir && !strings.Contains(o.Detail, "other.json") {
					t.Errorf("it does not say what is there: %+v", o)
				}
			}
			if left := purge(t, root); len(left) > 0 != changed {
				t.Errorf("left: %+v", left)
			}
			if !changed {
				if left := purge(t, root); len(left) > 0 {
					t.Errorf("a second purge left %+v", left)
				}
			}
			if _, err := os.Stat(filepath.Join(root, dir, "other.json")); err != nil {
				t.Error(err)
			}
		})
	}
}

// If somebody changed our file's mode or owner, they stay when the content is restored.
func TestForeignModeIsKept(t *testing.T) {
	root := newRoot(t)
	must(t, everything(open(t, root)))
	must(t, os.Chmod(filepath.Join(root, "etc/secret"), 0o400))
	if left := purge(t, root); len(left) > 0 {
		t.Fatalf("left %+v", left)
	}
	st, err := os.Stat(filepath.Join(root, "etc/secret"))
	must(t, err)
	if b, err := os.ReadFile(filepath.Join(root, "etc/secret")); err != nil || string(b) != "password" ||
		st.Mode().Perm()&0o007 != 0 {
		t.Errorf("content %q, mode %v, %v", b, st.Mode(), err)
	}
}
