package deviceplugin

import (
	"log/slog"
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

// A host that has no inotify instance left is looked at from time to time.
func TestDirectoryWithoutInotify(t *testing.T) {
	d := &directory{path: t.TempDir(), log: slog.New(slog.DiscardHandler), poll: time.Millisecond, changed: make(chan struct{}, 1)}
	over := make(chan struct{})
	done := make(chan struct{})
	go func() { d.run(over); close(done) }()
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
	close(over)
	<-done
}
