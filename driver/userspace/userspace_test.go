package userspace

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/edu/user"
)

// bench is a machine with an empty store, and a tree with the user space of the stand-in in version 1.0.0.
type bench struct {
	*testing.T
	*Spaces
	host *host.Host
	tree string
}

func newBench(t *testing.T, trusted accel.Trust) *bench {
	t.Helper()
	root, tree := t.TempDir(), t.TempDir()
	h, err := host.New(root)
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "run"), 0o755)
	}
	header, _ := filepath.Abs("../../test/edu/module/edu.h")
	if err == nil {
		err = user.Root(t.Context(), tree, "1.0.0", header)
	}
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	locks := lock.Locks{Host: h, Tell: func(accel.Progress) {}, Timeout: time.Minute}
	kept := store.New(h, store.Options{
		StateDir: "/var/lib/acceld", Log: log, Locks: locks, Now: time.Now,
		Wait: time.Minute, Point: func(string) {},
	})
	return &bench{t, New(h, Options{
		StateDir: "/var/lib/acceld", Log: log, Store: kept, Trust: trusted, Now: time.Now, Point: func(string) {},
	}), h, tree}
}

func definition() *accel.Definition {
	return &accel.Definition{
		Kind:   "qemu-edu",
		Driver: accel.DriverDefinition{UserSpace: &accel.UserSpace{Sources: []accel.Source{{Type: accel.SourceRoot}}}},
		Container: accel.Edits{
			Libraries: []accel.Libraries{{Names: []string{user.Library, "libabsent.so.1"}, SameVersion: true}},
			Programs:  []accel.Programs{{Names: []string{"edu-smi", "absent"}}},
		},
	}
}

func (b *bench) take(def *accel.Definition, version string, deep bool) (Manifest, *accel.Problem) {
	b.Helper()
	tree, err := host.New(b.tree)
	if err != nil {
		b.Fatal(err)
	}
	return b.Take(b.Context(), def, version, Tree{Host: tree, Arch: "x86_64", Deep: deep},
		Source{Type: accel.SourceRoot, Origin: "/opt/x"})
}

// layout is the paths of an entry with where its links point to.
func layout(m Manifest) (out []string) {
	for _, f := range m.Files {
		text := f.Path
		if f.Link != "" {
			text += " -> " + f.Link
		}
		out = append(out, text)
	}
	return out
}

func (b *bench) move(from, to string) {
	b.Helper()
	to = filepath.Join(b.tree, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(filepath.Join(b.tree, from), to); err != nil {
		b.Fatal(err)
	}
}

// TestTake: wherever a tree has them, and by whatever name, the library and the program are found and laid out alike.
func TestTake(t *testing.T) {
	want := []string{"usr/bin/edu-smi", "usr/lib64/libedu.so.1 -> libedu.so.1.0.0", "usr/lib64/libedu.so.1.0.0"}
	const library = user.Libraries + "/libedu.so.1.0.0"
	for name, c := range map[string]struct {
		deep    bool
		prepare func(*bench)
	}{
		"by its soname": {prepare: func(*bench) {}},
		"by a link": {prepare: func(b *bench) {
			b.move(library, "opt/vendor/libedu.so.1.0.0")
			if err := os.Symlink("/opt/vendor/libedu.so.1.0.0", filepath.Join(b.tree, user.Libraries, user.Library)); err != nil {
				b.Fatal(err)
			}
		}},
		"in a directory of the vendor": {deep: true, prepare: func(b *bench) {
			b.move(library, user.Libraries+"/vendor/current/libedu.so.1.0.0")
			b.move(user.Programs+"/edu-smi", "opt/vendor/bin/edu-smi")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, accel.Trust{})
			c.prepare(b)
			m, problem := b.take(definition(), "1.0.0", c.deep)
			if problem != nil {
				t.Fatal(problem)
			}
			if diff := cmp.Diff(want, layout(m)); diff != "" {
				t.Error(diff)
			}
			if problem := b.Check(m); problem != nil {
				t.Error(problem)
			}
			again, problem := b.take(definition(), "1.0.0", c.deep)
			if problem != nil || again.Key != m.Key {
				t.Errorf("the same tree gives %q and then %q: %v", m.Key, again.Key, problem)
			}
			st, err := os.Stat(filepath.Join(b.host.Root(), b.Root(m.Key), "usr/bin/edu-smi"))
			if err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("the program: %v %v", st, err)
			}
		})
	}
}

// TestTakeRefuses: a tree with another version, with nothing, or with a library for another processor.
func TestTakeRefuses(t *testing.T) {
	b := newBench(t, accel.Trust{})
	if _, problem := b.take(definition(), "2.0.0", false); problem == nil || problem.Reason != accel.LibraryMismatch {
		t.Errorf("another version: %v", problem)
	}
	def := definition()
	def.Container = accel.Edits{Libraries: []accel.Libraries{{Names: []string{"libabsent.so.1"}}}}
	if _, problem := b.take(def, "1.0.0", false); problem == nil || problem.Reason != accel.UserSpaceMissing {
		t.Errorf("nothing: %v", problem)
	}
	tree, err := host.New(b.tree)
	if err != nil {
		t.Fatal(err)
	}
	def = definition()
	def.Container.Programs = nil
	if _, problem := b.Take(t.Context(), def, "1.0.0", Tree{Host: tree, Arch: "aarch64", Deep: true}, Source{}); problem ==
		nil || problem.Reason != accel.UserSpaceMissing {
		t.Errorf("for another processor: %v", problem)
	}
	if all, err := b.List(); err != nil || len(all) > 0 {
		t.Errorf("%v is in the store, %v", all, err)
	}
}

