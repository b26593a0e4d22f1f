package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/acceld/acceld/host"
)

// handedFor is how long a connection of the process before waits for somebody who serves its name again. A kind that is
// not served by then is not going to be in a moment, and whoever is at the other end should know.
const handedFor = 10 * time.Second

// Sockets are what the service manager holds for the service: the listeners that it opened (socket activation), and
// connections that outlive one process of the service (the file descriptor store: sd_notify(3), FDSTORE=1, and
// FileDescriptorStoreMax= of the unit). Whoever is at the other end of such a connection does not notice that the
// process was killed or restarted, and goes on with the next one as soon as that has something to offer in its place.
// The manager drops connections whose other end is closed, and all of them when the service is stopped without being
// started again. Without a service manager there are none, and a connection ends with the process as any other.
type Sockets struct {
	log       *slog.Logger
	over      <-chan struct{} // this process ends, perhaps for another one
	store     func(name string, c *net.UnixConn) error
	listeners map[string][]net.Listener
	patience  time.Duration // handedFor, less in tests

	mu     sync.Mutex
	handed map[string][]net.Conn
	failed bool // to store, the last time
}

// ReceiveSockets takes what the service manager passed to this process. Until ctx ends, a connection that is closed has
// ended; from then on it is left to the next process. It works once: it also clears the environment, so that no child
// takes the sockets for its own.
func ReceiveSockets(ctx context.Context, log *slog.Logger) (*Sockets, error) {
	s := &Sockets{
		log: log, over: ctx.Done(), listeners: map[string][]net.Listener{}, patience: handedFor,
		handed: map[string][]net.Conn{},
	}
	if manager := os.Getenv("NOTIFY_SOCKET"); manager != "" {
		s.store = func(name string, c *net.UnixConn) error { return host.Pass(manager, "FDSTORE=1\nFDNAME="+name, c) }
	}
	var errs []error
	for _, f := range activation.Files(true) {
		errs = append(errs, s.receive(f), f.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cannot take the sockets of the service manager: %w", err)
	}
	return s, nil
}

// receive takes a copy of one socket.
func (s *Sockets) receive(f *os.File) error {
	c, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if c.RemoteAddr() == nil { // it listens
		l, err := net.FileListener(f)
		s.listeners[f.Name()] = append(s.listeners[f.Name()], l)
		return errors.Join(err, c.Close())
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.Join(fmt.Errorf("%s: a connection to %s, which no process of this service left", f.Name(),
			c.RemoteAddr()), c.Close())
	}
	k := &kept{UnixConn: u, leaving: s.Leaving}
	s.handed[f.Name()] = append(s.handed[f.Name()], k)
	go k.await(s.patience)
	return nil
}

// Listeners are the stream sockets that systemd opened under one of the names (FileDescriptorName= of a socket unit; by
// default the name of the unit, such as "acceld.socket"), in the order of names and then of the unit's lines. Tell a
// unix socket from a port by Addr().Network(). Sockets of other names are closed. Without socket activation there are
// none, and the caller listens itself.
func (s *Sockets) Listeners(names ...string) ([]net.Listener, error) {
	var taken []net.Listener
	for _, name := range names {
		taken = append(taken, s.listeners[name]...)
	}
	var errs []error
	for name, listeners := range s.listeners {
		if slices.Contains(names, name) {
			continue
		}
		for _, l := range listeners {
			errs = append(errs, l.Close())
		}
	}
	return taken, errors.Join(errs...)
}

// Keep has the service manager hold c under a name, which has no colon, for the next process, and returns c as it is to
// be used from then on. Closing that ends the connection, whoever else holds it. Without a manager it is c.
func (s *Sockets) Keep(name string, c *net.UnixConn) net.Conn {
	if s.store == nil {
		return c
	}
	err := s.store(name, c)
	s.mu.Lock()
	before := s.failed
	s.failed = err != nil
	s.mu.Unlock()
	if err != nil {
		if !before {
			s.log.Warn("the service manager keeps no connections", "name", name, "error", err)
		}
		return c
	}
	return &kept{UnixConn: c, leaving: s.Leaving}
}

// End ends the connections that the process before this one kept under a name, because what was served on them is
// served again, or not any more. Nobody can answer on them: one on which something is asked ends by itself, and so does
// one that nobody ended for a while.
func (s *Sockets) End(name string) {
	s.mu.Lock()
	ending := s.handed[name]
	delete(s.handed, name)
	s.mu.Unlock()
	for _, c := range ending {
		_ = c.Close() // the other end may have closed it before
	}
}

// Leaving reports that this process ends, and leaves the connections that are kept to the next one.
func (s *Sockets) Leaving() bool {
	if s.store == nil {
		return false
	}
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// kept is a connection that the service manager holds too, so that it does not end with the last descriptor of this
// process.
type kept struct {
	*net.UnixConn
	leaving func() bool
}

// Close ends the connection, unless the next process is to have it. One that has ended may be closed again: what was
// handed over is closed by whoever sees its end first.
func (k *kept) Close() error {
	if !k.leaving() {
		_, _ = k.CloseWrite(), k.CloseRead() // fails where the other end has closed it, which is as well
	}
	if err := k.UnixConn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// await ends a connection of the process before when something is asked on it, when its other end is closed, or when
// its time is over.
func (k *kept) await(patience time.Duration) {
	if err := k.SetReadDeadline(time.Now().Add(patience)); err == nil {
		_, _ = k.Read(make([]byte, 1)) // whatever it is, it is the end
	}
	_ = k.Close()
}
