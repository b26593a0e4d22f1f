package channel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
)

// Client is a connection to the server in a guest.
type Client struct {
	conn *ssh.Client
}

// greetingTimeout is how long a server that is there takes at most to say so. QEMU accepts a connection long before its
// guest can, and one that was made too early is answered late or never: better to end it and make another.
const greetingTimeout = time.Second

// greeted is a connection whose first bytes have arrived.
type greeted struct {
	net.Conn
	in *bufio.Reader
}

func (g greeted) Read(p []byte) (int, error) { return g.in.Read(p) }

func awaitGreeting(conn net.Conn) (net.Conn, error) {
	conn.SetReadDeadline(time.Now().Add(greetingTimeout))
	in := bufio.NewReader(conn)
	_, err := in.Peek(1)
	conn.SetReadDeadline(time.Time{})
	return greeted{conn, in}, err
}

// Dial connects once. The host key must be the expected one.
func Dial(ctx context.Context, address string, key ssh.Signer, host ssh.PublicKey) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the guest: %w", err)
	}
	conn, err = awaitGreeting(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot hear from the guest: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	config := &ssh.ClientConfig{
		User:            "root",
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: ssh.FixedHostKey(host),
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot talk to the guest: %w", err)
	}
	conn.SetDeadline(time.Time{})
	return &Client{conn: ssh.NewClient(c, channels, requests)}, nil
}

// Close ends the connection and every session in it.
func (c *Client) Close() { c.conn.Close() }

// Alive tells whether the server still answers within the time that ctx gives.
func (c *Client) Alive(ctx context.Context) bool {
	answer := make(chan error, 1)
	go func() {
		_, _, err := c.conn.SendRequest("keepalive@bed", true, nil)
		answer <- err
	}()
	select {
	case err := <-answer:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

// Dial opens a TCP connection from inside the guest.
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.conn.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %q inside the guest: %w", address, err)
	}
	return conn, nil
}

// Session is a request at work in the guest.
type Session struct {
	ch     ssh.Channel
	done   chan struct{}
	status int
	err    error
}

// Start sends a request and returns at once. The writers may be nil.
func (c *Client) Start(request Request, stdin io.Reader, stdout, stderr io.Writer) (*Session, error) {
	ch, requests, err := c.conn.OpenChannel("session", nil)
	if err != nil {
		return nil, fmt.Errorf("cannot open a session in the guest: %w", err)
	}
	ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(named{subsystem}))
	if err == nil && !ok {
		err = errors.New("the server refuses the subsystem")
	}
	if err == nil {
		err = request.write(ch)
	}
	if err != nil {
		ch.Close()
		return nil, fmt.Errorf("cannot start a session in the guest: %w", err)
	}
	s := &Session{ch: ch, done: make(chan struct{}), err: errors.New("the connection to the guest ended")}
	go func() {
		if stdin != nil {
			io.Copy(ch, stdin)
		}
		ch.CloseWrite()
	}()
	go s.collect(requests, stdout, stderr)
	return s, nil
}

func (s *Session) collect(requests <-chan *ssh.Request, stdout, stderr io.Writer) {
	defer close(s.done)
	if stdout == nil {
		stdout = io.Discard
	}
	if stderr == nil {
		stderr = io.Discard
	}
	copied := make(chan struct{}, 2)
	go func() { io.Copy(stdout, s.ch); copied <- struct{}{} }()
	go func() { io.Copy(stderr, s.ch.Stderr()); copied <- struct{}{} }()
	for r := range requests {
		var status exitStatus
		if r.Type == "exit-status" && ssh.Unmarshal(r.Payload, &status) == nil {
			s.status, s.err = int(status.Status), nil
		}
		if r.WantReply {
			r.Reply(true, nil)
		}
	}
	<-copied
	<-copied
}

// Wait returns the exit status; the error is about the connection, never about the status. When ctx ends first, the
// command is killed.
func (s *Session) Wait(ctx context.Context) (int, error) {
	select {
	case <-s.done:
		return s.status, s.err
	case <-ctx.Done():
		s.ch.Close()
		return -1, fmt.Errorf("cannot wait any longer: %w", context.Cause(ctx))
	}
}

// Done is closed when the request has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Signal sends a signal, named without SIG, to the command's process group.
func (s *Session) Signal(name string) error {
	if _, err := s.ch.SendRequest("signal", false, ssh.Marshal(signalName{name})); err != nil {
		return fmt.Errorf("cannot send signal %q: %w", name, err)
	}
	return nil
}

// Do sends a request and waits for its end.
func (c *Client) Do(ctx context.Context, request Request, stdin io.Reader) (stdout, stderr []byte, status int,
	err error,
) {
	var out, errs bytes.Buffer
	s, err := c.Start(request, stdin, &out, &errs)
	if err != nil {
		return nil, nil, -1, err
	}
	status, err = s.Wait(ctx)
	if ctx.Err() != nil {
		// The copying goroutines may still write to the buffers.
		<-s.done
	}
	return out.Bytes(), errs.Bytes(), status, err
}
