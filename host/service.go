package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	bus "github.com/godbus/dbus/v5"
)

// Service is a service that exists until it is stopped or the host is shut down: systemd keeps no file of it.
type Service struct {
	Name, Description string // Name ends in ".service"
	// Argv is the program, as a path on the host, and its arguments. Env are "NAME=value".
	Argv, Env []string
	// Forks says that the program goes to the background when it is ready.
	Forks bool
	// RuntimeDirectory is the name of a directory in /run that exists while the service does; none if empty.
	RuntimeDirectory string
}

// Services are the services of the host's systemd.
type Services struct{ h *Host }

// NewServices returns the services of a host's systemd, which is asked when a method is called.
func NewServices(h *Host) Services { return Services{h} }

// Available reports whether systemd runs the host (sd_booted(3)).
func (s Services) Available() bool { return s.h.Exists("/run/systemd/system") }

// Start starts a service that is not loaded. It returns when the program runs and, if it forks, is in the background.
// Systemd restarts it whenever it ends with an error, at most five times in ten seconds, and forgets it after that.
func (s Services) Start(ctx context.Context, o Service) error {
	return s.job(ctx, func(ctx context.Context, conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StartTransientUnitContext(ctx, o.Name, "fail", serviceProperties(o), done)
		return err
	})
}

// Stop stops a service and returns when it has no process any more. It is no error if there is no such service.
func (s Services) Stop(ctx context.Context, name string) error {
	return s.job(ctx, func(ctx context.Context, conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StopUnitContext(ctx, name, "replace", done)
		var answer bus.Error
		if errors.As(err, &answer) && answer.Name == "org.freedesktop.systemd1.NoSuchUnit" {
			done <- "done"
			return nil
		}
		return err
	})
}

// job asks systemd for a job and waits for its end.
func (s Services) job(ctx context.Context, ask func(context.Context, *dbus.Conn, chan<- string) error) error {
	conn, err := dialSystemd(ctx, s.h)
	if err != nil {
		return fmt.Errorf("cannot reach systemd: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, serviceTime)
	defer cancel()
	done := make(chan string, 1)
	if err := ask(ctx, conn, done); err != nil {
		return err
	}
	return jobDone(ctx, done)
}

// serviceTime limits the start and the stop of a service. Systemd itself gives up after 90 seconds and kills.
const serviceTime = 2 * time.Minute

// serviceProperties returns properties of systemd.service(5) and systemd.exec(5), with the types of
// org.freedesktop.systemd1(5).
func serviceProperties(o Service) []dbus.Property {
	kind := "exec"
	if o.Forks {
		kind = "forking"
	}
	out := []dbus.Property{
		dbus.PropDescription(o.Description), dbus.PropType(kind), dbus.PropExecStart(o.Argv, false),
		property("Environment", o.Env), property("CollectMode", "inactive-or-failed"), property("Restart", "on-failure"),
		property("RestartUSec", uint64(1_000_000)), property("NoNewPrivileges", true), property("ProtectHome", "yes"),
	}
	if o.RuntimeDirectory != "" {
		out = append(out, property("RuntimeDirectory", []string{o.RuntimeDirectory}))
	}
	return out
}
