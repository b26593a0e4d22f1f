// Command fuzz runs every fuzz target of the module for a while, as many at a time as there are processors, and prints
// how often each was executed. `make fuzz T=5m` starts it. What a target fails with stays below its package in
// testdata/fuzz, where the unit tests run it from then on. It ends with 1 if a target fails.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// compiling is how long a target may take in addition to its time: it is compiled with counters of coverage.
const compiling = 10 * time.Minute

func main() {
	each := flag.Duration("time", 10*time.Second, "how long each target is run")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many targets are run at a time")
	pick := flag.String("run", "", "take only targets whose package or name matches this `regexp`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, ".", *pick, max(1, *jobs), *each)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is one fuzz target. Its package is a path such as "./detect".
type target struct{ pkg, name string }

// outcome is what a run of a target gave; the numbers are as `go test` prints them.
type outcome struct {
	execs, interesting string
	err                error
	output             []byte
}

func run(ctx context.Context, out io.Writer, root, pick string, jobs int, each time.Duration) error {
	re, err := regexp.Compile(pick)
	if err != nil {
		return fmt.Errorf("cannot pick targets: %w", err)
	}
	all, err := targets(root)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(t target) bool { return !re.MatchString(t.pkg + " " + t.name) })
	if len(all) == 0 {
		return fmt.Errorf("no target has a package or a name like %q", pick)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tEXECUTIONS\tNEW INPUTS\tRESULT")
	var mu sync.Mutex // of w and failed
	var failed []error
	var group errgroup.Group
	group.SetLimit(jobs)
	for _, t := range all {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			o := fuzz(ctx, root, t, each)
			mu.Lock()
			defer mu.Unlock()
			result := "ok"
			if o.err != nil {
				result = o.err.Error()
				failed = append(failed, fmt.Errorf("%s in %s: %w\n%s", t.name, t.pkg, o.err, o.output))
			}
			fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\n", t.pkg, t.name, o.execs, o.interesting, result)
			return w.Flush() // a line as soon as it is known
		})
	}
	return errors.Join(append([]error{group.Wait()}, failed...)...)
}

var progress = regexp.MustCompile(`execs: (\d+).*new interesting: (\d+)`)

// targets finds the targets in the test files of a module.
func targets(root string) (all []target, err error) {
	err = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			if path == root {
				return nil
			}
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if other == nil || e.Name() == "testdata" || strings.HasPrefix(e.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
				all = append(all, target{"./" + filepath.ToSlash(dir), f.Name.Name})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look for fuzz targets: %w", err)
	}
	return all, nil
}

// attempts is how many times a target is run at most, as long as its runs end without a result.
const attempts = 3

// fuzz runs one target until it has a result.
func fuzz(ctx context.Context, root string, t target, each time.Duration) (o outcome) {
	for range attempts {
		if o = fuzzOnce(ctx, root, t, each); o.err == nil || !withoutResult(o.output) {
			break
		}
	}
	return o
}

// verdict matches a failed target and captures the indented lines that say why it failed.
var verdict = regexp.MustCompile(`(?m)^--- FAIL: .*\n((?:    .*\n)*)`)

// withoutResult reports whether a run failed only because its time ran out while an input was being tried. That says
// nothing about the target: it is a race in Go before 1.27 (golang/go#75804). A failing input is always written to a
// file.
func withoutResult(output []byte) bool {
	m := verdict.FindSubmatch(output)
	return len(m) > 1 && strings.TrimSpace(string(m[1])) == "context deadline exceeded" &&
		!bytes.Contains(output, []byte("Failing input written"))
}

// minimizing bounds how long one new input is made smaller. Go's minute would be most of a target's time where inputs
// are large, such as kernel modules.
const minimizing = time.Second

// fuzzOnce runs one target once.
func fuzzOnce(ctx context.Context, root string, t target, each time.Duration) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, each+compiling)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(),
		"-fuzzminimizetime="+minimizing.String(), "-parallel=1", t.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=2GiB")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its workers
	cmd.WaitDelay = 10 * time.Second
	o.output, o.err = cmd.CombinedOutput()
	o.execs, o.interesting = "0", "0"
	if all := progress.FindAllSubmatch(o.output, -1); len(all) > 0 {
		last := all[len(all)-1]
		o.execs, o.interesting = string(last[1]), string(last[2])
	}
	if o.err == nil && bytes.Contains(o.output, []byte("no fuzz tests to fuzz")) {
		o.err = errors.New("go test does not know this target")
	}
	return o
}
