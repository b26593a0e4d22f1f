package host

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// reside starts a shell script and returns it with its output.
func reside(ctx context.Context, t *testing.T, h *Host, own bool, script string) (*Resident, *bufio.Scanner) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := h.Programs().Reside(ctx, []string{program, "one", "two"}, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Output.Close() })
	return r, bufio.NewScanner(r.Output)
}

// ended waits until a program has exited.
func ended(t *testing.T, r *Resident) {
	t.Helper()
	select {
	case <-r.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("the program has not ended")
	}
}

func TestReside(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	r, lines := reside(t.Context(), t, h, true, "echo $$ $*\necho first >&2\necho last words >&2\nexit 7\n")
	if !lines.Scan() || !strings.HasSuffix(lines.Text(), " one two") ||
		strings.Fields(lines.Text())[0] != strconv.Itoa(r.PID) {
		t.Errorf("process %d said %q", r.PID, lines.Text())
	}
	ended(t, r)
	if r.Err() != "exit status 7: last words" {
		t.Errorf("its end: %q", r.Err())
	}
}

// TestResideKilled: the end of the context kills the program and its children.
func TestResideKilled(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	r, lines := reside(ctx, t, h, false, "sleep 1000 & echo $!\nwait\n")
	if !lines.Scan() {
		t.Fatal("it has said nothing")
	}
	child := lines.Text()
	end()
	ended(t, r)
	for range 100 {
		if _, err := os.Stat("/proc/" + child); err != nil {
			return
		}
		if state, _ := os.ReadFile("/proc/" + child + "/stat"); strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("process %s is still there", child)
}

// TestResideEndsAlone: the end of a program does not kill another one that the same thread may have started before.
func TestResideEndsAlone(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		other := h.Programs().Command(t.Context(), "sleep", "60")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(other.Process.Kill(), other.Wait()) })
		r, _ := reside(t.Context(), t, h, true, "exit 0\n")
		ended(t, r)
		time.Sleep(10 * time.Millisecond) // for the thread, which would exit now
		if pid, err := syscall.Wait4(other.Process.Pid, nil, syscall.WNOHANG, nil); pid != 0 || err != nil {
			t.Fatalf("the other program has ended: %d, %v", pid, err)
		}
	}
}

func TestResideMissing(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Programs().Reside(t.Context(), []string{"/not/there"}, false); err == nil ||
		!strings.Contains(err.Error(), `cannot start "/not/there"`) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestResideElsewhere: a program of this process's own file system runs inside another root, although it is not there.
func TestResideElsewhere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another root can be entered by root alone")
	}
	// The machine's own root by another name, with an empty directory that hides the program's: the program is found
	// through the open file.
	h, err := New("/proc/self/root")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, source, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := h.Programs().Reside(t.Context(), []string{program, "here"}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Output.Close()
	lines := bufio.NewScanner(r.Output)
	if !lines.Scan() || lines.Text() != "here" {
		t.Errorf("it said %q: %s", lines.Text(), r.Err())
	}
	ended(t, r)
}
