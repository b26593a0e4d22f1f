package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// handedFor is how long a connection inherited from the previous process stays open until its name is served again. A
// kind that is not served by then will not be served soon, and the other end should notice. On a busy machine of two
// emulated processors, an agent was seen to need 20 s.
const handedFor = time.Minute

// Sockets are what the service manager holds for the service: the listeners that it opened (socket activation), and
// connections that outlive one process of the service (the file descriptor store: sd_notify(3), FDSTORE=1, and
// FileDescriptorStoreMax= of the unit). The other end of such a connection does not notice that the process was
// killed or restarted, and moves to the next process once that serves the same name again. The manager drops
// connections whose other end is closed, and all of them when the service is stopped without a restart. Without a
// service manager there are none, and a connection ends with the process as usual.
type Sockets struct {
	log       *slog.Logger
	over      <-chan struct{} // closed when this process is ending, perhaps to be replaced
	store     func(name string, c *net.UnixConn) error
	listeners map[string][]net.Listener
	patience  time.Duration // handedFor; shorter in tests

	mu     sync.Mutex
	handed map[string][]net.Conn
	failed bool // whether the last attempt to store failed
}

// ReceiveSockets takes the sockets that the service manager passed to this process. Until ctx ends, closing a kept
// connection ends it; after that, Close leaves it open for the next process. It works only once: it also clears the
// environment, so that no child process takes the sockets as its own.
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

// receive takes a duplicate of one socket.
func (s *Sockets) receive(f *os.File) error {
	c, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if c.RemoteAddr() == nil { // a listener
		l, err := net.FileListener(f)
		s.listeners[f.Name()] = append(s.listeners[f.Name()], l)
		return errors.Join(err, c.Close())
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.Join(fmt.Errorf("%s: a connection to %s, which no process of this service left", f.Name(),
			c.RemoteAddr()), c.Close())
	}
	s.hand(f.Name(), &kept{UnixConn: u, leaving: s.Leaving})
	return nil
}

// hand keeps a connection of the previous process under a name until it has ended.
func (s *Sockets) hand(name string, k *kept) {
	s.mu.Lock()
	s.handed[name] = append(s.handed[name], k)
	s.mu.Unlock()
	guard.Go(func() {
		k.await(s.patience)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handed[name] = slices.DeleteFunc(s.handed[name], func(c net.Conn) bool { return c == k })
	})
}

// Listeners returns the stream sockets that systemd opened under one of the names (FileDescriptorName= of a socket
// unit; by default the name of the unit, such as "acceld.socket"), in the order of names and then of the unit's
// lines. Addr().Network() tells unix sockets from TCP ports. Sockets of other names are closed. Without socket
// activation there are none, and the caller must listen itself.
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

// Keep makes the service manager hold c for the next process under a name without a colon, and returns the connection
// to use from then on. Closing that connection ends it, whoever else holds it. Without a manager it is c itself.
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

// Inherited returns the connections that the previous process kept under a name and that have not ended. What arrives
// on them is lost, because only the previous process knew how they began. They may be written to.
func (s *Sockets) Inherited(name string) []net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.handed[name])
}

// End ends the connections that the previous process kept under a name, because their service is available again or
// no longer exists. If nobody calls it, each ends by itself after a while.
func (s *Sockets) End(name string) {
	s.mu.Lock()
	ending := s.handed[name]
	delete(s.handed, name)
	s.mu.Unlock()
	for _, c := range ending {
		_ = c.Close() // the other end may have closed it already
	}
}

// Leaving reports whether this process is ending and leaves its kept connections to the next one.
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

// kept is a connection that the service manager holds as well, so that it does not end with this process's last
// descriptor.
type kept struct {
	*net.UnixConn
	leaving func() bool
}

// Close ends the connection, unless it is left to the next process. It may be called twice: an inherited connection
// is closed by await or by End, whichever comes first.
func (k *kept) Close() error {
	if !k.leaving() {
		_, _ = k.CloseWrite(), k.CloseRead() // fails if the other end has closed it, which is fine
	}
	if err := k.UnixConn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// await ends a connection inherited from the previous process when its other end is closed, or after patience. Data
// that arrives on it does not end it: the other end may be told to send it again elsewhere.
func (k *kept) await(patience time.Duration) {
	if err := k.SetReadDeadline(time.Now().Add(patience)); err == nil {
		_, _ = io.Copy(io.Discard, k.UnixConn) // until an error: either way it must end
	}
	_ = k.Close()
}
