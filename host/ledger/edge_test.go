package ledger

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// TestCompactedInFlight: a journal that is compacted during a change still knows every state that may be there.
func TestCompactedInFlight(t *testing.T) {
	file := func(sum string) *State { return &State{Kind: File, SHA256: sum} }
	c := newContent()
	for _, r := range []record{
		{Op: opSchema, Schema: schema},
		{Op: opChange, Path: "/etc/a", Prior: file("prior"), Wrote: file("one")},
		{Op: opDone, Path: "/etc/a"},
		{Op: opChange, Path: "/etc/a", Wrote: file("two")}, // the agent was killed here: it is one or the other
		{Op: opChange, Path: "/etc/b", Prior: file("prior"), Wrote: file("one")},
		{Op: opDone, Path: "/etc/b"},
	} {
		must(t, c.apply(r))
	}
	again := newContent()
	for _, r := range c.records() {
		must(t, again.apply(r))
	}
	for _, path := range []string{"/etc/a", "/etc/b"} {
		before, after := c.entries[path], again.entries[path]
		if diff := cmp.Diff([]any{before.prior, before.ours}, []any{after.prior, after.ours}); diff != "" {
			t.Errorf("%s (-before +after):\n%s", path, diff)
		}
	}
}

// TestRestoredIsRemembered: a path at which there is again what was there before acceld is known as such until acceld
// changes it again, also after the journal was compacted.
func TestRestoredIsRemembered(t *testing.T) {
	prior, wrote := &State{Kind: File, SHA256: "prior"}, &State{Kind: File, SHA256: "one"}
	c := newContent()
	for _, r := range []record{
		{Op: opSchema, Schema: schema},
		{Op: opChange, Path: "/etc/a", Prior: prior, Wrote: wrote},
		{Op: opUndone, Path: "/etc/a", Prior: prior},
		{Op: opChange, Path: "/etc/b", Prior: prior, Wrote: wrote},
		{Op: opUndone, Path: "/etc/b", Prior: prior},
		{Op: opChange, Path: "/etc/b", Prior: prior, Wrote: wrote},
		{Op: opChange, Path: "/etc/c", Prior: &State{Kind: Absent}, Wrote: wrote},
		{Op: opUndone, Path: "/etc/c"},
	} {
		must(t, c.apply(r))
	}
	again := newContent()
	for _, r := range c.records() {
		must(t, again.apply(r))
	}
	for _, have := range []content{c, again} {
		if diff := cmp.Diff(map[string]*State{"/etc/a": prior}, have.restored); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestNotesOfOneName: notes of one kind are independent of those of another.
func TestNotesOfOneName(t *testing.T) {
	l := open(t, newRoot(t))
	must(t, l.Note("module", "x", "loaded"))
	must(t, l.Note("takeover", "x", "vfio-pci"))
	must(t, l.Note("module", "x", "loaded again"))
	must(t, l.Forget("takeover", "y"))
	texts := func() (all []string) {
		notes, err := l.Notes("")
		must(t, err)
		for _, n := range notes {
			all = append(all, n.Kind+" "+n.Name+" "+n.Text)
		}
		return all
	}
	if diff := cmp.Diff([]string{"takeover x vfio-pci", "module x loaded again"}, texts()); diff != "" {
		t.Error(diff)
	}
	must(t, l.Forget("module", "x"))
	if diff := cmp.Diff([]string{"takeover x vfio-pci"}, texts()); diff != "" {
		t.Error(diff)
	}
}

// TestModesOfDirectories: programs below the state directory can be reached, and the ledger in it cannot.
func TestModesOfDirectories(t *testing.T) {
	root := newRoot(t)
	must(t, open(t, root).WriteFile("/etc/secret", []byte("ours"), 0o600))
	for dir, want := range map[string]fs.FileMode{
		stateDir: 0o011, stateDir + "/ledger": 0, stateDir + "/ledger/blobs": 0,
	} {
		st, err := os.Stat(filepath.Join(root, dir))
		must(t, err)
		if got := st.Mode().Perm() & 0o077; got != want {
			t.Errorf("%s: group and others have %v, want %v", dir, got, want)
		}
	}
}

// TestRefused: what could not be put back as it was is not replaced, and leaves no trace in the ledger.
func TestRefused(t *testing.T) {
	root := newRoot(t)
	must(t, unix.Mkfifo(filepath.Join(root, "etc/fifo"), 0o600))
	l := open(t, root)
	for name, want := range map[string]string{
		"/etc/fifo": `replace /etc/fifo: it is a socket or FIFO`, "/etc/crio": `replace /etc/crio: is a directory`,
	} {
		for what, err := range map[string]error{
			"file": l.WriteFile(name, []byte("x"), 0o600), "link": l.Symlink("x", name),
		} {
			if err == nil || err.Error() != want {
				t.Errorf("a %s in place of %s: %v, want %s", what, name, err, want)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(root, stateDir)); !os.IsNotExist(err) {
		t.Errorf("the ledger was created: %v", err)
	}
}

// TestOwnerStays: a file that acceld edits keeps its owner and its extended attributes.
func TestOwnerStays(t *testing.T) {
	root := newRoot(t)
	name := filepath.Join(root, "etc/secret")
	kept := func() (out []any) {
		var st unix.Stat_t
		must(t, unix.Lstat(name, &st))
		out = append(out, st.Uid, st.Gid)
		for _, attribute := range []string{"user.note", "system.posix_acl_access"} {
			b := make([]byte, 256)
			n, err := unix.Lgetxattr(name, attribute, b)
			out = append(out, attribute, string(b[:max(n, 0)]), err)
		}
		return out
	}
	before := kept()
	must(t, open(t, root).WriteFile("/etc/secret", []byte("another"), 0o640))
	if diff := cmp.Diff(before, kept(), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestLedgerRemovedMeanwhile: a process that waits for the ledger while a purge removes it writes into a new one.
func TestLedgerRemovedMeanwhile(t *testing.T) {
	root := newRoot(t)
	one := open(t, root)
	release, err := one.disk.lock()
	must(t, err)
	lock := filepath.Join(root, stateDir, "ledger/lock")
	ended := make(chan error, 1)
	go func() { ended <- open(t, root).WriteFile("/etc/new", []byte("x"), 0o600) }()
	for opened := 0; opened < 2; {
		opened = 0
		fds, err := filepath.Glob("/proc/self/fd/*")
		must(t, err)
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && to == lock {
				opened++
			}
		}
	}
	must(t, os.RemoveAll(filepath.Join(root, stateDir)))
	release()
	must(t, <-ended)
	if left := purge(t, root); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	if _, err := os.Lstat(filepath.Join(root, "etc/new")); !os.IsNotExist(err) {
		t.Errorf("the change was not on record: %v", err)
	}
}

// TestClosedFileStaysClosed: if an administrator changed a file's mode, the mode stays when the content is restored.
func TestClosedFileStaysClosed(t *testing.T) {
	root := newRoot(t)
	l := open(t, root)
	name := filepath.Join(root, "etc/crio/crio.conf")
	must(t, l.WriteFile("/etc/crio/crio.conf", []byte("ours"), 0o644))
	must(t, os.Chmod(name, 0o600))
	purge(t, root)
	st, err := os.Stat(name)
	must(t, err)
	text, err := os.ReadFile(name)
	must(t, err)
	if st.Mode().Perm() != 0o600 || string(text) != "[crio]\n" {
		t.Errorf("mode %v, %q", st.Mode(), text)
	}
}

// TestOtherBootsFile: if somebody else created a file in this boot where acceld had one in another boot, it is theirs.
func TestOtherBootsFile(t *testing.T) {
	for name, c := range map[string]struct {
		now  string
		want Action
		left bool
	}{"theirs": {"somebody's", Settled, true}, "ours, on a disk that outlived the boot": {"ours", Removed, false}} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			must(t, open(t, root).WriteFile("/run/x", []byte("ours"), 0o644))
			must(t, os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("boot-2\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(root, "run/x"), []byte(c.now), 0o644))
			var got []Action
			all, err := open(t, root).Undo(UndoOptions{})
			must(t, err)
			for _, o := range all {
				if o.Path == "/run/x" {
					got = append(got, o.Action)
				}
			}
			_, err = os.Stat(filepath.Join(root, "run/x"))
			if diff := cmp.Diff([]Action{c.want}, got); diff != "" || (err == nil) != c.left {
				t.Errorf("%s, %v", diff, err)
			}
		})
	}
}

// TestSetID: a replaced program gets its set-id bits back with its content.
func TestSetID(t *testing.T) {
	root := newRoot(t)
	name := filepath.Join(root, "usr/local/tool")
	must(t, os.WriteFile(name, []byte("#!/bin/sh\n"), 0o755))
	must(t, os.Chmod(name, 0o755|fs.ModeSetuid|fs.ModeSetgid))
	must(t, open(t, root).WriteFile("/usr/local/tool", []byte("ours"), 0o755))
	purge(t, root)
	st, err := os.Stat(name)
	must(t, err)
	if st.Mode() != 0o755|fs.ModeSetuid|fs.ModeSetgid {
		t.Errorf("mode %v", st.Mode())
	}
}

// TestMountedDirectory: a file is replaced even if the directory above its own, in which the temporary file would be
// created, is on another file system.
func TestMountedDirectory(t *testing.T) {
	root := newRoot(t)
	l := open(t, root)
	var passed []string
	l.files.fault = func(step, key string) error {
		if step == "create" && filepath.Ext(key) == tempSuffix && filepath.Dir(key) != "/var/lib/acceld/ledger/blobs" {
			passed = append(passed, filepath.Dir(key))
		}
		if step == "rename" && key == "/etc/crio/crio.conf.d/99-acceld.conf" && len(passed) == 1 {
			return unix.EXDEV
		}
		return nil
	}
	must(t, l.WriteFile("/etc/crio/crio.conf.d/99-acceld.conf", []byte("ours"), 0o644))
	if diff := cmp.Diff([]string{"/etc/crio", "/etc/crio/crio.conf.d"}, passed); diff != "" {
		t.Errorf("made in (-want +got):\n%s", diff)
	}
	if text, err := os.ReadFile(filepath.Join(root, "etc/crio/crio.conf.d/99-acceld.conf")); err != nil ||
		string(text) != "ours" {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "etc/crio", tempPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
