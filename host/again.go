package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Again replaces this process by another run of its program, with the same arguments and one more environment
// variable, "NAME=value", which is not set yet. The process ID and what holds it stay; open files, sockets and locks do
// not. It returns only an error.
func Again(variable string) error {
	name, err := os.Executable() // not the link in /proc, which would be the name of the process
	if err == nil {
		err = unix.Exec(name, os.Args, append(os.Environ(), variable))
	}
	return fmt.Errorf("cannot start %q again: %w", name, err)
}