// TestServe: the entry of the modules' version serves, and no other.
func TestServe(t *testing.T) {
	b := newBench(t, accel.Trust{})
	def := definition()
	m, problem := b.take(def, "1.0.0", false)
	if problem != nil {
		t.Fatal(problem)
	}
	if problem := b.Serve(def, "1.0.0"); problem != nil || b.Served(def.Kind) != m.Key {
		t.Errorf("%v, served %q", problem, b.Served(def.Kind))
	}
	if have, stale, problem := b.Judge(def, "1.0.0"); problem != nil || stale || have.Key != m.Key {
		t.Errorf("%v %v %v", have, stale, problem)
	}
	if _, _, problem := b.Judge(def, "2.0.0"); problem == nil || problem.Reason != accel.UserSpaceMissing {
		t.Errorf("another version: %v", problem)
	}
	other := definition()
	other.Container.Programs = nil
	if _, stale, problem := b.Judge(other, "1.0.0"); problem != nil || !stale {
		t.Errorf("another wish: %v %v", stale, problem)
	}
	if problem := b.Serve(def, "2.0.0"); problem == nil || problem.Reason != accel.UserSpaceMissing ||
		b.Served(def.Kind) != "" {
		t.Errorf("%v, served %q", problem, b.Served(def.Kind))
	}
	for _, text := range []string{"/etc", "/var/lib/acceld/userspace/../../../../etc", "relative"} {
		link := filepath.Join(b.host.Root(), accel.UserSpaceRoot(def.Kind))
		if err := os.Symlink(text, link); err != nil {
			t.Fatal(err)
		}
		if key := b.Served(def.Kind); key != "" {
			t.Errorf("a link to %q serves as %q", text, key)
		}
		if problem := b.Hide(def.Kind); problem != nil {
			t.Fatal(problem)
		}
	}
}

// TestFind prefers what was made for today's wish to what is newer.
func TestFind(t *testing.T) {
	b := newBench(t, accel.Trust{})
	first, problem := b.take(definition(), "1.0.0", false)
	if problem != nil {
		t.Fatal(problem)
	}
	other := definition()
	other.Container.Programs = nil
	second, problem := b.take(other, "1.0.0", false)
	if problem != nil {
		t.Fatal(problem)
	}
	third := definition()
	third.Driver.UserSpace.Sources[0].Path = "/elsewhere"
	for name, c := range map[string]struct {
		def  *accel.Definition
		want string
	}{"the first": {definition(), first.Key}, "the second": {other, second.Key}, "none of both": {third, second.Key}} {
		if m, problem := b.Find(c.def, "1.0.0"); problem != nil || m.Key != c.want {
			t.Errorf("%s: %q %v, want %q", name, m.Key, problem, c.want)
		}
	}
	if _, problem := b.Find(definition(), ""); problem == nil {
		t.Error("modules without a version have a user space")
	}
}

// TestCollect keeps what serves and what a driver needs, once for each wish.
func TestCollect(t *testing.T) {
	b := newBench(t, accel.Trust{})
	m, problem := b.take(definition(), "1.0.0", false)
	if problem != nil {
		t.Fatal(problem)
	}
	b.Collect(func(string, string) bool { return true })
	if problem := b.Serve(definition(), "1.0.0"); problem != nil {
		t.Fatal(problem)
	}
	b.Collect(func(string, string) bool { return false })
	if all, _ := b.List(); len(all) != 1 || all[0].Key != m.Key {
		t.Errorf("what serves is gone: %v", all)
	}
	if problem := b.Hide("qemu-edu"); problem != nil || b.Served("qemu-edu") != "" {
		t.Fatal(problem)
	}
	b.Collect(func(string, string) bool { return false })
	if all, _ := b.List(); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

// TestTrusted: where signatures are demanded, a directory of the host has none.
func TestTrusted(t *testing.T) {
	b := newBench(t, accel.Trust{Require: true})
	if _, problem := b.take(definition(), "1.0.0", false); problem == nil || problem.Reason != accel.SignatureInvalid {
		t.Errorf("%v", problem)
	}
	free := newBench(t, accel.Trust{})
	if m, problem := free.take(definition(), "1.0.0", false); problem != nil || len(m.SignedBy) != 0 {
		t.Error(problem, m.SignedBy)
	}
}

// TestDamaged: a file that was changed, a link that points elsewhere and a manifest of another entry are not used.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(root string) error{
		"file": func(root string) error { return os.WriteFile(root+"/usr/lib64/libedu.so.1.0.0", []byte("x"), 0o644) },
		"link": func(root string) error {
			return os.Rename(root+"/usr/lib64/libedu.so.1.0.0", root+"/usr/lib64/libedu.so.1")
		},
		"program": func(root string) error { return os.Remove(root + "/usr/bin/edu-smi") },
	} {
		b := newBench(t, accel.Trust{})
		m, problem := b.take(definition(), "1.0.0", false)
		if problem != nil {
			t.Fatal(problem)
		}
		if err := damage(filepath.Join(b.host.Root(), b.Root(m.Key))); err != nil {
			t.Fatal(err)
		}
		if problem := b.Serve(definition(), "1.0.0"); problem == nil || problem.Reason != accel.DigestMismatch ||
			b.Served("qemu-edu") != "" {
			t.Errorf("%s: %v", name, problem)
		}
	}
}
