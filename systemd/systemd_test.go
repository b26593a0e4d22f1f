package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/test/manager"
)

func TestNotifier(t *testing.T) {
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)

	n := NewNotifier(slog.New(slog.DiscardHandler))
	n.Ready()
	n.Status("two devices\nREADY=1")
	n.Status("two devices READY=1")
	n.Stopping()
	var got []string
	for range 3 {
		buf := make([]byte, 256)
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		size, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(buf[:size]))
	}
	if diff := cmp.Diff([]string{"READY=1", "STATUS=two devices READY=1", "STOPPING=1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNotifierWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var log bytes.Buffer
	n := NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	n.Ready()
	n.Status("x")
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
	t.Setenv("NOTIFY_SOCKET", "/no/such/socket")
	if Supervised() {
		t.Error("process 1 has started this test")
	}
	for range 3 {
		n.Ready()
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("logged %d lines, want one for a row of failures: %s", lines, log.String())
	}
}

func TestWatchdogPingsWhileAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var pings []time.Duration
		var log bytes.Buffer
		n := &Notifier{log: slog.New(slog.NewTextHandler(&log, nil)), send: func(string) error {
			pings = append(pings, time.Since(start))
			return nil
		}}
		alive := func() error {
			if at := time.Since(start); at > 20*time.Second && at < 50*time.Second {
				return errors.New("the loop has not turned for 20 s")
			}
			return nil
		}
		w := newWatchdog(n, alive, 30*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 80*time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		<-w.Ready()
		want := []time.Duration{0, 15 * time.Second, 60 * time.Second, 75 * time.Second}
		if diff := cmp.Diff(want, pings); diff != "" {
			t.Errorf("pings (-want +got):\n%s", diff)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("logged %d lines, want one: %s", lines, log.String())
		}
	})
}

