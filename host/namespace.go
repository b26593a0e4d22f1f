package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/vishvananda/netns"

	"github.com/acceld/acceld/guard"
)

// inNetwork runs f in the network namespace of the host's process 1. If this process is in another one, f runs on a
// thread that exits with it, so that no other goroutine ever runs in a namespace that it did not choose. inNetwork
// fails without running f if the namespace is unknown or may not be entered. There is one exception: if the root is
// "/" and this process may not inspect process 1, this process is a user's command and already in the machine's
// namespace.
func (k Kernel) inNetwork(f func() error) error {
	name, err := k.h.parent("/proc/1/ns/net") // the last element is a magic link, not a path: it must not be resolved
	if err != nil {
		return err
	}
	theirs, err := os.Stat(name)
	if k.h.root == "/" && errors.Is(err, fs.ErrPermission) {
		return f()
	}
	if err != nil {
		return fmt.Errorf("cannot tell the network namespace of process 1: %w", Relabel(err, "/proc/1/ns/net"))
	}
	if ours, err := os.Stat("/proc/self/ns/net"); err == nil && os.SameFile(theirs, ours) {
		return f()
	}
	ns, err := netns.GetFromPath(name)
	if err != nil {
		return fmt.Errorf("cannot open the network namespace of process 1: %w", err)
	}
	defer ns.Close()
	done := make(chan error)
	guard.Go(func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if err := netns.Set(ns); err != nil {
			done <- fmt.Errorf("cannot enter the network namespace of process 1: %w", os.NewSyscallError("setns", err))
			return
		}
		done <- guard.Try(f)
	})
	return <-done
}
