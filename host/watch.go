package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/guard"
)

// watchPending is how many changed paths are queued for a slow reader. Beyond it, they are replaced by the names of
// the watched directories.
const watchPending = 1024

// The inotify events for a watched directory and for its parent. A changed file is reported when its writer closes it,
// not on each write, because a half-written file is of no use.
const (
	watchAbove = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_MASK_ADD
	watchHere = watchAbove | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	watchGone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT
)

// Watch reports changes in the directories names until ctx ends, then closes the channel. It delivers the path, as the
// machine sees it, of an entry that was created, written and closed, renamed or removed, or whose mode or owner
// changed. It delivers the name of a directory itself if the directory appeared, vanished or was replaced, or if the
// kernel lost events; the reader must then read the whole directory. Changes that the reader has not received yet are
// delivered once. If a directory does not exist, its nearest ancestor is watched until it does. The renaming of a
// grandparent is not reported. Each call uses one inotify instance, whatever the number of names.
//
// Watch uses inotify without fsnotify, because fsnotify keys its watches by path: when a directory was removed and
// created again at once (as kubelets do), the watch stayed on the old one. The kernel's watch descriptor tells the two
// apart.
func (h *Host) Watch(ctx context.Context, names ...string) (<-chan string, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %q: %w", names, os.NewSyscallError("inotify_init1", err))
	}
	f := os.NewFile(uintptr(fd), "inotify")
	w := &watcher{h: h, fd: fd, waiting: map[string]bool{}}
	for _, n := range names {
		w.targets = append(w.targets, &target{name: path.Clean("/" + n), here: none, above: none})
	}
	for _, t := range w.targets {
		if err := w.refresh(t); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("cannot watch %q: %w", t.name, err)
		}
	}
	clear(w.waiting) // the first look is not a change
	w.pending = nil
	out, events := make(chan string), make(chan []byte)
	guard.Go(func() {
		defer close(events)
		for {
			buf := make([]byte, 4096)
			n, err := f.Read(buf)
			if err != nil || !send(ctx, events, buf[:n]) {
				return
			}
		}
	})
	guard.Go(func() {
		defer close(out)
		guard.Keep(ctx, "watch of "+strings.Join(names, ", "), func(ctx context.Context) error {
			w.run(ctx, out, events)
			return nil
		})
		_ = f.Close() // ends the reading
	})
	return out, nil
}

// none means no watch descriptor; the kernel's begin with 1.
const none = -1

// target is one directory that the caller named.
type target struct {
	name  string
	here  int    // the watch of the directory itself, or none
	above int    // the watch of its parent, or of the nearest existing ancestor
	next  string // the entry of that ancestor on the way to name
}

// watcher is the state of one Watch; only the goroutine of run touches it.
type watcher struct {
	h       *Host
	fd      int
	targets []*target
	pending []string        // paths to deliver, oldest first
	waiting map[string]bool // the same as a set
}

func (w *watcher) run(ctx context.Context, out chan<- string, events <-chan []byte) {
	for {
		var ready chan<- string
		var first string
		if len(w.pending) > 0 {
			ready, first = out, w.pending[0]
		}
		select {
		case <-ctx.Done():
			return
		case ready <- first:
			w.pending = w.pending[1:]
			delete(w.waiting, first)
		case b, ok := <-events:
			if !ok {
				return
			}
			w.parse(b)
		}
	}
}

// parse splits the buffer of one read into events (inotify(7)): descriptor, mask, cookie, length of name, name.
func (w *watcher) parse(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int(int32(binary.NativeEndian.Uint32(b))), binary.NativeEndian.Uint32(b[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			return
		}
		name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
		b = b[end:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			for _, t := range w.targets {
				_ = w.refresh(t)
				w.deliver(t.name)
			}
			continue
		}
		w.event(wd, mask, name)
	}
}

// event turns one event of the kernel into paths to deliver.
func (w *watcher) event(wd int, mask uint32, name string) {
	for _, t := range w.targets {
		if wd == t.here && name != "" {
			w.deliver(path.Join(t.name, name))
		}
		if wd == t.above && name == t.next || (wd == t.here || wd == t.above) && mask&watchGone != 0 {
			if mask&unix.IN_IGNORED != 0 && wd == t.here {
				t.here = none // the kernel removed the watch
				w.deliver(t.name)
			}
			_ = w.refresh(t) // on failure, the next event of an ancestor tries again
		}
	}
}

// refresh watches the target's current place: first the directory above it, then the directory itself. In this order
// nothing is missed: if the directory appears in between, the upper watch reports it.
func (w *watcher) refresh(t *target) error {
	oldHere, oldAbove := t.here, t.above
	for {
		before := t.above
		var err error
		t.above = none
		for p := t.name; p != "/" && t.above == none; p = path.Dir(p) {
			t.next = path.Base(p)
			if t.above, err = w.add(path.Dir(p), watchAbove); err != nil {
				return err
			}
		}
		if t.here, err = w.add(t.name, watchHere); err != nil {
			return err
		}
		// An ancestor may have been created just before the watch that would have reported it, so look once more.
		if t.above == before || t.next == path.Base(t.name) {
			break
		}
	}
	if t.here != oldHere {
		w.deliver(t.name)
	}
	w.drop(oldHere)
	w.drop(oldAbove)
	return nil
}

// add watches the directory name. It returns none if name does not exist.
func (w *watcher) add(name string, mask uint32) (int, error) {
	p, err := w.h.Path(name)
	if err != nil {
		return none, err
	}
	wd, err := unix.InotifyAddWatch(w.fd, p, mask)
	switch {
	case err == nil:
		return wd, nil
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return none, nil
	}
	return none, &os.PathError{Op: "watch", Path: name, Err: err}
}

// drop removes a watch that no target needs any more.
func (w *watcher) drop(wd int) {
	for _, t := range w.targets {
		if wd == none || wd == t.here || wd == t.above {
			return
		}
	}
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // the kernel may have removed it already
}

// deliver queues name once.
func (w *watcher) deliver(name string) {
	if w.waiting[name] {
		return
	}
	if len(w.pending) >= watchPending {
		clear(w.waiting)
		w.pending = nil
		for _, t := range w.targets {
			w.waiting[t.name] = true
			w.pending = append(w.pending, t.name)
		}
		return
	}
	w.waiting[name] = true
	w.pending = append(w.pending, name)
}
