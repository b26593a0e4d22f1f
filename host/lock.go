package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/guard"
)

// Locks are locks on files of the machine, between processes.
type Locks struct{ h *Host }

// Locks returns the machine's locks.
func (h *Host) Locks() Locks { return Locks{h} }

// Take takes the exclusive lock (flock(2)) on the file name, which it creates if missing, and writes text into it for
// people. It waits until ctx ends. The lock ends when its holder calls release or dies.
func (l Locks) Take(ctx context.Context, name, text string) (release func(), err error) {
	f, err := l.h.create(name, unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	guard.Go(func() { got <- Flock(f, unix.LOCK_EX) })
	select {
	case err = <-got:
	case <-ctx.Done():
		guard.Go(func() { // flock cannot be cancelled: release a lock that comes late
			if err := <-got; err == nil {
				_ = Flock(f, unix.LOCK_UN) // closing does it too
			}
			_ = f.Close()
		})
		return nil, fmt.Errorf("cannot lock %q: %w", name, ctx.Err())
	}
	return locked(f, name, text, err)
}

// Try is [Locks.Take] without waiting: if another process holds the lock, the error's chain has EWOULDBLOCK.
func (l Locks) Try(name, text string) (release func(), err error) {
	f, err := l.h.create(name, unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return locked(f, name, text, Flock(f, unix.LOCK_EX|unix.LOCK_NB))
}

// Signal makes [Host.Watch] report the file name, which must exist, without changing it: closing a file that was open
// for writing is the event.
func (l Locks) Signal(name string) error {
	f, err := l.h.openFile(name, unix.O_RDWR|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	return f.Close()
}

// Held reports whether the lock on the file name is held. It is false also if that cannot be determined.
func (l Locks) Held(name string) bool {
	f, err := l.h.openFile(name, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer closeQuietly(f) // also releases the lock, if it was free
	return errors.Is(Flock(f, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func locked(f *os.File, name, text string, err error) (func(), error) {
	if err != nil {
		_ = f.Close() // the earlier error is the one that matters
		return nil, fmt.Errorf("cannot lock %q: %w", name, err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteString(text) // the text is a courtesy; the lock is what counts
	}
	return func() { _ = f.Close() }, nil
}

// Flock applies flock(2) to f. A signal does not interrupt it.
func Flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
