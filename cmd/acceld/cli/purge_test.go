package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// In a pod that would be restarted, the command stays after a purge that left nothing, and ends on a signal.
func TestPurgeStays(t *testing.T) {
	host := t.TempDir()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	root := New()
	root.SetArgs([]string{"purge", "--stay", "--host-root", host, "--config", config})
	root.SetOut(write)
	root.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() {
		ended <- root.ExecuteContext(ctx)
		write.Close()
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || !strings.Contains(line, "nothing of acceld") {
		t.Fatalf("%q, %v", line, err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
