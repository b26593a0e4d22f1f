package deviceplugin

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// kubeletSocket is the name of the kubelet's registration socket (deviceplugin/v1beta1/constants.go).
const kubeletSocket = "kubelet.sock"

// directory watches the directory of kubelet.sock, which need not exist yet: then its nearest parent that does is
// watched. It needs one inotify instance; a host that has none left is looked at from time to time instead.
type directory struct {
	path     string
	log      *slog.Logger
	poll     time.Duration
	watcher  *fsnotify.Watcher // nil without inotify
	watched  string
	failed   bool
	changed  chan struct{} // kubelet.sock is perhaps another one, or a socket was removed
	identity os.FileInfo   // kubelet.sock at the last look; nil when it was not there
}

func watchDirectory(path string, t timing, log *slog.Logger) *directory {
	d := &directory{path: filepath.Clean(path), log: log, poll: t.poll, changed: make(chan struct{}, 1)}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch the kubelet's directory, looking at it from time to time", "error", err)
		return d
	}
	d.watcher = w
	d.rewatch()
	return d
}

// run turns events into signals until over is closed.
func (d *directory) run(over <-chan struct{}) {
	if d.watcher == nil {
		ticker := time.NewTicker(d.poll)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.signal()
			case <-over:
				return
			}
		}
	}
	defer d.watcher.Close()
	socket := filepath.Join(d.path, kubeletSocket)
	for {
		select {
		case e := <-d.watcher.Events:
			// The kubelet writes its checkpoint into the same directory; only its socket matters, a socket that it
			// removes, and a directory on the way.
			removed := e.Has(fsnotify.Remove) && filepath.Ext(e.Name) == ".sock"
			if e.Name != socket && !removed && e.Name != d.watched && d.watched == d.path {
				continue
			}
			if e.Has(fsnotify.Create) || e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				d.rewatch()
				d.signal()
			}
		case <-d.watcher.Errors: //nolint:errcheck // lost events, most likely: looking again is the answer to any
			d.rewatch()
			d.signal()
		case <-over:
			return
		}
	}
}

// rewatch watches the directory, or its nearest parent that is there. A directory that was made while the watch was
// being set is found because the loop looks again after each watch.
func (d *directory) rewatch() {
	for {
		target := d.path
		for target != "/" && target != "." {
			if _, err := os.Stat(target); err == nil {
				break
			}
			target = filepath.Dir(target)
		}
		if err := d.watcher.Add(target); err != nil && !d.failed {
			d.failed = true
			d.log.Warn("cannot watch a directory of the kubelet", "path", target, "error", err)
		}
		if target == d.watched {
			return
		}
		if d.watched != "" {
			_ = d.watcher.Remove(d.watched) // it may be gone, and its watch with it
		}
		d.watched = target
	}
}

func (d *directory) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// look reports whether kubelet.sock is there, and whether it is another one than at the last look: a kubelet makes a
// new one when it starts.
func (d *directory) look() (there, other bool) {
	info, err := os.Lstat(filepath.Join(d.path, kubeletSocket))
	if err != nil {
		info = nil
	}
	before := d.identity
	d.identity = info
	if info == nil || before == nil {
		return info != nil, info != nil || before != nil
	}
	return true, !os.SameFile(info, before) || !info.ModTime().Equal(before.ModTime())
}
