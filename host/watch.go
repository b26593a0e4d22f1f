package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// watchPending is how many changed paths wait for a slow reader before each directory's own name stands for them.
const watchPending = 1024

// What is asked of the kernel for a directory, and for the one above it. A file is told when its writer closes it, not
// with each write: half a file is of use to nobody.
const (
	watchAbove = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_MASK_ADD
	watchHere = watchAbove | unix.IN_CLOSE_WRITE
	watchGone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT
)

// Watch tells what changes in the directories names, until ctx ends; then the channel is closed. It delivers the path,
// as the machine sees it, of an entry that was created, written and closed, renamed or removed, or the name of the
// directory itself: when it appeared, vanished or was replaced, or when the kernel lost events; the reader then reads
// the whole directory. Changes that the reader has not taken yet are delivered once. A directory may be absent: its
// nearest ancestor is watched until it is there. Changes of mode or owner alone are not told, nor is the renaming of a
// grandparent. One call is one inotify instance, whatever the number of names.
//
// It uses inotify without fsnotify, which keys its watches by path: a directory that is removed and made again at once
// (as kubelets do) left it with the watch on the old one. The kernel's watch descriptor tells the two apart.
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
	clear(w.waiting) // a first look is no change
	w.pending = nil
	out, events := make(chan string), make(chan []byte)
	go func() {
		defer close(events)
		for {
			buf := make([]byte, 4096)
			n, err := f.Read(buf)
			if err != nil || !send(ctx, events, buf[:n]) {
				return
			}
		}
	}()
	go func() {
		defer close(out)
		w.run(ctx, out, events)
		_ = f.Close() // ends the reading
	}()
	return out, nil
}

// none is no watch descriptor; the kernel's begin with 1.
const none = -1

// target is one directory that the caller named.
type target struct {
	name  string
	here  int    // the watch of the directory itself, or none
	above int    // the watch of its parent, or of the nearest ancestor that is there
	next  string // the entry of that directory on the way to name
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

// parse takes the buffer of one read apart (inotify(7)): descriptor, mask, cookie, length of name, name.
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
				t.here = none // the kernel ended it
				w.deliver(t.name)
			}
			_ = w.refresh(t) // what cannot be watched now is looked at again with the next event of an ancestor
		}
	}
}

// refresh watches where the target is now: the directory above it, then the directory. In this order nothing that
// appears in between is missed: the event of it comes through the upper watch.
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
		// An ancestor may have been made just before the watch that would have told it: look once more.
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

// add watches the directory name; none when it is not there.
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

// drop ends a watch that no target needs any more.
func (w *watcher) drop(wd int) {
	for _, t := range w.targets {
		if wd == none || wd == t.here || wd == t.above {
			return
		}
	}
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // the kernel may have ended it already
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
