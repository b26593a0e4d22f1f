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
	if now, err = status(pid, "VmRSS"); err == nil {
		most, err = status(pid, "VmHWM")
	}
	return now, most, err
}

// FileMemory is the part of the resident memory, in bytes, that holds pages of files: of the program itself, which the
// kernel may drop and processes share.
func FileMemory(pid int) (float64, error) { return status(pid, "RssFile") }

// status is a size of proc_pid_status(5), in bytes.
func status(pid int, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("cannot read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(line, field+": %f kB", &kib); err == nil && kib > 0 {
			return kib * 1024, nil
		}
	}
	return 0, fmt.Errorf("cannot read the memory of process %d: it has none, so it has ended", pid)
}
