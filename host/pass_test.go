package host

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPass(t *testing.T) {
	dir, err := os.MkdirTemp("", "pass") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := Pass(path, "here", w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, oob := make([]byte, 16), make([]byte, 64)
	n, oobn, _, _, err := l.ReadMsgUnix(text, oob)
	if err != nil || string(text[:n]) != "here" {
		t.Fatalf("got %q: %v", text[:n], err)
	}
	control, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(control) != 1 {
		t.Fatalf("%d control messages: %v", len(control), err)
	}
	fds, err := unix.ParseUnixRights(&control[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("%d descriptors: %v", len(fds), err)
	}
	passed := os.NewFile(uintptr(fds[0]), "passed")
	if _, err := passed.WriteString("x"); err != nil {
		t.Errorf("what was passed is not the pipe: %v", err)
	}
	if err := passed.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(text); err != nil || text[0] != 'x' {
		t.Errorf("read %q: %v", text[:1], err)
	}

	if err := Pass(filepath.Join(dir, "absent"), "here", r); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody listens: %v", err)
	}
	if err := w.Close(); err == nil {
		t.Error("it was open")
	}
	if err := Pass(path, "here", w); err == nil {
		t.Error("a closed file was passed")
	}
}
