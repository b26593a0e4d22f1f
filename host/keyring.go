package host

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Keyring returns the serial numbers of the keys in a keyring of the running kernel, as /proc/keys shows them in its
// first column. It needs the right to read the keyring, which root has for the kernel's own.
func (k Kernel) Keyring(serial int32) ([]int32, error) {
	if !k.h.Live() {
		return nil, fmt.Errorf("cannot read keyring %08x: host root %q is not the running machine: %w", serial, k.h.root,
			unix.EPERM)
	}
	const most = 4096 // keys; the kernel's own keyrings have a handful
	buf := make([]byte, 4*most)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, int(serial), buf, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read keyring %08x: %w", serial, err)
	}
	var out []int32
	for b := buf[:min(n, len(buf))]; len(b) >= 4; b = b[4:] {
		out = append(out, int32(binary.NativeEndian.Uint32(b)))
	}
	return out, nil
}
