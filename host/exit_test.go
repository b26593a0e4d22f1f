package host

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

func TestAwaitExit(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	one, two := exec.Command("sleep", "60"), exec.Command("sleep", "60")
	for _, c := range []*exec.Cmd{one, two} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	pids := []int{one.Process.Pid, two.Process.Pid}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Processes().AwaitExit(ctx, pids); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("both live: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Processes().AwaitExit(t.Context(), pids) }()
	if err := two.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("one ended: %v", err)
	}
	_ = two.Wait()
	if err := h.Processes().AwaitExit(t.Context(), []int{two.Process.Pid}); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
	if err := h.Processes().AwaitExit(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody: %v", err)
	}
}
