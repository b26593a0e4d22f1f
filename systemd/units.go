package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// busSocket is the system bus as a path on the machine.
const busSocket = "/run/dbus/system_bus_socket"

// Units controls units of the machine's service manager over D-Bus: it requests a job and waits for it to finish. It
// needs the right to manage units, which root has.
type Units struct{ dial func() (*dbus.Conn, error) }

// NewUnits returns the Units of a machine. path gets [busSocket], a path on that machine, and returns where this
// process finds it. The connection is made only when a method is called.
func NewUnits(path func(name string) (string, error)) *Units {
	return &Units{dial: func() (*dbus.Conn, error) {
		socket, err := path(busSocket)
		if err != nil {
			return nil, err
		}
		return dbus.NewConnection(func() (*godbus.Conn, error) {
			conn, err := godbus.Dial("unix:path=" + socket)
			if err != nil {
				return nil, err
			}
			if err := errors.Join(conn.Auth([]godbus.Auth{godbus.AuthExternal(fmt.Sprint(os.Geteuid()))}),
				conn.Hello()); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return conn, nil
		})
	}}
}

// Reload makes a unit reload its configuration in its own way.
func (u *Units) Reload(ctx context.Context, unit string) error {
	return u.job(ctx, "reload", unit, (*dbus.Conn).ReloadUnitContext)
}

// Restart stops a unit if it runs, and starts it. It returns when the unit reports that it is up, or has failed.
func (u *Units) Restart(ctx context.Context, unit string) error {
	return u.job(ctx, "restart", unit, (*dbus.Conn).RestartUnitContext)
}

// job requests a job and waits until it ends.
func (u *Units) job(ctx context.Context, verb, unit string,
	ask func(c *dbus.Conn, ctx context.Context, unit, mode string, done chan<- string) (int, error),
) error {
	conn, err := u.dial()
	if err != nil {
		return fmt.Errorf("cannot %s %q: %w", verb, unit, err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := ask(conn, ctx, unit, "replace", done); err != nil {
		return fmt.Errorf("cannot %s %q: %w", verb, unit, err)
	}
	select {
	case result := <-done:
		if result != "done" { // org.freedesktop.systemd1(5), JobRemoved
			return fmt.Errorf("cannot %s %q: the job ended as %q", verb, unit, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot %s %q: %w", verb, unit, ctx.Err())
	}
}

// FirstError returns the first message in the output of `journalctl -o json` that is an error: one of priority 3 or
// less, or one whose text says so, because container runtimes log everything at the priority of their stream. It is
// empty if there is none.
func FirstError(journal []byte) string {
	for _, line := range strings.Split(string(journal), "\n") {
		var entry struct {
			Message  any    `json:"MESSAGE"`
			Priority string `json:"PRIORITY"`
		}
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		text, ok := entry.Message.(string)
		if !ok { // bytes that are not text
			continue
		}
		if entry.Priority <= "3" && entry.Priority != "" || strings.Contains(text, "level=fatal") ||
			strings.Contains(text, "level=error") || strings.HasPrefix(text, "containerd: ") {
			return text
		}
	}
	return ""
}
