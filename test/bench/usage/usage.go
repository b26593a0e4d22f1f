// Package usage reads what a running process has used, for measurements. It changes nothing.
package usage

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Processor is the time for which all threads of a process have run, those that have ended too.
func Processor(pid int) (time.Duration, error) {
	var used unix.Timespec
	// The clock of another process (clock_getcpuclockid(3)): the inverted id, and 2 for all of its threads.
	if err := unix.ClockGettime(int32(^pid<<3|2), &used); err != nil {
		return 0, fmt.Errorf("cannot read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// Memory is the resident memory of a process in bytes, now and at most so far.
func Memory(pid int) (now, most float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			now = kib * 1024
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			most = kib * 1024
		}
	}
	if now == 0 || most == 0 {
		return 0, 0, fmt.Errorf("cannot read the memory of process %d: it has none, so it has ended", pid)
	}
	return now, most, nil
}
