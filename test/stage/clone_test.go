package stage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClone: the clone has what the tree has now, and neither what git ignores nor what was deleted; it is a clean
// repository with a tag, and the same tree gives the same commit.
func TestClone(t *testing.T) {
	root := t.TempDir()
	git := func(dir string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git",
			append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(root, "init", "-q")
	write(".gitignore", "/bin\n")
	write("dir/changed", "old")
	write("deleted", "x")
	git(root, "add", "-A")
	git(root, "commit", "-q", "-m", "x")
	write("dir/changed", "new")
	write("dir/young file", "y")
	write("bin/program", "z")
	if err := os.Remove(filepath.Join(root, "deleted")); err != nil {
		t.Fatal(err)
	}
	s, clones := &Stage{root: root}, []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	for _, dir := range clones {
		if err := s.Clone(t.Context(), dir, "v1.0.0"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := git(clones[0], "ls-files"), ".gitignore\ndir/changed\ndir/young file"; got != want {
		t.Errorf("the clone has %q, want %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(clones[0], "dir/changed")); err != nil || string(text) != "new" {
		t.Errorf("a changed file is %q: %v", text, err)
	}
	if got := git(clones[0], "describe", "--tags", "--dirty"); got != "v1.0.0" {
		t.Errorf("it calls itself %q", got)
	}
	if a, b := git(clones[0], "rev-parse", "HEAD"), git(clones[1], "rev-parse", "HEAD"); a != b {
		t.Errorf("two clones of one tree are %s and %s", a, b)
	}
}
