package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwner: a path is trusted only if nobody else can put something at one of its elements, links included.
func TestOwner(t *testing.T) {
	root := t.TempDir()
	h, err := New(root)
	must(t, err)
	for dir, mode := range map[string]os.FileMode{
		"run/safe": 0o755, "run/open": 0o777, "run/tmp": 0o777 | os.ModeSticky, "run/tmp/below": 0o700,
	} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		must(t, os.Chmod(filepath.Join(root, dir), mode))
	}
	for _, file := range []string{"run/safe/s", "run/open/s", "run/tmp/below/s"} {
		must(t, os.WriteFile(filepath.Join(root, file), nil, 0o666))
	}
	for link, text := range map[string]string{
		"var": "run", "run/safe/out": "../open/s", "run/open/in": "/run/safe/s", "run/safe/loop": "loop",
		"run/safe/up": "../../../../run/safe/s",
	} {
		must(t, os.Symlink(text, filepath.Join(root, link)))
	}
	us := os.Geteuid()
	for name, want := range map[string]string{
		"/run/safe/s": "", "/var/safe/s": "", "/run/safe/up": "", "/run/safe/nothing": "", "/run/nothing/x": "",
		"/run/tmp/below/s": "",
		"/run/open/s":      `write to "/run/open"`,
		"/run/safe/out":    `write to "/run/open"`,
		"/run/open/in":     `write to "/run/open"`, // somebody may change the link
		"/run/safe/loop":   "too many levels",
		"/var/open/none":   `write to "/run/open"`,
	} {
		err := ownedBy(h, name, us)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := ownedBy(h, "/run/safe/s", us+1); err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("of another user: %v", err)
	}
}
