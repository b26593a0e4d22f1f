package runtime

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/host/ledger"
)

// A driver whose nodes udev does not know: the nodes of a device and the shared one get their links, with and
// without CDI, and a purge removes them.
func TestLinksOfNodesThatUdevDoesNotKnow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("device nodes are made by root alone")
	}
	for _, cdi := range []bool{true, false} {
		b := newBed(t, t.TempDir())
		b.want.CDI = cdi
		if err := os.MkdirAll(b.path("/dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, minor := range map[string]uint32{"/dev/edu0": 0, "/dev/edu1": 1, "/dev/eductl": 255} {
			if err := unix.Mknod(b.path(name), unix.S_IFCHR|0o600, int(unix.Mkdev(195, minor))); err != nil {
				t.Fatal(err)
			}
		}
		if have, p := b.r.Apply(b.def, b.accs, b.want); p != nil || !have.Applied {
			t.Fatalf("%+v, %v", have, p)
		}
		for link, want := range map[string]string{
			"/dev/char/195:0": "../edu0", "/dev/char/195:1": "../edu1",
			"/dev/char/195:255": "../eductl",
		} {
			if text, err := os.Readlink(b.path(link)); err != nil || text != want {
				t.Errorf("CDI %t: %s leads to %q, %v", cdi, link, text, err)
			}
		}
		if _, err := b.r.ledger.Undo(ledger.UndoOptions{}); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(b.path("/dev/char")); err == nil {
			t.Errorf("left after a purge: %v", entries)
		}
	}
}

// A driver that is loaded again may get another major number. The old link would make the device that now has the
// old number pass for ours.
func TestStaleLinkIsRemoved(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	if err := os.Symlink("../edu0", b.path("/dev/char/9:9")); err != nil { // somebody else's link stays
		t.Fatal(err)
	}
	for i := range b.accs {
		for j := range b.accs[i].Nodes {
			b.accs[i].Nodes[j].Major = 241
		}
	}
	b.apply()
	for link, there := range map[string]bool{
		"240:0": false, "240:1": false, "241:0": true, "241:1": true,
		"9:9": true,
	} {
		if _, err := os.Lstat(b.path("/dev/char/" + link)); (err == nil) != there {
			t.Errorf("%s: %v", link, err)
		}
	}
	if _, err := b.r.ledger.Undo(ledger.UndoOptions{}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(b.path("/dev/char")); err != nil || len(entries) != 1 {
		t.Errorf("left after a purge: %v, %v", entries, err)
	}
}
