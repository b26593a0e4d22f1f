package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary play the owner of a child that is killed together with its owner.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BED_TEST_OWNER"); dir != "" {
		s, err := NewStarter(dir)
		if err == nil {
			var c *Child
			if c, err = s.Start("sleep", io.Discard, exec.Command("sleep", "1000")); err == nil {
				fmt.Println(c.PID())
				select {}
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func gone(pid int) bool {
	for range 100 {
		if _, err := identify(pid); err != nil {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

func TestChildDiesWithItsOwner(t *testing.T) {
	dir := t.TempDir()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), "BED_TEST_OWNER="+dir)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	owner.Process.Kill()
	owner.Wait()
	if !gone(pid) {
		t.Errorf("child %d outlives its owner", pid)
	}
}

// leave records a running child of an owner that is gone, with a start time that is off by some ticks. It is waited for
// here alone, so that nobody sees it as a zombie.
func leave(t *testing.T, dir string, off uint64) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill(); <-waited })
	child, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	child.Start += off
	content, err := json.Marshal(record{Name: "sleep", Child: child, Owner: ident{PID: 1, Start: 1 << 60}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(child.PID)+".json"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestSweepEndsOnlyWhatWasRecorded(t *testing.T) {
	dir := t.TempDir()
	left, stranger := leave(t, dir, 0), leave(t, dir, 1)
	s, err := NewStarter(dir)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := s.Start("sleep", io.Discard, exec.Command("sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Stop(0)
	ended, err := s.Sweep()
	if err != nil || len(ended) != 1 {
		t.Errorf("sweep ended %q, %v; want one", ended, err)
	}
	if !gone(left) {
		t.Error("what was left behind still runs")
	}
	if _, err := identify(stranger); err != nil {
		t.Error("a process whose start time differs was ended")
	}
	if mine.Exited() != nil {
		t.Error("a living owner's child was ended")
	}
}

func TestStop(t *testing.T) {
	s, err := NewStarter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Start("sh", io.Discard, exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stop(50 * time.Millisecond)
	if c.Exited() == nil {
		t.Error("a child that ignores SIGTERM still runs")
	}
}
