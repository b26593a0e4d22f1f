package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T) Dir {
	t.Helper()
	t.Setenv("ACCELD_CACHE", t.TempDir())
	c, err := Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEntryIsBuiltOnceAndWholly(t *testing.T) {
	c, builds := open(t), 0
	build := func(dir string) error {
		builds++
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			return err
		}
		if builds == 1 {
			return errors.New("interrupted")
		}
		return nil
	}
	if _, err := c.Entry(t.Context(), "thing", NewKey("a"), build); err == nil {
		t.Fatal("a failed build made an entry")
	}
	for range 2 {
		path, err := c.Entry(t.Context(), "thing", NewKey("a"), build)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(path, "half")); err != nil {
			t.Fatal(err)
		}
	}
	if builds != 2 {
		t.Errorf("built %d times, want 2", builds)
	}
}

func TestOldEntriesGo(t *testing.T) {
	c := open(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := c.Entry(t.Context(), "thing", NewKey(name), func(string) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(c.Path("thing-*"))
	if err != nil || len(left) != keepEntries {
		t.Errorf("%d entries are left, %v; want %d", len(left), err, keepEntries)
	}
}

// TestMakeRoom: on a full disk the entries that are not the last of their kind go; while there is room, none does.
func TestMakeRoom(t *testing.T) {
	c := open(t)
	sub, err := c.Sub("below")
	if err != nil {
		t.Fatal(err)
	}
	keep := map[string]bool{}
	entry := func(c Dir, kind, name string) {
		t.Helper()
		path, err := c.Entry(t.Context(), kind, NewKey(name), func(string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		// The older it is, the later in the alphabet.
		if err := os.Chtimes(path, time.Time{}, time.Unix(1<<20-int64(name[0]), 0)); err != nil {
			t.Fatal(err)
		}
		keep[path] = name == "a"
	}
	for _, name := range []string{"a", "b", "c"} {
		entry(c, "thing", name)
	}
	for _, name := range []string{"a", "b"} {
		entry(sub, "thing", name)
	}
	entry(c, "other-thing", "a")
	if err := c.MakeRoom(0); err != nil {
		t.Fatal(err)
	}
	for path := range keep {
		if !exists(path) {
			t.Errorf("%s is gone while there was room", path)
		}
	}
	if err := c.MakeRoom(1 << 62); err != nil {
		t.Fatal(err)
	}
	for path, want := range keep {
		if exists(path) != want {
			t.Errorf("%s is there: %v, want %v", path, !want, want)
		}
	}
}

func TestLockTakesTheFirstThatIsFree(t *testing.T) {
	c := open(t)
	take := func(ctx context.Context) (string, func(), error) { return c.Lock(ctx, "a", "b") }
	first, _, err := take(t.Context())
	second, unlock, err2 := take(t.Context())
	if err != nil || err2 != nil || first != "a" || second != "b" {
		t.Fatalf("took %q and %q, %v, %v", first, second, err, err2)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if name, _, err := take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("took %q, %v, while both are held", name, err)
	}
	unlock()
	if name, _, err := take(t.Context()); err != nil || name != "b" {
		t.Errorf("took %q, %v, want the one that was given back", name, err)
	}
}

func TestKeysTellWordsApart(t *testing.T) {
	if NewKey("ab", "c").String() == NewKey("a", "bc").String() {
		t.Error("two different lists of words have the same key")
	}
}

// TestRoom: the error names the folder whose disk is full.
func TestRoom(t *testing.T) {
	folder := t.TempDir()
	if err := Room(0, folder); err != nil {
		t.Fatal(err)
	}
	err := Room(1<<62, folder)
	if err == nil || !strings.Contains(err.Error(), folder+" has ") {
		t.Fatalf("got %v, want an error that names the folder", err)
	}
	if err := Room(0, filepath.Join(folder, "absent")); err == nil {
		t.Fatal("a folder that is not there has room")
	}
}
