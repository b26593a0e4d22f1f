package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/test/stage/programs"
)

// unit is what runs by itself: a scenario, or a command.
type unit struct {
	// name is the package below test and the test, such as "e2e/TestDRA", or the command's own.
	name string
	argv []string
	// env is added to the environment.
	env []string
	// always is run with each part, because it takes seconds.
	always bool
	// alone is run when nothing else does: it judges how soon something happens.
	alone bool

	seconds int // as measured, see secondsFile
	part    int // from 1; 0 is each of them
	took    time.Duration
	err     error
	ran     bool
	skipped []string // parts of it
}

// packages have tests that need the test bed, each of which is a unit.
func packages() []string {
	return []string{"vm", "e2e", "faults", "power", "nvidia", "prometheus", "replicas", "admission", "prove/real"}
}

// commands are the units that are no scenario.
func commands() []unit {
	goTest := func(dir string, args ...string) []string {
		return append([]string{"go", "-C", dir, "test", "-count=1", "-vet=off", "-timeout=60m"}, args...)
	}
	return []unit{
		{name: "driver, real modules", argv: goTest(".", "-run=^TestReal", "./driver"), always: true},
		{name: "runtime, real runtimes", argv: goTest(".", "-run=^TestReal|^TestCorpus$", "./runtime")},
		{name: "ledger and purge, many kills", argv: goTest(".", "./host/ledger", "./test/purge")},
		{name: "kubelet 1.37", argv: goTest("test/kubelet", "-short", "./..."), alone: true},
		{name: "kubelet 1.36", argv: goTest("test/kubelet", "-short", "-modfile=go136.mod", "-tags=kubelet136",
			"./..."), alone: true},
		{name: "image", argv: goTest("packaging/image", "./..."), always: true},
		{name: "packages", argv: goTest("packaging/packages", "./...")},
		{name: "release", argv: goTest("packaging/release", "./..."), always: true},
		{name: "chart", argv: goTest("test/chart", "./..."), always: true},
		{name: "pages in a browser", argv: []string{"make", "screenshots"}},
		{name: "programs for arm64", argv: []string{"make", "test-arm64"}},
		{name: "fuzz", argv: []string{"make", "fuzz", "T=5s"}},
		{name: "demo", argv: []string{"make", "demo"}},
	}
}

// discover compiles the packages and asks each for its tests.
func discover(ctx context.Context, root, bin string) ([]*unit, error) {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a folder for test programs: %w", err)
	}
	var units []*unit
	for _, p := range packages() {
		program := filepath.Join(bin, strings.ReplaceAll(p, "/", "-")+".test")
		dir := filepath.Join(root, "test", p)
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", program, ".")
		build.Dir, build.Env = dir, append(os.Environ(), programs.Collector)
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot compile the tests of %q: %w\n%s", p, err, out)
		}
		list := exec.CommandContext(ctx, program, "-test.list=.")
		list.Dir = dir
		names, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("cannot list the tests of %q: %w", p, err)
		}
		for name := range strings.FieldsSeq(string(names)) {
			if !strings.HasPrefix(name, "Test") {
				continue
			}
			units = append(units, &unit{
				name: p + "/" + name, argv: []string{
					"sh", "-c", `cd "$1" && shift && exec "$@"`, "sh", dir,
					program, "-test.v", "-test.timeout=60m", "-test.run=^" + name + "$",
				},
			})
		}
	}
	for _, u := range commands() {
		units = append(units, &u)
	}
	return units, nil
}

// secondsFile has a line for each unit that takes more than a moment: the most seconds that it took on two processors,
// and its name.
const secondsFile = "test/suite/seconds.txt"

// unknown is for a unit that nobody has measured.
const unknown = 60

// measure gives each unit its seconds, and reports the lines of units that are no more.
func measure(units []*unit, text []byte) error {
	known := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var seconds int
		number, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscan(number, &seconds); err != nil || !ok {
			return fmt.Errorf("cannot read line %q of %s: want seconds and a name", strings.TrimSpace(line),
				secondsFile)
		}
		known[strings.TrimSpace(name)] = seconds
	}
	for _, u := range units {
		seconds, ok := known[u.name]
		if u.seconds = seconds; !ok {
			u.seconds = unknown
		}
		delete(known, u.name)
	}
	var errs []error
	for name := range known {
		errs = append(errs, fmt.Errorf("%s names %q, which is no unit", secondsFile, name))
	}
	return errors.Join(errs...)
}

// format is the file's text, the longest first.
func format(units []*unit) []byte {
	units = slices.Clone(units)
	slices.SortStableFunc(units, longest)
	var out bytes.Buffer
	for _, u := range units {
		fmt.Fprintf(&out, "%d %s\n", u.seconds, u.name)
	}
	return out.Bytes()
}

// longest orders units, the longest first, and by name where they take as long.
func longest(a, b *unit) int {
	if a.seconds != b.seconds {
		return b.seconds - a.seconds
	}
	return strings.Compare(a.name, b.name)
}
