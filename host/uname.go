package host

import "golang.org/x/sys/unix"

// Arch returns the machine's architecture as uname -m says it, such as "x86_64"; empty for a copy of a machine.
func (h *Host) Arch() string {
	var u unix.Utsname
	if !h.Live() || unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Machine[:])
}

// Memory returns the memory of this machine in bytes, 0 when it does not say.
func (h *Host) Memory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(i.Totalram) * int64(i.Unit)
}
