package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestListenersOfOthers: a socket that nobody takes is closed, so that its clients do not wait forever.
func TestListenersOfOthers(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	mine, theirs := listen("mine"), listen("theirs")
	s := &Sockets{listeners: map[string][]net.Listener{"acceld.socket": {mine}, "other.socket": {theirs}}}
	taken, err := s.Listeners("acceld.socket")
	if err != nil || len(taken) != 1 || taken[0] != mine {
		t.Fatalf("%v, %v", taken, err)
	}
	if c, err := net.Dial("unix", filepath.Join(dir, "theirs")); err == nil {
		_ = c.Close()
		t.Error("a socket that nobody took is open")
	}
	if c, err := net.Dial("unix", filepath.Join(dir, "mine")); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

// TestEndEnds: End ends only what the previous process kept under that name.
func TestEndEnds(t *testing.T) {
	s := &Sockets{handed: map[string][]net.Conn{}}
	var ends []net.Conn
	for _, name := range []string{"a", "a", "b"} {
		ours, theirs := net.Pipe()
		s.handed[name] = append(s.handed[name], ours)
		ends = append(ends, theirs)
	}
	s.End("a")
	s.End("nobody")
	for i, want := range []bool{true, true, false} {
		err := ends[i].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if err == nil {
			_, err = ends[i].Read(make([]byte, 1))
		}
		if ended := !errors.Is(err, os.ErrDeadlineExceeded); ended != want {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if len(s.handed["a"]) != 0 || len(s.handed["b"]) != 1 {
		t.Errorf("left: %v", s.handed)
	}
}
