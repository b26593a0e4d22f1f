package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// otherThread is the exit status of a program whose main is not on its first thread. Main starts there and is moved
// when it has to wait, such as for a processor that another program uses.
const otherThread = 2

// TestMain is also the program of TestOnFirstThread, and the process that enters a [Root].
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == RootCommand {
		os.Exit(RootMain(os.Stdin))
	}
	if os.Getenv(firstThreadEnds) != "" {
		endFirstThread()
	}
	if os.Getenv("ACCELD_TEST_FIRST_THREAD") == "" {
		os.Exit(m.Run())
	}
	if unix.Gettid() != unix.Getpid() {
		fmt.Println("this is another thread")
		os.Exit(otherThread)
	}
	if err := loseThread(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// TestOnThread: a call that returns, and a call whose thread ends inside the kernel, as after an oops.
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
	if err := loseThread(); err != nil {
		t.Error(err)
	}
	runtime.GC() // the others go on
}

// TestOnFirstThread: called from a program's first thread, on which Go would run the next goroutine, OnThread uses
// another one.
func TestOnFirstThread(t *testing.T) {
	for tries := 1; ; tries++ {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "ACCELD_TEST_FIRST_THREAD=1")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if cmd.ProcessState.ExitCode() != otherThread || tries == 50 {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func loseThread() error {
	err := OnThread(func() error {
		_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // ends this thread, not the process
		return errno
	})
	if !errors.Is(err, ErrThreadDied) {
		return fmt.Errorf("error %w, want %w", err, ErrThreadDied)
	}
	_, err = os.Stat("/proc/self/fd/0")
	return err
}
