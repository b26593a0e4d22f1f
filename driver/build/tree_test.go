package build

import (
	"os"
	"testing"
	"time"

	"github.com/acceld/acceld/test/ko"
)

func TestCopyTree(t *testing.T) {
	m := ko.NewMachine(t)
	m.Write("/a/x.c", "1")
	m.Write("/a/sub/y.c", "2")
	if err := os.Symlink("sub/y.c", m.Path("/a/link.c")); err != nil {
		t.Fatal(err)
	}
	sum := func(to string) string {
		t.Helper()
		if err := m.Host.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := copyTree(t.Context(), m.Host, "/a", to)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := sum("/1")
	if b, err := os.ReadFile(m.Path("/1/link.c")); err != nil || string(b) != "2" {
		t.Error(string(b), err)
	}
	for _, junk := range []string{
		"x.o", ".x.o.cmd", "edu.ko", "edu.mod", "edu.mod.c", "Module.symvers",
		"modules.order", ".git/HEAD",
	} {
		m.Write("/a/"+junk, "junk")
	}
	if err := os.Chtimes(m.Path("/a/x.c"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if sum("/2") != first {
		t.Error("what a build left changes the digest")
	}
	m.Write("/a/shipped.o", "vendor's")
	second := sum("/3")
	if second == first {
		t.Error("an object that the vendor ships does not count")
	}
	if err := os.Chmod(m.Path("/a/x.c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if sum("/4") == second {
		t.Error("a file that becomes executable does not count")
	}
	if err := os.Symlink("../../etc/shadow", m.Path("/a/sub/out")); err != nil {
		t.Fatal(err)
	}
	if _, err := copyTree(t.Context(), m.Host, "/a", "/1"); err == nil {
		t.Error("a link out of the tree was copied")
	}
	m.Write("/empty/.git/x", "")
	if _, err := copyTree(t.Context(), m.Host, "/empty", "/1"); err == nil {
		t.Error("an empty tree was copied")
	}
}
