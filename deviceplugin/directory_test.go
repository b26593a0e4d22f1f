package deviceplugin

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDirectoryIsReplaced(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer func() { k.stop() }()
	p := newPlugin(k, nil)
	p.timing.resync = time.Hour // events only
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	for n := 2; n < 6; n++ {
		k.stop()
		if err := os.RemoveAll(filepath.Dir(k.dir)); err != nil {
			t.Fatal(err)
		}
		k.start()
		eventually(t, "registered in the new directory", settled(p, n, 2))
	}
}

// A host without a free inotify instance is polled.
func TestDirectoryWithoutInotify(t *testing.T) {
	d := &directory{path: t.TempDir(), poll: time.Millisecond, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { d.run(ctx); close(done) }()
	<-d.changed
	if there, other := d.look(); there || other {
		t.Errorf("an empty directory: there %v, other %v", there, other)
	}
	deadSocket(t, filepath.Join(d.path, kubeletSocket))
	<-d.changed
	if there, other := d.look(); !there || !other {
		t.Errorf("a new socket: there %v, other %v", there, other)
	}
	if there, other := d.look(); !there || other {
		t.Errorf("the same socket: there %v, other %v", there, other)
	}
	os.Remove(filepath.Join(d.path, kubeletSocket))
	if there, other := d.look(); there || !other {
		t.Errorf("a removed socket: there %v, other %v", there, other)
	}
	cancel()
	<-done
}

// TestAnotherSocket: a kubelet that starts creates a new socket. File systems reuse the inode number of a removed
// file, and a clock may stand still or be set back. If either of the two differs, it is a different kubelet, which
// knows no plugin yet.
func TestAnotherSocket(t *testing.T) {
	d := &directory{path: t.TempDir()}
	socket := filepath.Join(d.path, kubeletSocket)
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(name string, when time.Time) {
		t.Helper()
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	deadSocket(t, socket)
	at(socket, noon)
	if there, other := d.look(); !there || !other {
		t.Errorf("the first socket: there %v, other %v", there, other)
	}
	if there, other := d.look(); !there || other {
		t.Errorf("the same socket: there %v, other %v", there, other)
	}
	at(socket, noon.Add(time.Second)) // like a socket that was removed and created with the same number
	if there, other := d.look(); !there || !other {
		t.Errorf("the same number at another time: there %v, other %v", there, other)
	}
	at(socket, noon)
	if there, other := d.look(); !there || !other {
		t.Errorf("the same number at an earlier time: there %v, other %v", there, other)
	}
	next := filepath.Join(d.path, "next.sock")
	deadSocket(t, next)
	at(next, noon)
	if err := os.Rename(next, socket); err != nil {
		t.Fatal(err)
	}
	if there, other := d.look(); !there || !other {
		t.Errorf("another number at the same time: there %v, other %v", there, other)
	}
	if there, other := d.look(); !there || other {
		t.Errorf("the same socket again: there %v, other %v", there, other)
	}
}
