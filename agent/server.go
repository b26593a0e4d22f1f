package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Task is one long-running part of the agent. Run returns when ctx ends; a returned error ends the agent. A task that
// can recover does so inside Run.
type Task interface {
	Run(ctx context.Context) error
	// Ready is closed when the task first does its work.
	Ready() <-chan struct{}
	String() string
}

// Serve runs the tasks until ctx ends or one fails, and calls ready once when all of them are.
func Serve(ctx context.Context, log *slog.Logger, ready func(), tasks ...Task) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error {
			if err := t.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", t, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		for _, t := range tasks {
			select {
			case <-t.Ready():
			case <-ctx.Done():
				return nil
			}
		}
		log.Info("all tasks ready", "tasks", len(tasks))
		ready()
		return nil
	})
	return group.Wait()
}

// Unready names the tasks that are not ready; empty when all are.
func Unready(tasks []Task) string {
	var names []string
	for _, t := range tasks {
		select {
		case <-t.Ready():
		default:
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}

// Endpoint is a task that answers on listeners, reading only: the local ones, a unix socket and a loopback port, or the one for
// other machines.
type Endpoint struct {
	name      string
	handler   http.Handler
	listeners []net.Listener
	ready     chan struct{}
	log       *slog.Logger
}

// NewEndpoint returns an endpoint that serves handler on the listeners, which it closes in the end.
func NewEndpoint(handler http.Handler, listeners ...net.Listener) *Endpoint {
	return &Endpoint{name: "local endpoint", handler: handler, listeners: listeners, ready: make(chan struct{})}
}

// maxRemote connections from other machines are open at a time; further ones wait.
const maxRemote = 64

// NewRemoteEndpoint returns an endpoint for other machines on a listener that speaks TLS. What strangers do wrong is told to log,
// for developers.
func NewRemoteEndpoint(handler http.Handler, listener net.Listener, c *tls.Config, log *slog.Logger) *Endpoint {
	limited := tls.NewListener(netutil.LimitListener(listener, maxRemote), c)
	return &Endpoint{name: "remote endpoint", handler: handler, listeners: []net.Listener{limited}, ready: make(chan struct{}), log: log}
}

// String names the task.
func (e *Endpoint) String() string { return e.name }

// Ready is closed when the listeners are served.
func (e *Endpoint) Ready() <-chan struct{} { return e.ready }

// Run serves until ctx ends.
func (e *Endpoint) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           e.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	if e.log != nil {
		server.ErrorLog = slog.NewLogLogger(e.log.Handler(), slog.LevelDebug)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range e.listeners {
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("cannot serve on %q: %w", l.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return server.Close() // requests are short and reading only: nothing is lost
	})
	close(e.ready)
	return group.Wait()
}
