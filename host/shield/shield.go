// Package shield keeps a library of a vendor's, in a program that runs as root, from changing the host's /dev.
package shield

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// done is set in the environment of a program that has been started again.
const done = "ACCELD_SHIELDED"

// Start starts this program again with mounts of its own, in which /dev is read-only, and gives it its name for ps(1),
// which would be that of the link by which it was started, such as "exe". NVML, as root, makes nodes and links in /dev
// by itself (seen with 580: /dev/char/241:1 to /dev/nvidia-caps/nvidia-cap1), which nobody removes. Nodes can be opened
// as before, and those that the host gets later appear. Start returns an error if the program goes on unshielded, and
// nothing if it is shielded or has no rights to make nodes.
func Start(name string) error {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
	if os.Getenv(done) != "" || os.Geteuid() != 0 {
		return nil
	}
	runtime.LockOSThread() // unshare(2) is for one thread, and execve(2) keeps what that thread has
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot have mounts of its own: %w", err)
	}
	// What is mounted here must not show on the host, and what is unmounted there must not stay here.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cannot separate its mounts from the host's: %w", err)
	}
	if err := syscall.Mount("/dev", "/dev", "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("cannot mount /dev: %w", err)
	}
	const readOnly = syscall.MS_REMOUNT | syscall.MS_BIND | syscall.MS_RDONLY | syscall.MS_NOSUID
	if err := syscall.Mount("", "/dev", "", readOnly, ""); err != nil {
		return fmt.Errorf("cannot make /dev read-only: %w", err)
	}
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), done+"=1"))
	return fmt.Errorf("cannot start again: %w", err)
}
