package host

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel is the running kernel: its modules, its log, its events, and what it answers to system calls.
type Kernel struct{ h *Host }

// Kernel returns the machine's kernel.
func (h *Host) Kernel() Kernel { return Kernel{h} }

// Arch returns the machine's architecture as printed by uname -m, such as "x86_64"; empty for a copy of a machine.
func (k Kernel) Arch() string {
	var u unix.Utsname
	if !k.h.Live() || unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Machine[:])
}

// Memory returns the memory of the running machine in bytes, or 0 if unknown.
func (k Kernel) Memory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(i.Totalram) * int64(i.Unit)
}

// Uptime returns how long ago the kernel started.
func (k Kernel) Uptime() (time.Duration, error) {
	s, err := k.h.ReadAttribute("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(s, " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read %q: %w", "/proc/uptime", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
