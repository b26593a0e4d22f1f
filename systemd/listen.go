package systemd

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"
)

// Listeners takes the stream sockets that systemd opened for this service under one of the names (FileDescriptorName=
// of a socket unit; by default the name of the unit, such as "acceld.socket"), in the order of names and then of the
// unit's lines. Tell a unix socket from a port by Addr().Network(). Sockets of other names are closed. Without socket
// activation there are none, and the caller listens itself. It works once: it also clears the environment, so that
// no child takes the sockets for its own.
func Listeners(names ...string) ([]net.Listener, error) {
	named, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("cannot take the listeners of the service manager: %w", err)
	}
	var taken []net.Listener
	for _, name := range names {
		taken = append(taken, named[name]...)
	}
	var errs []error
	for name, listeners := range named {
		if slices.Contains(names, name) {
			continue
		}
		for _, l := range listeners {
			errs = append(errs, l.Close())
		}
	}
	return taken, errors.Join(errs...)
}
