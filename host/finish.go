package host

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// Finished is what a program left that has exited.
type Finished struct {
	// Output is the beginning of its standard output; Cut is true if there was more.
	Output []byte
	Cut    bool
	// Failure says how it exited, with the last line of its standard error; empty if its status was 0.
	Failure string
}

// Finish runs a program that [Programs.Command], [Programs.Own] or [Helper] prepared, until it exits. It keeps at most
// the first most bytes of its standard output. Started is called with its PID. What the program leaves in its process
// group is killed. The error says why it could not be started.
func Finish(cmd *exec.Cmd, most int, started func(pid int)) (Finished, error) {
	out, said := head{most: most}, tail{}
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = time.Second // for its own children that still hold its output
	ended, err := Start(cmd)
	if err != nil {
		return Finished{}, fmt.Errorf("cannot start %q: %w", cmd.Args[0], err)
	}
	started(cmd.Process.Pid)
	left := Finished{}
	err = <-ended
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually nothing is left
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		left.Failure = howEnded(err, &said)
	}
	left.Output, left.Cut = out.text, out.cut
	return left, nil
}

// head keeps the beginning of what is written to it.
type head struct {
	most int
	text []byte
	cut  bool
}

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	room := min(len(b), h.most-len(h.text))
	h.text = append(h.text, b[:room]...)
	h.cut = h.cut || room < len(b)
	return len(b), nil
}
