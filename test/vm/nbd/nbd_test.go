package nbd

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
)

func fill(b byte, blocks int) []byte { return bytes.Repeat([]byte{b}, blocks*Block) }

func none() bool { return false }

func holds(t *testing.T, c Content, want string) {
	t.Helper()
	got := make([]byte, len(want))
	for i := range want {
		b := make([]byte, 1)
		if err := c.read(b, int64(i)*Block+Block/2); err != nil {
			t.Fatal(err)
		}
		got[i] = max('0', b[0])
	}
	if string(got) != want {
		t.Errorf("the disk holds %s, want %s", got, want)
	}
}

func TestCut(t *testing.T) {
	d := New(8*Block, NewContent(bytes.NewReader(fill('a', 4))))
	d.Record()
	for _, w := range []write{
		{0, fill('b', 2), false},
		{}, // flush
		{Block, fill('c', 2), false},
		{3 * Block, fill('d', 1), true},
		{0, fill('e', 1), false},
		{},
		{0, fill('f', 1), false},
	} {
		if err := d.do(w); err != nil {
			t.Fatal(err)
		}
	}
	r := d.Recording()
	if r.Len() != 7 || r.Flushes() != 2 {
		t.Errorf("%d of which %d flushes", r.Len(), r.Flushes())
	}
	for n, want := range []string{"aaaa", "aaaa", "bbaa", "bbaa", "bbad", "bbad", "eccd", "eccd"} {
		c, err := r.Cut(n, none)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, c, want)
	}
	every := 0
	second := func() bool { every++; return every%2 == 0 } // of each two blocks that are only written
	c, err := r.Cut(5, second)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, "bbcd0")
	lost, err := d.Off(none)
	if err != nil || lost != 1 {
		t.Errorf("%d blocks lost: %v", lost, err)
	}
	if err := d.do(write{}); err == nil {
		t.Error("a disk without power takes a flush")
	}
	d.On()
	holds(t, d.now, "eccd")
}

// TestServe: QEMU's own client finds the disk, and a write that it flushes is told from one that it does not.
func TestServe(t *testing.T) {
	if _, err := exec.LookPath("qemu-io"); err != nil {
		t.Skip("needs QEMU's qemu-io: install qemu-utils")
	}
	d := New(1<<20, NewContent(nil))
	socket := filepath.Join(t.TempDir(), "disk")
	s, err := d.Serve(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d.Record()
	out, err := exec.CommandContext(t.Context(), "qemu-io", "-t", "writeback", "-f", "raw",
		"nbd+unix:///?socket="+socket,
		"-c", "write -P 98 0 8192", "-c", "flush", "-c", "write -f -P 99 8192 4096", "-c",
		"read -P 98 4096 4096").CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("failed")) {
		t.Fatalf("%v\n%s", err, out)
	}
	r := d.Recording()
	c, err := r.Cut(3, none)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, "bbc0")
	if c, err = r.Cut(1, none); err != nil {
		t.Fatal(err)
	}
	holds(t, c, "0000")
}
