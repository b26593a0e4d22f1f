package host

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnThread: a call that comes back, and one whose thread ends inside the kernel, which is what an oops does to it.
func TestOnThread(t *testing.T) {
	refused := errors.New("refused")
	for _, want := range []error{nil, refused} {
		if err := OnThread(func() error { return want }); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	if err := OnThread(func() error { time.Sleep(100 * time.Millisecond); return refused }); !errors.Is(err, refused) {
		t.Errorf("a slow call: %v", err)
	}
	err := OnThread(func() error {
		_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // this thread's end, not the process's
		return errno
	})
	if !errors.Is(err, ErrThreadDied) {
		t.Errorf("error %v, want %v", err, ErrThreadDied)
	}
	runtime.GC() // the others go on
}