func TestWatchdogInterval(t *testing.T) {
	n := NewNotifier(slog.New(slog.DiscardHandler))
	for text, want := range map[string]time.Duration{"": 0, "30000000": 30 * time.Second} {
		t.Setenv("WATCHDOG_USEC", text)
		w, err := NewWatchdog(n, nil)
		if err != nil || w.interval != want {
			t.Errorf("WATCHDOG_USEC=%q: %v, %v", text, w, err)
		}
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := NewWatchdog(n, nil); err == nil {
		t.Error("an interval that is no number was taken")
	}
	t.Setenv("WATCHDOG_USEC", "")
	w, err := NewWatchdog(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil { // without an interval alive, here nil, is not called
		t.Fatal(err)
	}
}

func TestListeners(t *testing.T) {
	const mark = "ACCELD_TEST_LISTENERS"
	if os.Getenv(mark) != "" {
		sockets, err := ReceiveSockets(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		listeners, err := sockets.Listeners("acceld.socket")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range listeners {
			fmt.Println("listener:", l.Addr().Network(), l.Addr())
		}
		fmt.Println("left:", os.Getenv("LISTEN_FDS"))
		return
	}
	dir := shortDir(t)
	files := map[string][]*os.File{}
	var want strings.Builder
	for _, address := range [][2]string{
		{"unix", filepath.Join(dir, "s")},
		{"tcp", "127.0.0.1:0"},
		{"unix", filepath.Join(dir, "other")},
	} {
		l, err := net.Listen(address[0], address[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if strings.HasSuffix(address[1], "other") {
			files["other.socket"] = append(files["other.socket"], f)
		} else {
			files["acceld.socket"] = append(files["acceld.socket"], f)
			fmt.Fprintln(&want, "listener:", address[0], l.Addr())
		}
	}
	want.WriteString("left: \n")
	out, err := again(t, manager.New(t), "TestListeners", mark+"=1", files).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, _, _ := strings.Cut(string(out), "PASS"); got != want.String() {
		t.Errorf("got\n%swant\n%s", got, want.String())
	}
	t.Setenv("NOTIFY_SOCKET", "")
	alone, err := ReceiveSockets(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := alone.Listeners("acceld.socket"); got != nil || err != nil {
		t.Errorf("without activation: %v, %v", got, err)
	}
}

// shortDir returns a directory for sockets, whose paths have at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "listen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// again runs one test of this program in the way that the service manager starts it.
func again(t *testing.T, m *manager.Manager, test, mark string, listeners map[string][]*os.File) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.Command(listeners, self, "-test.run=^"+test+"$")
	cmd.Env = append(cmd.Env, mark)
	return cmd
}

// holds waits until the manager holds one connection with that name.
func holds(t *testing.T, m *manager.Manager, name string) {
	t.Helper()
	messages, more := m.Messages()
	for len(messages) == 0 {
		select {
		case <-more:
			messages, more = m.Messages()
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was stored")
		}
	}
	if diff := cmp.Diff([]string{"FDSTORE=1\nFDNAME=" + name}, messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{name}, m.Held()); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// pair returns a connection as the service has it, and its other end.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(shortDir(t), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	ours, err = l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close(); _ = ours.Close() })
	return ours, theirs
}

// ended reports whether the other end of c is closed, within a while.
func ended(t *testing.T, c *net.UnixConn, within time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Error("somebody said something")
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

const blink = 50 * time.Millisecond // how long to watch for something that must not happen

func TestKeepUntilClosed(t *testing.T) {
	m := manager.New(t)
	t.Setenv("NOTIFY_SOCKET", m.Socket())
	s, err := ReceiveSockets(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := pair(t)
	c := s.Keep("example.com/thing", ours)
	holds(t, m, "example.com/thing")
	if s.Leaving() || ended(t, theirs, blink) {
		t.Error("it ended by itself")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !ended(t, theirs, 10*time.Second) {
		t.Error("the manager keeps the connection open, which was closed")
	}
	if left := m.Held(); left != nil {
		t.Errorf("still held: %v", left)
	}
}

// TestConnectionOutlivesProcess: the other end of a connection does not notice that one process has ended and the next
// one has started. What it sends meanwhile ends nothing; the next process can tell it something, and ends it.
func TestConnectionOutlivesProcess(t *testing.T) {
	const mark = "ACCELD_TEST_SUCCESSOR"
	if os.Getenv(mark) != "" {
		s, err := ReceiveSockets(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s.End("example.com/other")
		_, _ = fmt.Scanln() // until the test has looked
		for _, c := range s.Inherited("example.com/thing") {
			_, _ = c.Write([]byte("!"))
		}
		s.End("example.com/thing")
		s.End("example.com/thing")
		_, _ = fmt.Scanln()
		return
	}
	m := manager.New(t)
	t.Setenv("NOTIFY_SOCKET", m.Socket())
	ctx, cancel := context.WithCancel(t.Context())
	s, err := ReceiveSockets(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := pair(t)
	c := s.Keep("example.com/thing", ours)
	holds(t, m, "example.com/thing")
	cancel()
	if !s.Leaving() {
		t.Error("it does not leave")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if ended(t, theirs, blink) {
		t.Fatal("it ended with the process")
	}
	next := again(t, m, "TestConnectionOutlivesProcess", mark+"=1", nil)
	var out bytes.Buffer
	next.Stdout, next.Stderr = &out, &out
	goOn, err := next.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte("?")); err != nil {
		t.Error(err)
	}
	if ended(t, theirs, 10*blink) {
		t.Error("it ended with the start of the next process")
	}
	if _, err := goOn.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	said := make([]byte, 1)
	if err := theirs.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Error(err)
	}
	if _, err := theirs.Read(said); err != nil || said[0] != '!' {
		t.Errorf("the next process says %q, %v", said, err)
	}
	if !ended(t, theirs, 10*time.Second) {
		t.Error("it did not end, though this process and the manager have it too")
	}
	if _, err := goOn.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	if err := next.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestHandedOverForAWhile: an inherited connection that nobody ends does so by itself after its time, so that the other
// end connects again, and is not inherited any more. If this process leaves it to the next one, the next process starts
// its own time.
func TestHandedOverForAWhile(t *testing.T) {
	for _, leaving := range []bool{false, true} {
		ours, theirs := pair(t) // ours stays open, as the manager also holds it
		f, err := ours.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		over := make(chan struct{})
		s := &Sockets{
			over: over, store: func(string, *net.UnixConn) error { return nil },
			listeners: map[string][]net.Listener{}, handed: map[string][]net.Conn{}, patience: 20 * blink,
		}
		if err := s.receive(f); err != nil {
			t.Fatal(err)
		}
		if ended(t, theirs, blink) {
			t.Errorf("leaving %t: it ended before its time", leaving)
		}
		within := 10 * time.Second
		if leaving {
			close(over)
			within = 30 * blink
		}
		if ended(t, theirs, within) == leaving {
			t.Errorf("leaving %t: after its time it has ended: %t", leaving, leaving)
		}
		for began := time.Now(); !leaving && len(s.Inherited(f.Name())) > 0; time.Sleep(blink / 10) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("a connection that has ended is inherited")
			}
		}
	}
	if s, err := ReceiveSockets(t.Context(), slog.New(slog.DiscardHandler)); err != nil || s.patience != handedFor {
		t.Errorf("%v, %v", s, err)
	}
}

// If the manager does not take connections, that is logged once, and a connection ends like any other.
func TestNothingIsKept(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/no/such/socket")
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	s, err := ReceiveSockets(ctx, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ours, theirs := pair(t)
		c := s.Keep("example.com/thing", ours)
		if err := c.Close(); err != nil || !ended(t, theirs, 10*time.Second) {
			t.Errorf("not ended: %v", err)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "/no/such/socket") {
		t.Errorf("said %q", log.String())
	}
	cancel()

	t.Setenv("NOTIFY_SOCKET", "")
	alone, err := ReceiveSockets(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ours, _ := pair(t)
	if c := alone.Keep("example.com/thing", ours); c != net.Conn(ours) || alone.Leaving() {
		t.Errorf("without a manager: %T, leaving %v", c, alone.Leaving())
	}
}

// systemd itself checks the unit files, with a program that exists here instead of the agent.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	units, err := filepath.Glob("acceld*.s*")
	if err != nil || len(units) != 3 {
		t.Fatalf("units are %v, %v", units, err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, u := range units {
		b, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte("/usr/bin/acceld"), []byte("/bin/true"))
		file := filepath.Join(dir, u)
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, err := exec.Command(analyze, args...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
