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
