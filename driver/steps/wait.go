package steps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// lookAgain is how often a wait polls what reports no changes: sysfs, a socket that gets a listener, a log file that
// stays open.
const lookAgain = time.Second

// waitFor waits for one thing.
func (r *Steps) waitFor(ctx context.Context, w accel.WaitStep) error {
	switch {
	case w.File != "":
		return r.watchUntil(ctx, path.Dir(w.File), fmt.Sprintf("%q is not there", w.File),
			func() bool { return r.h.Exists(w.File) })
	case w.Node != "":
		return r.watchUntil(ctx, path.Dir(w.Node), fmt.Sprintf("%q is not a device node", w.Node), func() bool {
			st, err := r.h.Stat(w.Node)
			return err == nil && (st.Mode()&fs.ModeDevice != 0 || !r.h.Live())
		})
	case w.Socket != "":
		return r.watchUntil(ctx, path.Dir(w.Socket), fmt.Sprintf("nobody listens on %q", w.Socket),
			func() bool { return r.listened(w.Socket) })
	case w.Unit != "":
		// systemd keeps a link here for each running unit.
		return r.watchUntil(ctx, "/run/systemd/units", fmt.Sprintf("unit %q is not active", w.Unit), func() bool {
			_, err := r.runProgram(ctx, []string{"systemctl", "is-active", "--quiet", "--", w.Unit}, "")
			return err == nil
		})
	}
	if w.Pod+w.DaemonSet != "" {
		return r.waitForPod(ctx, chosen{w.Pod, w.DaemonSet})
	}
	return errors.New("it says nothing to wait for")
}

// watchUntil calls done at once, at each change in the directory dir and every second, until it returns true or ctx
// ends. otherwise is the error message for the latter case.
func (r *Steps) watchUntil(ctx context.Context, dir, otherwise string, done func() bool) error {
	changes, err := r.h.Watch(ctx, dir)
	if err != nil {
		changes = nil // too many watches on this host: rely on the ticker alone
	}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for !done() {
		select {
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
		case <-again.C:
		case <-ctx.Done():
			return errors.New(otherwise)
		}
	}
	return nil
}

// listened reports whether a process listens on a unix socket, without connecting to it: the table of process 1's
// network namespace (proc_pid_net(5)) marks such sockets with __SO_ACCEPTCON.
func (r *Steps) listened(socket string) bool {
	text, err := r.h.ReadFile("/proc/1/net/unix")
	if err != nil {
		return false
	}
	same := func(p string) string { return path.Clean(strings.Replace(p, "/var/run/", "/run/", 1)) }
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 8 && f[3] == "00010000" && same(f[7]) == same(socket) {
			return true
		}
	}
	return false
}

// waitForLogs waits for a line in a log. Lines since the last boot count.
func (r *Steps) waitForLogs(ctx context.Context, l accel.LogStep) error {
	match, err := regexp.Compile(l.Match)
	if err != nil {
		return fmt.Errorf("match: %w", err)
	}
	switch {
	case l.Kernel:
		return r.waitForKernel(ctx, match)
	case l.Unit != "":
		return r.waitForJournal(ctx, l.Unit, match)
	case l.File != "":
		return r.waitForFile(ctx, l.File, match)
	case l.Pod+l.DaemonSet != "":
		return r.waitForPodLog(ctx, chosen{l.Pod, l.DaemonSet}, l.Container, match)
	}
	return errors.New("it says no log")
}

// waitForKernel considers only what the kernel itself logs; a process that writes to /dev/kmsg proves nothing.
func (r *Steps) waitForKernel(ctx context.Context, match *regexp.Regexp) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	records, err := r.h.Kernel().Kmsg(reading)
	if err != nil {
		return err
	}
	for r := range records {
		if r.Facility == 0 && match.MatchString(r.Text) {
			return nil
		}
	}
	return fmt.Errorf("the kernel has not said %q", match)
}

// waitForJournal follows the journal of a unit.
func (r *Steps) waitForJournal(ctx context.Context, unit string, match *regexp.Regexp) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, err := r.program(reading, []string{
		"journalctl", "--boot", "--output=cat", "--no-pager", "--no-tail",
		"--follow", "--unit=" + unit,
	}, "")
	if err != nil {
		return err
	}
	var said tail
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	found := hasLine(out, match)
	cancel()
	ended := cmd.Wait()
	if found {
		return nil
	}
	if ctx.Err() == nil {
		return fmt.Errorf("journalctl: %w: %s", ended, &said)
	}
	return fmt.Errorf("the journal of %q has no line that matches %q", unit, match)
}

// hasLine reads lines until one matches, or the input ends, or a line is too long.
func hasLine(in io.Reader, match *regexp.Regexp) bool {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if match.Match(lines.Bytes()) {
			return true
		}
	}
	return false
}

// waitForFile reads a text file as it grows.
func (r *Steps) waitForFile(ctx context.Context, name string, match *regexp.Regexp) error {
	var read int64
	return r.watchUntil(ctx, path.Dir(name), fmt.Sprintf("%q has no line that matches %q", name, match),
		func() bool { return r.grown(name, &read, match.Match) })
}

// grown reports whether one of the lines that a text file has got matches. Read is how many bytes of it were read; if
// the file becomes shorter, it is read again from the start.
func (r *Steps) grown(name string, read *int64, match func(line []byte) bool) bool {
	f, err := r.h.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	if st.Size() < *read {
		*read = 0
	}
	lines := bufio.NewReader(io.NewSectionReader(f, *read, st.Size()-*read))
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return match(line) // the last line may be incomplete, so it is read again
		}
		*read += int64(len(line))
		if match(line) {
			return true
		}
	}
}
