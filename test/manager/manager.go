// Package manager plays the service manager of the machine for tests of a process that it starts: the notify socket,
// socket activation, and the file descriptor store (sd_notify(3), sd_listen_fds(3)).
package manager

import (
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Manager is a service manager of one service.
type Manager struct {
	t    testing.TB
	path string

	mu       sync.Mutex
	held     []held
	messages []string
	more     chan struct{} // closed by the next message
}

type held struct {
	name string
	file *os.File
}

// New returns a manager that holds nothing, until the test ends.
func New(t testing.TB) *Manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "manager") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{t: t, path: filepath.Join(dir, "notify"), more: make(chan struct{})}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); m.receive(conn) }()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
		for _, h := range m.held {
			_ = h.file.Close()
		}
		_ = os.RemoveAll(dir)
	})
	return m
}

// Socket is what NOTIFY_SOCKET is to be.
func (m *Manager) Socket() string { return m.path }

func (m *Manager) receive(conn *net.UnixConn) {
	text, oob := make([]byte, 4096), make([]byte, 256)
	for {
		n, oobn, _, _, err := conn.ReadMsgUnix(text, oob)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				m.t.Errorf("the manager's socket: %v", err)
			}
			return
		}
		message := string(text[:n])
		var name string
		for line := range strings.Lines(message) {
			if after, ok := strings.CutPrefix(strings.TrimSpace(line), "FDNAME="); ok {
				name = after
			}
		}
		control, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			m.t.Errorf("%q came with something that is no control message: %v", message, err)
		}
		m.mu.Lock()
		m.messages = append(m.messages, message)
		for _, c := range control {
			fds, err := unix.ParseUnixRights(&c)
			if err != nil {
				continue // credentials
			}
			for _, fd := range fds {
				m.held = append(m.held, held{name, os.NewFile(uintptr(fd), name)})
			}
		}
		close(m.more)
		m.more = make(chan struct{})
		m.mu.Unlock()
	}
}

// Messages are all so far, and a channel that is closed by the next one.
func (m *Manager) Messages() ([]string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.messages), m.more
}

// Held are the names of the connections that are held. Those whose other end is closed are dropped, as systemd does.
func (m *Manager) Held() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	var names []string
	for _, h := range m.held {
		names = append(names, h.name)
	}
	return names
}

// Release closes all that is held, as for a service that is stopped for good.
func (m *Manager) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.held {
		_ = h.file.Close()
	}
	m.held = nil
}

// drop closes what has hung up. The caller holds the lock.
func (m *Manager) drop() {
	m.held = slices.DeleteFunc(m.held, func(h held) bool {
		poll := []unix.PollFd{{Fd: int32(h.file.Fd())}}
		n, err := unix.Poll(poll, 0)
		if err != nil || n == 0 || poll[0].Revents&(unix.POLLHUP|unix.POLLERR) == 0 {
			return false
		}
		_ = h.file.Close()
		return true
	})
}

// Command is a program as the service manager starts it: with the listeners that it opened, files under names, and what
// is held.
func (m *Manager) Command(listeners map[string][]*os.File, program string, args ...string) *exec.Cmd {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	var names []string
	var files []*os.File
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		for _, f := range listeners[name] {
			names, files = append(names, name), append(files, f)
		}
	}
	for _, h := range m.held {
		names, files = append(names, h.name), append(files, h.file)
	}
	// The shell knows its own process id before it becomes the program.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, program}, args...)...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "LISTEN_FDS="+strconv.Itoa(len(files)),
		"LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.ExtraFiles = files
	return cmd
}
