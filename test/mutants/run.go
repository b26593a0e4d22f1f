package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome is what came of one mutant.
type outcome string

const (
	killed   outcome = "killed"
	late     outcome = "timed out" // a test hung: noticed too
	survived outcome = "survived"
	broken   outcome = "did not compile"
)

type result struct {
	mutant
	line    int
	outcome outcome
	by      string // the test that failed, or what the compiler said
	took    time.Duration
}

// runner builds the tests of packages and runs them, each in a directory of its own for what they write.
type runner struct {
	root, dir string
	out       io.Writer
	cage      []string                 // what a test is started by; none where it is started as it is
	limits    map[string]time.Duration // for the tests of a directory
	record    record
	// patience is how long a test may take beyond four times what all of its package take without a mutant.
	patience time.Duration
}

func newRunner(root string, out io.Writer) (*runner, error) {
	dir, err := os.MkdirTemp("", "m") // short, because paths of unix sockets have at most 108 bytes
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // programs that tests start as another user must get there
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	known, err := readRecord(root)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &runner{
		root: root, dir: dir, out: out, limits: map[string]time.Duration{}, record: known,
		patience: 30 * time.Second,
	}
	if os.Geteuid() == 0 {
		r.cage = cage(dir)
		if exec.Command(r.cage[0], append(r.cage[1:], "true")...).Run() != nil {
			r.cage = nil
			fmt.Fprintln(out,
				"mutants: run as root without a namespace of their own, tests with a mutant may write anywhere on this machine")
		}
	}
	return r, nil
}

// cage starts a program with a disk that is read-only but for dir and the compiler's cache, because what a mutant drops
// may be the check that keeps a test's root user in its directory, and with processes that end with it. What goes to
// /tmp all the same, because some program knows no other place, goes into memory. Neither the tests nor their parent
// are process 1, which some of them look for.
func cage(dir string) []string {
	const script = `mount --make-rprivate / && here=$PWD && dir=$1 && cache=$2 && shift 2 && cd "$dir" && mount --bind "$cache" "$cache" &&
		mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work && mount -t overlay overlay -o lowerdir=/tmp,upperdir=/mnt/upper,workdir=/mnt/work /tmp &&
		mount -c --bind . "$dir" && mount -o remount,bind,ro / && cd "$here" && { ("$@"; exit $?); exit $?; }`
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		cache = []byte(dir)
	}
	return []string{
		"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", dir,
		strings.TrimSpace(string(cache)),
	}
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// all runs the tests as they are, to know that they pass and how long they take, and then with each mutant. If ctx ends
// early, it returns the results so far and the error of ctx.
func (r *runner) all(ctx context.Context, list []mutant, jobs int) ([]result, error) {
	var dirs []string
	for _, m := range list {
		dirs = append(dirs, m.Tests...)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	p := newProgress(r.out, "packages without a mutant", len(dirs))
	var mu sync.Mutex
	var failed error
	each(dirs, jobs, func(i int, dir string) {
		outcome, by, took := r.try(ctx, filepath.Join(r.dir, fmt.Sprint("p", i)), "", []string{dir}, "", 10*time.Minute)
		mu.Lock()
		defer mu.Unlock()
		r.limits[dir] = r.patience + 4*took
		if outcome != survived {
			failed = errors.Join(failed, fmt.Errorf("%s without a mutant: %s: %s", dir, outcome, by))
		}
		p.done("%s", dir)
	})
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return nil, err
	}
	p = newProgress(r.out, "mutants", len(list))
	results := make([]result, len(list))
	each(list, jobs, func(i int, m mutant) {
		x := r.mutant(ctx, filepath.Join(r.dir, fmt.Sprint(i)), m)
		if ctx.Err() == nil {
			results[i] = x
			p.done("%s %s %s", x.outcome, m.ID, x.by)
		}
	})
	return slices.DeleteFunc(results, func(x result) bool { return x.outcome == "" }), ctx.Err()
}

