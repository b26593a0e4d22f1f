package host

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime calls f and returns how long a processor worked for it, whatever else the machine had to do meanwhile.
// What f starts in other goroutines does not count.
func ProcessorTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	f()
	return threadTime() - before
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails only for clocks and addresses that do not exist
	return time.Duration(t.Nano())
}
