package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/guard"
)

// LoadModule loads the uncompressed kernel module in f into the running kernel with finit_module(2). It sets no flags,
// so neither the module's version nor its symbol versions are ever ignored. Parameters are "name=value", separated by
// spaces. It blocks while the module initialises, possibly forever, so a long-lived process calls it in a helper. The
// error has the kernel's errno in its chain.
func (k Kernel) LoadModule(f *os.File, parameters string) error {
	if !k.h.Live() {
		return fmt.Errorf("cannot load a module: host root %q is not the running machine: %w", k.h.root, unix.EPERM)
	}
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil {
		return fmt.Errorf("cannot load %q: %w", f.Name(), err)
	}
	return nil
}

// DeleteModule removes the module name from the running kernel with delete_module(2). It never forces the removal and
// never waits for users of the module: if there are any, the error's chain has EAGAIN.
func (k Kernel) DeleteModule(name string) error {
	if !k.h.Live() {
		return fmt.Errorf("cannot remove module %q: host root %q is not the running machine: %w", name, k.h.root,
			unix.EPERM)
	}
	if err := unix.DeleteModule(name, unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("cannot remove module %q: %w", name, err)
	}
	return nil
}

// ErrThreadDied means that a call never returned because the kernel killed the thread that made it.
var ErrThreadDied = errors.New("the kernel killed the thread that called it")

// OnThread makes a system call on a thread of its own and watches that thread: an oops kills the thread that hits it,
// not the process, and nothing else reports it. The error is the call's or [ErrThreadDied].
func OnThread(call func() error) error {
	thread, done := make(chan int, 1), make(chan error, 1)
	onSpareThread(func() {
		thread <- unix.Gettid()
		done <- call()
	})
	stat := fmt.Sprintf("/proc/self/task/%d/stat", <-thread)
	for dead := false; ; {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Millisecond): // before Linux 6.9 no descriptor signals the end of a thread
		}
		if dead { // and call has not returned since the thread was seen dead
			return ErrThreadDied
		}
		text, err := os.ReadFile(stat)
		state := text[bytes.LastIndexByte(text, ')')+1:] // proc_pid_stat(5); the first thread stays, as a zombie
		dead = err != nil || bytes.HasPrefix(state, []byte(" Z")) || bytes.HasPrefix(state, []byte(" X"))
	}
}

// onSpareThread starts f on a thread that exits with f. It never uses the process's first thread: when that exits, the
// process no longer has anything below /proc/self/fd.
func onSpareThread(f func()) {
	started := make(chan struct{})
	guard.Go(func() {
		runtime.LockOSThread() // never unlocked before f: the thread exits with the goroutine
		if unix.Gettid() == unix.Getpid() {
			onSpareThread(f) // cannot get this thread while this goroutine is locked to it
			runtime.UnlockOSThread()
			close(started)
			return
		}
		close(started)
		f()
	})
	<-started
}

// MemoryFile returns an anonymous in-memory file with what write puts into it. The file is open for reading and
// sealed, so that nobody can change it any more, and [Kernel.LoadModule] accepts it. Name is for people.
func MemoryFile(name string, write func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer closeQuietly(f)
	if err := write(f); err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("cannot seal a file in memory: %w", err)
	}
	// finit_module(2) rejects a file that is open for writing (ETXTBSY).
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot open a file in memory again: %w", err)
	}
	return r, nil
}

// KernelTail is the kernel log from one moment on, read on demand. What the kernel logged during a call is there when
// the call returns. A channel that another goroutine fills cannot guarantee that.
type KernelTail struct {
	fd   int
	rest string // an incomplete record, if the log is a plain file
}

// Tail opens /dev/kmsg at its current end: everything that is read later was written after this call.
func (k Kernel) Tail() (*KernelTail, error) { return k.log(unix.SEEK_END) }

// Lines returns the text of all of the kernel's own messages that are still in the log, oldest first, without
// waiting.
func (k Kernel) Lines() ([]string, error) {
	all, err := k.log(unix.SEEK_SET)
	if err != nil {
		return nil, err
	}
	return all.Lines(), all.Close()
}

func (k Kernel) log(whence int) (*KernelTail, error) {
	p, err := k.h.Path("/dev/kmsg")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %q: %w", "/dev/kmsg", err)
	}
	if _, err := unix.Seek(fd, 0, whence); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, fmt.Errorf("cannot seek in %q: %w", "/dev/kmsg", err)
	}
	return &KernelTail{fd: fd}, nil
}

// Lines returns the text of the kernel's own messages since the last call, oldest first, without waiting.
func (t *KernelTail) Lines() []string {
	var text strings.Builder
	text.WriteString(t.rest)
	t.rest = ""
	buf := make([]byte, 8192) // the kernel never returns a longer record (CONSOLE_EXT_LOG_MAX)
	for {
		n, err := unix.Read(t.fd, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EPIPE) { // EPIPE: records were overwritten; go on
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		text.Write(buf[:n])
	}
	all := text.String()
	if i := strings.LastIndexByte(all, '\n'); i >= 0 {
		all, t.rest = all[:i], all[i+1:]
	} else {
		all, t.rest = "", all
	}
	var lines []string
	for record := range strings.SplitSeq(all, "\n") {
		if strings.HasPrefix(record, " ") { // the record's fields
			continue
		}
		// A message that a process wrote to the log proves nothing about a module.
		if r, ok := parseKmsg([]byte(record)); ok && r.Facility == 0 {
			lines = append(lines, r.Text)
		}
	}
	return lines
}

// Close closes the log.
func (t *KernelTail) Close() error { return unix.Close(t.fd) }
