package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUUID: the UUID of a superblock, and nothing of a file that has none.
func TestUUID(t *testing.T) {
	image := func(n int, magic string) string {
		b := make([]byte, n)
		if n > superblock+uuidAt {
			copy(b[superblock+magicAt:], magic)
			for i := range 16 {
				b[superblock+uuidAt+i] = byte(i + 1)
			}
		}
		name := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got, err := UUID(image(4096, "\x53\xEF")); err != nil || got != "0102030405060708090a0b0c0d0e0f10" {
		t.Errorf("%q, %v", got, err)
	}
	for what, c := range map[string]struct{ name, says string }{
		"no ext4":   {image(4096, "XFSB"), "holds no ext4"},
		"too short": {image(100, ""), "cannot read superblock"},
		"no file":   {filepath.Join(t.TempDir(), "absent"), "cannot open image"},
	} {
		if got, err := UUID(c.name); got != "" || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}
