package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFinish(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("6%06d", os.Getpid())
	for name, c := range map[string]struct {
		script, output, failure string
		cut                     bool
	}{
		"a word":             {"printf hello", "hello", "", false},
		"too many":           {"printf 0123456789", "01234567", "", true},
		"exactly enough":     {"printf 01234567", "01234567", "", false},
		"a status":           {"printf x; echo first >&2; echo why >&2; exit 3", "x", "exit status 3: why", false},
		"a child that stays": {"sleep " + name + " & printf x", "x", "", false},
		"a signal":           {"kill -9 $$", "", "signal: killed", false},
	} {
		t.Run(name, func(t *testing.T) {
			pid := 0
			cmd := h.Programs().Command(t.Context(), "/bin/sh", "-c", c.script)
			got, err := Finish(cmd, 8, func(p int) { pid = p })
			if err != nil || string(got.Output) != c.output || got.Failure != c.failure || got.Cut != c.cut ||
				pid == 0 {
				t.Errorf("got %q, cut %v, %q, %v, pid %d", got.Output, got.Cut, got.Failure, err, pid)
			}
		})
	}
	for until := time.Now().Add(10 * time.Second); sleeps(name); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a child of the program is still there")
		}
	}
}

// TestOwn runs a program that only its own file lets another user execute: the directory above is closed.
func TestOwn(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$1\" \"${HOME:-no home}\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(program, 0o755), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd, release, err := h.Programs().Own(t.Context(), []string{program, "argument"})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = userOnly(nobody)
	}
	got, err := Finish(cmd, 100, func(int) {})
	if err != nil || string(got.Output) != "argument no home\n" {
		t.Errorf("%q %+v %v", got.Output, got, err)
	}
	if _, _, err := h.Programs().Own(t.Context(), []string{program + "-missing"}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd = h.Programs().Command(ctx, "/bin/sh", "-c", "sleep 1000 & sleep 1000")
	got, err = Finish(cmd, 100, func(int) { cancel() })
	if err != nil || !strings.Contains(got.Failure, "killed") {
		t.Error(got, err)
	}
}