// each calls do for every item, jobs at a time, in their order.
func each[T any](items []T, jobs int, do func(int, T)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for i := range next {
				do(i, items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	workers.Wait()
}

// mutant runs the tests with one mutant.
func (r *runner) mutant(ctx context.Context, dir string, m mutant) result {
	began := time.Now()
	out := result{mutant: m, outcome: broken}
	overlay, line, err := r.overlay(dir, m)
	if err != nil {
		out.by = err.Error()
		return out
	}
	out.line = line
	limit := time.Duration(0)
	for _, d := range m.Tests {
		limit = max(limit, r.limits[d])
	}
	out.outcome, out.by, _ = r.try(ctx, dir, overlay, m.Tests, r.record.first(m.ID), limit)
	out.took = time.Since(began)
	return out
}

// overlay writes the changed files and what tells the compiler of them.
func (r *runner) overlay(dir string, m mutant) (name string, line int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", 0, err
	}
	replace := map[string]string{}
	for i, e := range m.edits() {
		file := filepath.Join(r.root, e.File)
		source, err := os.ReadFile(file)
		if err != nil {
			return "", 0, err
		}
		text, at, err := e.apply(source)
		if err != nil {
			return "", 0, err
		}
		if i == 0 {
			line = at
		}
		replace[file] = filepath.Join(dir, fmt.Sprint(i, path.Base(e.File)))
		if err := os.WriteFile(replace[file], text, 0o644); err != nil {
			return "", 0, err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", 0, err
	}
	name = filepath.Join(dir, "overlay.json")
	return name, line, os.WriteFile(name, list, 0o644)
}

// try builds and runs the tests of some directories until one fails, the one that is called first before all others. It
// returns how long they ran. What they write is gone then.
func (r *runner) try(ctx context.Context, dir, overlay string, tests []string, first string,
	limit time.Duration,
) (o outcome, by string, took time.Duration) {
	defer os.RemoveAll(dir)
	temp := filepath.Join(dir, "t")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return broken, err.Error(), 0
	}
	environment := append(environment(overlay), "TMPDIR="+temp)
	for _, name := range tests {
		program := filepath.Join(dir, "tests")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", program, "./"+name)
		build.Dir, build.Env = r.root, environment
		if text, err := build.CombinedOutput(); err != nil {
			return broken, strings.TrimSpace(string(text)), 0
		}
		began := time.Now()
		if first != "" {
			if o, by := r.test(ctx, program, name, environment, limit,
				"-test.run=^"+regexp.QuoteMeta(first)+"$"); o != survived {
				return o, by, time.Since(began)
			}
		}
		o, by := r.test(ctx, program, name, environment, limit)
		if o == late {
			// Perhaps the machine is slow, and not the test: on its own it would not hang then.
			if alone, _ := r.test(ctx, program, name, environment, limit,
				"-test.run=^"+regexp.QuoteMeta(by)+"$"); alone == survived {
				o, by = r.test(ctx, program, name, environment, 4*limit)
			}
		}
		if took += time.Since(began); o != survived {
			return o, by, took
		}
	}
	return survived, "", took
}

// environment is that of compiler and tests: unit tests, and what they compile has the mutant, too.
func environment(overlay string) []string {
	out := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ACCELD_TESTBED=") || strings.HasPrefix(v, "ACCELD_BENCH=")
	})
	flags := strings.Fields(os.Getenv("GOFLAGS"))
	if overlay != "" {
		flags = append(flags, "-overlay="+overlay)
	}
	return append(out, "CGO_ENABLED=0", "GOFLAGS="+strings.Join(flags, " "))
}

// test runs a program of tests in its package's directory.
func (r *runner) test(ctx context.Context, program, name string, environment []string, limit time.Duration,
	more ...string,
) (outcome, string) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second) // for what does not even hear the limit
	defer cancel()
	args := slices.Concat(r.cage, []string{
		program, "-test.short", "-test.failfast", "-test.count=1", "-test.v",
		"-test.timeout=" + limit.String(),
	}, more)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(r.root, name), environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	text, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the tests have left behind
	}
	if err == nil {
		return survived, ""
	}
	if ctx.Err() != nil || bytes.Contains(text, []byte("panic: test timed out after")) {
		return late, running(text)
	}
	return killed, failure(text)
}

// failure finds the test that failed in the output of a program of tests.
func failure(text []byte) string {
	if m := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return running(text)
}

// running finds the test that was at work when a program of tests ended.
func running(text []byte) string {
	if m := regexp.MustCompile(`running tests:\n\s+(\S+)`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	all := regexp.MustCompile(`(?m)^=== (?:RUN|CONT|NAME)\s+(\S+)`).FindAllSubmatch(text, -1)
	if len(all) == 0 {
		last := bytes.TrimSpace(text)
		return "before the first test: " + string(last[bytes.LastIndexByte(last, '\n')+1:])
	}
	return string(all[len(all)-1][1])
}
