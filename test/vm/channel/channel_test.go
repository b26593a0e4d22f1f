package channel

import (
	"context"
	"crypto/ed25519"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func connect(t *testing.T) *Client {
	t.Helper()
	host, user := newKey(t), newKey(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go Serve(l, host, user.PublicKey())
	if _, err := Dial(t.Context(), l.Addr().String(), newKey(t), host.PublicKey()); err == nil {
		t.Fatal("a stranger's key was accepted")
	}
	c, err := Dial(t.Context(), l.Addr().String(), user, host.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestCommand(t *testing.T) {
	c := connect(t)
	out, errs, status, err := c.Do(t.Context(),
		Request{Argv: []string{"sh", "-c", `cat; printf %s "$1" >&2; exit 3`, "sh", "a b;'c"}}, strings.NewReader("in"))
	if err != nil || string(out) != "in" || string(errs) != "a b;'c" || status != 3 {
		t.Fatalf("got %q, %q, %d, %v", out, errs, status, err)
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	_, errs, status, err := connect(t).Do(t.Context(), Request{Argv: []string{"/no/such/program"}}, nil)
	if err != nil || status != 127 || !strings.Contains(string(errs), "cannot start") {
		t.Fatalf("got %q, %d, %v", errs, status, err)
	}
}

func TestFiles(t *testing.T) {
	c, path := connect(t), filepath.Join(t.TempDir(), "new", "file")
	if _, errs, status, err := c.Do(t.Context(), Request{Put: path, Mode: 0o700},
		strings.NewReader("content")); err != nil || status != 0 {
		t.Fatalf("cannot put: %s, %d, %v", errs, status, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o700 {
		t.Fatalf("got %v, %v", info, err)
	}
	out, _, status, err := c.Do(t.Context(), Request{Get: path}, nil)
	if err != nil || status != 0 || string(out) != "content" {
		t.Fatalf("got %q, %d, %v", out, status, err)
	}
}

func TestSignalAndCancel(t *testing.T) {
	c := connect(t)
	s, err := c.Start(Request{Argv: []string{"sleep", "60"}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal("TERM"); err != nil {
		t.Fatal(err)
	}
	if status, err := s.Wait(t.Context()); err != nil || status != 128+15 {
		t.Fatalf("got %d, %v", status, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, _, err := c.Do(ctx, Request{Argv: []string{"sleep", "60"}}, nil); err == nil {
		t.Fatal("a command outlived its context")
	}
	if !c.Alive(t.Context()) {
		t.Fatal("the connection did not survive")
	}
}

func TestDial(t *testing.T) {
	c := connect(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Write([]byte("hello"))
			conn.Close()
		}
	}()
	conn, err := c.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := conn.Read(answer); err != nil || string(answer) != "hello" {
		t.Fatalf("got %q, %v", answer, err)
	}
}
