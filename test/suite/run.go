package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/acceld/acceld/test/stage/programs"
)

// workers is how many units run at a time. A guest has two virtual processors. Two guests on two real ones take many
// times as long as one: the virtual processors of a guest wait for each other, and often one of them is not running.
func workers() int { return max(1, runtime.NumCPU()/2) }

// state is the suite at work.
type state struct {
	root, logs string
	units      []*unit
	start      time.Time
	mu         sync.Mutex // guards what is printed, and the units' results
}

func open(ctx context.Context, logs string) (*state, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find the source folder: %w", err)
	}
	s := &state{root: strings.TrimSpace(string(out)), start: time.Now()}
	s.logs = filepath.Join(s.root, logs)
	if s.units, err = discover(ctx, s.root, filepath.Join(s.logs, "programs")); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(s.root, secondsFile))
	if err != nil {
		return nil, fmt.Errorf("cannot read how long units take: %w", err)
	}
	if err := measure(s.units, text); err != nil {
		return nil, err
	}
	deal(s.units)
	return s, nil
}

// programs is the folder with the programs of the tree, which every scenario puts onto its guest.
func (s *state) programs() string { return filepath.Join(s.logs, "acceld") }

// build builds them.
func (s *state) build(ctx context.Context) error {
	if err := os.MkdirAll(s.programs(), 0o755); err != nil {
		return fmt.Errorf("cannot make a folder for programs: %w", err)
	}
	return programs.Build(ctx, s.root, s.programs())
}

// run runs the chosen units: side by side those that can be, then one by one those that must be alone.
func (s *state) run(ctx context.Context, c choice) {
	chosen := slices.DeleteFunc(slices.Clone(s.units), func(u *unit) bool { return !c.runs(u) })
	slices.SortStableFunc(chosen, longest)
	left := 0
	for _, u := range chosen {
		left += u.seconds
	}
	queue := make(chan *unit)
	var working sync.WaitGroup
	for range workers() {
		working.Go(func() {
			for u := range queue {
				s.do(ctx, u, &left)
			}
		})
	}
	for _, u := range chosen {
		if !u.alone {
			queue <- u
		}
	}
	close(queue)
	working.Wait()
	for _, u := range chosen {
		if u.alone {
			s.do(ctx, u, &left)
		}
	}
}

// do runs one unit and says how it ended; of one that failed it shows the end of the output.
func (s *state) do(ctx context.Context, u *unit, left *int) {
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	path := filepath.Join(s.logs, strings.Map(plain, u.name)+".log")
	err := s.execute(ctx, u, path)
	s.mu.Lock()
	defer s.mu.Unlock()
	u.took, u.err, u.ran = time.Since(began), err, true
	*left -= u.seconds
	word := "ok  "
	if err != nil {
		word = "FAIL"
	}
	fmt.Printf("%s %-40s %4.0f s   %s in all, about %s to go\n", word, u.name, u.took.Seconds(),
		brief(time.Since(s.start)), brief(time.Duration(*left)*time.Second/time.Duration(workers())))
	if err != nil {
		fmt.Printf("---- %v; the end of %s:\n%s----\n", err, path, tail(path))
	}
}

// plain keeps what a file's name can have.
func plain(r rune) rune {
	if r == '/' || r == ' ' || r == ',' || r == '\'' {
		return '-'
	}
	return r
}

func (s *state) execute(ctx context.Context, u *unit, path string) error {
	log, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot keep the output: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, u.argv[0], u.argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.root, log, log
	cmd.Env = append(surroundings(), "ACCELD_TESTBED=1", programs.Variable+"="+s.programs())
	cmd.Env = append(cmd.Env, u.env...)
	// A scenario gets the time to take its guest down.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		return err
	}
	u.skipped, err = skips(path)
	return err
}

// surroundings is the environment without what a make that has started this process hands on to others: its variables,
// such as RUN, are not meant for the unit, and its jobs are not the unit's.
func surroundings() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "RUN", "PART", "LIST"}, name)
	})
}

// skips lists the parts that a Go test program skipped. That it skipped all that it was asked for is an error.
func skips(path string) (parts []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "--- SKIP: ") || strings.HasPrefix(line, "testing: warning: no tests to run"):
			return parts, errors.New(words)
		case strings.HasPrefix(words, "--- SKIP: "):
			parts = append(parts, strings.TrimPrefix(words, "--- SKIP: "))
		}
	}
	return parts, nil
}

// tail is the end of a file, where its error is.
func tail(path string) string {
	const most = 6000
	f, err := os.Open(path)
	if err != nil {
		return err.Error() + "\n"
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

func brief(d time.Duration) string { return d.Round(time.Second).String() }
