package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quiet returns standard output for the answer, and makes everything else that is written there go to standard error:
// libraries print.
func quiet() (*os.File, error) {
	answer, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.Dup3(2, 1, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep standard output for the answer: %w", err)
	}
	return os.NewFile(uintptr(answer), "answer"), nil
}

// confine gives up the capabilities of this thread, and the right to gain any by starting a program. The threads and
// the programs that a library starts inherit that from the thread that calls it. Libraries would otherwise create
// device nodes, themselves or through a setuid program, even if no driver is loaded.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot give up new privileges: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("cannot give up the capabilities: %w", err)
	}
	return nil
}

// crash lets a crash in a library end the process by its signal, without a core file. Go would write pages about
// goroutines first, behind which nobody finds what the library said last.
func crash() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("cannot do without core files: %w", err)
	}
	var standard [4]uint64 // struct sigaction of the kernel, with SIG_DFL
	for _, s := range []unix.Signal{
		unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGSEGV, unix.SIGSYS, unix.SIGTRAP,
	} {
		const setSize = 8                      // of sigset_t in the kernel
		action := unsafe.Pointer(&standard[0]) //nolint:gosec // the call takes the address of a structure
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(action), 0, setSize, 0, 0)
		if errno != 0 {
			return fmt.Errorf("cannot reset signal %d: %w", s, errno)
		}
	}
	return nil
}
