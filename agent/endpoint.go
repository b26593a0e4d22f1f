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

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// maxRemote is how many connections from other machines may be open at a time; further ones wait.
const maxRemote = 64

// NewRemoteEndpoint returns an endpoint for other machines on a listener, over TLS. It logs errors of clients to log
// at debug level.
func NewRemoteEndpoint(handler http.Handler, listener net.Listener, c *tls.Config, log *slog.Logger) Task {
	return newEndpoint("remote endpoint", handler, log, tls.NewListener(netutil.LimitListener(listener, maxRemote), c))
}

// newEndpoint returns a task that serves read-only requests on listeners, and closes them at the end. If log is not
// nil, it receives errors of clients at debug level.
func newEndpoint(name string, handler http.Handler, log *slog.Logger, listeners ...net.Listener) Task {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	if log != nil {
		server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	}
	return newTask(name, func(ctx context.Context) error { return serve(ctx, server, listeners) })
}

// serve serves on listeners until ctx ends.
func serve(ctx context.Context, server *http.Server, listeners []net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("cannot serve on %q: %w", l.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return server.Close() // requests are short and read-only: nothing is lost
	})
	return group.Wait()
}

// listeners returns the listeners that systemd passed, or else our own.
func (a *Agent) listeners() ([]net.Listener, error) {
	inherited, err := a.sockets.Listeners("acceld.socket")
	if err != nil || len(inherited) > 0 {
		return inherited, err
	}
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
	if err := os.Chmod(socket, 0o660); err != nil {
		return nil, err
	}
	out := []net.Listener{unix}
	if a.Config.Listen != "" {
		tcp, err := net.Listen("tcp", a.Config.Listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %q: %w", a.Config.Listen, err)
		}
		out = append(out, tcp)
	}
	return out, nil
}
