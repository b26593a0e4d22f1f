package deviceplugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/acceld/acceld/host"
)

// kubeletSocket is the name of the kubelet's registration socket (deviceplugin/v1beta1/constants.go).
const kubeletSocket = "kubelet.sock"

// directory watches the directory of kubelet.sock, which may not exist yet. If it cannot be watched because no
// inotify instance is left, it is polled instead.
type directory struct {
	path     string
	poll     time.Duration
	changes  <-chan string // entries that came or went; nil if it cannot be watched
	changed  chan struct{} // kubelet.sock may be a different one, or a socket was removed
	identity os.FileInfo   // kubelet.sock at the last look; nil if there was none
}

// watchDirectory watches until ctx ends. The path is as this process sees it, so the root of the watch is "/".
func watchDirectory(ctx context.Context, path string, t timing, log *slog.Logger) *directory {
	d := &directory{path: filepath.Clean(path), poll: t.poll, changed: make(chan struct{}, 1)}
	own, err := host.New("/")
	if err == nil {
		d.changes, err = own.Watch(ctx, d.path)
	}
	if err != nil {
		log.Warn("cannot watch the kubelet's directory, looking at it from time to time", "error", err)
	}
	return d
}

// run turns changes into signals until ctx ends.
func (d *directory) run(ctx context.Context) error {
	var look <-chan time.Time
	if d.changes == nil {
		ticker := time.NewTicker(d.poll)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look:
		case name, open := <-d.changes:
			if !open {
				return nil
			}
			if !d.matters(name) {
				continue
			}
		}
		signal(d.changed)
	}
}

// matters reports whether a change concerns the kubelet's socket, a removed socket, or the directory itself. The
// kubelet also writes its checkpoint into this directory.
func (d *directory) matters(name string) bool {
	if name == d.path || filepath.Base(name) == kubeletSocket {
		return true
	}
	_, err := os.Lstat(name)
	return err != nil && filepath.Ext(name) == ".sock"
}

// signal puts a value into a channel that has room for one, unless it is there already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look reports whether kubelet.sock exists, and whether it is a different one than at the last look: a kubelet
// creates a new socket when it starts.
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
