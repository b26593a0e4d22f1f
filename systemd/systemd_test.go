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
)

func TestNotifier(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
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
		listeners, err := Listeners("acceld.socket")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range listeners {
			fmt.Println("listener:", l.Addr().Network(), l.Addr())
		}
		fmt.Println("left:", os.Getenv("LISTEN_FDS"))
		return
	}
	dir, err := os.MkdirTemp("", "listen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var files []*os.File
	var want strings.Builder
	for _, address := range [][2]string{{"unix", filepath.Join(dir, "s")}, {"tcp", "127.0.0.1:0"}, {"unix", filepath.Join(dir, "other")}} {
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
		files = append(files, f)
		if !strings.HasSuffix(address[1], "other") {
			fmt.Fprintln(&want, "listener:", address[0], l.Addr())
		}
	}
	want.WriteString("left: \n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell knows its own process id before it becomes the test.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run='^TestListeners$'`, self)
	cmd.Env = append(os.Environ(), mark+"=1", "LISTEN_FDS=3", "LISTEN_FDNAMES=acceld.socket:acceld.socket:other.socket")
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, _, _ := strings.Cut(string(out), "PASS"); got != want.String() {
		t.Errorf("got\n%swant\n%s", got, want.String())
	}
	if got, err := Listeners("acceld.socket"); got != nil || err != nil {
		t.Errorf("without activation: %v, %v", got, err)
	}
}

// systemd itself reads the unit files, with a program that exists here in place of the agent.
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
