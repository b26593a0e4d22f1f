package usage

import (
	"os"
	"os/exec"
	"testing"
)

// A process has used some of both, and one that has ended is an error rather than nothing.
func TestUsage(t *testing.T) {
	if d, err := Processor(os.Getpid()); d <= 0 || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	if now, most, err := Memory(os.Getpid()); now < 1<<20 || most < now || err != nil {
		t.Errorf("%v, %v, %v", now, most, err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Processor(cmd.Process.Pid); err == nil {
		t.Error("the processor time of a process that has ended")
	}
	if _, _, err := Memory(cmd.Process.Pid); err == nil {
		t.Error("the memory of a process that has ended")
	}
}
