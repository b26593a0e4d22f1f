package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// requestTime is how long a client may take for a TLS handshake, for a request, and until its next request.
const requestTime = 5 * time.Second

// listen opens a port.
type listen = func(ctx context.Context) (net.Listener, error)

// port opens a TCP port.
func port(address string) listen {
	return func(ctx context.Context) (net.Listener, error) {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, accel.Problemf(accel.EndpointUnavailable, "cannot listen on %q: %v", address, err)
		}
		return l, nil
	}
}

// already returns a listener that is open, and opens another one if the server failed.
func already(l net.Listener, again func() (net.Listener, error)) listen {
	used := false
	return func(context.Context) (net.Listener, error) {
		if used {
			return again()
		}
		used = true
		return l, nil
	}
}

// NewRemoteEndpoint returns an endpoint for other machines on a listener, over TLS. It logs errors of clients to log
// at debug level.
func NewRemoteEndpoint(handler http.Handler, open listen, c *tls.Config, log *slog.Logger) Task {
	return newEndpoint("remote endpoint", handler, c, log, open)
}

// newEndpoint returns a task that opens a listener, serves read-only requests on it, over TLS if c is set, and closes
// it at the end. If log is not nil, it receives errors of clients at debug level.
func newEndpoint(name string, handler http.Handler, c *tls.Config, log *slog.Logger, open listen) Task {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return newTask(name, func(ctx context.Context) error {
		l, err := open(ctx)
		if err != nil {
			return err
		}
		limited := newConnections(ctx, l)
		if l = limited; c != nil {
			l = tls.NewListener(l, c)
		}
		server := &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: requestTime, // of a TLS handshake, too
			ReadTimeout:       requestTime,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       requestTime,
			MaxHeaderBytes:    16 << 10,
			ConnState:         limited.note,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		}
		return guard.Together(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return server.Close() // requests are short and read-only: nothing is lost
		}, func(context.Context) error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("cannot serve on %q: %w", l.Addr(), err)
			}
			return nil
		})
	})
}

// endpoint returns the tasks of the local endpoint: one for each listener, so that a port that another program has does
// not affect the unix socket.
func (a *Agent) endpoint() ([]Task, error) {
	inherited, err := a.sockets.Listeners("acceld.socket")
	if err != nil {
		return nil, err
	}
	var tasks []Task
	for _, l := range inherited {
		tasks = append(tasks, a.local("endpoint on "+l.Addr().String(), already(l, func() (net.Listener, error) {
			return nil, accel.Problemf(accel.EndpointUnavailable, "the socket of systemd is lost: restart the agent")
		})))
	}
	if len(tasks) > 0 {
		return tasks, nil
	}
	unix, err := a.unixSocket()
	if err != nil {
		return nil, err
	}
	tasks = []Task{a.local("local endpoint", already(unix, a.unixSocket))}
	if a.Config.Listen != "" {
		tasks = append(tasks, a.local("local port", port(a.Config.Listen)))
	}
	return tasks, nil
}

// local returns the task that serves everything on one listener.
func (a *Agent) local(name string, open listen) Task {
	return newEndpoint(name, a.exporter.Handler(), nil, a.Log, open)
}

// unixSocket creates the unix socket.
func (a *Agent) unixSocket() (net.Listener, error) {
	if err := a.Host.MkdirAll(filepath.Dir(a.Config.Socket), 0o755); err != nil {
		return nil, err
	}
	socket, err := a.Host.Path(a.Config.Socket)
	if err != nil {
		return nil, err
	}
	if err := a.Host.Remove(a.Config.Socket); err != nil { // we hold the agent's lock, so a dead agent left it
		return nil, err
	}
	unix, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", a.Config.Socket, err)
	}
	return unix, os.Chmod(socket, 0o660)
}
