package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgain: the next run is the same process, with the same arguments and name.
func TestAgain(t *testing.T) {
	const first, next = "ACCELD_TEST_FIRST", "ACCELD_TEST_AGAIN"
	switch {
	case os.Getenv(next) != "":
		name, err := os.ReadFile("/proc/self/comm")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("process %d, arguments %q, name %s", os.Getpid(), os.Args[1:], name)
		return
	case os.Getenv(first) != "":
		t.Fatal(Again(next + "=1"))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAgain$")
	cmd.Env = append(os.Environ(), first+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := filepath.Base(os.Args[0]) // of which the kernel keeps 15 bytes
	want := fmt.Sprintf("process %d, arguments %q, name %s", cmd.Process.Pid, cmd.Args[1:], name[:min(len(name), 15)])
	if !strings.Contains(string(out), want) {
		t.Errorf("%s, want %s", out, want)
	}
}
