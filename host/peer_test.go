package host

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestPeer(t *testing.T) {
	root, err := os.MkdirTemp("", "peer") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Peer(t.Context(), "/run/x.sock"); err == nil {
		t.Error("a socket that is not there has a peer")
	}
	l, err := net.Listen("unix", filepath.Join(root, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if pid, err := h.Peer(t.Context(), "/x.sock"); err != nil || pid != os.Getpid() {
		t.Errorf("peer is %d, %v; want %d", pid, err, os.Getpid())
	}
}

func TestBorn(t *testing.T) {
	h, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	born := h.Born("/d")
	if born.IsZero() {
		t.Skip("the file system does not know when a file was made")
	}
	if age := time.Since(born); age < -time.Second || age > time.Minute {
		t.Errorf("made %s ago", age)
	}
	if !h.Born("/none").IsZero() {
		t.Error("a file that is not there was made")
	}
}
