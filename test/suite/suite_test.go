package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/test/unproven"
	"github.com/acceld/acceld/test/vm/cache"
)

// tree is the units of this tree, as their sources have them, with their seconds.
func tree(t *testing.T) []*unit {
	t.Helper()
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	var units []*unit
	for _, p := range packages() {
		files, err := filepath.Glob(filepath.Join("..", p, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("package %q: %v, %d files", p, err, len(files))
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range test.FindAllStringSubmatch(string(text), -1) {
				units = append(units, &unit{name: p + "/" + m[1]})
			}
		}
	}
	for _, u := range commands() {
		units = append(units, &u)
	}
	text, err := os.ReadFile(filepath.Base(secondsFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := measure(units, text); err != nil {
		t.Fatal(err)
	}
	return units
}

func TestEveryUnitIsInOnePartAndPartsTakeAsLong(t *testing.T) {
	units := tree(t)
	deal(units)
	load, all := make([]int, parts+1), 0
	for _, u := range units {
		if u.part < 0 || u.part > parts || (u.part == 0) != u.always {
			t.Errorf("%s is in part %d", u.name, u.part)
		}
		load[u.part] += u.seconds
		all += u.seconds
	}
	for i := 1; i <= parts; i++ {
		fair := float64(all-load[0]) / parts
		if off := float64(load[i])/fair - 1; off < -0.1 || off > 0.1 {
			t.Errorf("part %d has %d s, a fair share is %.0f: deal the longest units into smaller ones", i, load[i],
				fair)
		}
	}
}

func TestDealIsTheSameEachTime(t *testing.T) {
	one, two := tree(t), tree(t)
	for i, j := 0, len(two)-1; i < j; i, j = i+1, j-1 {
		two[i], two[j] = two[j], two[i]
	}
	deal(one)
	deal(two)
	for i, u := range one {
		if other := two[len(two)-1-i]; other.name != u.name || other.part != u.part {
			t.Errorf("%s is in part %d, listed the other way round %s in %d", u.name, u.part, other.name, other.part)
		}
	}
}

func TestCommitChooses(t *testing.T) {
	seen := map[int]int{}
	for i := range 300 {
		commit := fmt.Sprintf("%040x", i*7919)
		part := byCommit(commit)
		if part != byCommit(commit) || part < 1 || part > parts {
			t.Fatalf("commit %s chooses part %d", commit, part)
		}
		seen[part]++
	}
	for i := 1; i <= parts; i++ {
		if seen[i] < 300/parts/2 {
			t.Errorf("part %d is chosen by %d of 300 commits", i, seen[i])
		}
	}
}

func TestChooseReadsItsOptions(t *testing.T) {
	s := &state{}
	for _, wrong := range []options{{part: "17/16"}, {part: "0/16"}, {part: "2/3"}, {part: "2"}, {part: "1/7"}, {only: "("}} {
		if _, err := s.choose(t.Context(), wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
	two, err := s.choose(t.Context(), options{part: "2/16"})
	if err != nil || !two.runs(&unit{part: 2}) || two.runs(&unit{part: 1}) || !two.runs(&unit{}) {
		t.Errorf("2/16: %v", err)
	}
	commit, err := s.choose(t.Context(), options{})
	if err != nil || !regexp.MustCompile(`^part ([1-9]|1[0-6]) of 16, chosen by commit [0-9a-f]+ `).MatchString(commit.why) {
		t.Errorf("without options: %q, %v", commit.why, err)
	}
}

func TestStaleSeconds(t *testing.T) {
	u := &unit{name: "e2e/TestNew"}
	if err := measure([]*unit{u}, []byte("12 e2e/TestGone\n")); err == nil ||
		!strings.Contains(err.Error(), "e2e/TestGone") {
		t.Errorf("a line of no unit: %v", err)
	}
	if u.seconds != unknown {
		t.Errorf("a unit without a line has %d s", u.seconds)
	}
	if err := measure(nil, []byte("soon e2e/TestNew\n")); err == nil {
		t.Error("a line without a number is accepted")
	}
}

// TestUnitsOfTheirOwn: what a make was asked for that has started this command is not asked of the units: `make suite
// RUN=fuzz` would start `make fuzz RUN=fuzz`.
func TestUnitsOfTheirOwn(t *testing.T) {
	t.Setenv("MAKEFLAGS", " -- RUN=fuzz")
	t.Setenv("RUN", "fuzz")
	s := &state{root: t.TempDir()}
	u := &unit{argv: []string{"sh", "-c", `test -z "$MAKEFLAGS$RUN" && test "$MINE" = 1 && echo "--- PASS: TestX (0.00s)"`}}
	u.env = []string{"MINE=1"}
	if err := s.execute(t.Context(), u, filepath.Join(s.root, "log")); err != nil {
		t.Error(err)
	}
}

// TestSkippedIsFailed: a unit that ran no test proves nothing.
func TestSkippedIsFailed(t *testing.T) {
	s := &state{root: t.TempDir()}
	for name, c := range map[string]struct {
		script string
		ok     bool
	}{
		"passed":  {"echo '=== RUN   TestX'; echo '--- PASS: TestX (0.00s)'; echo PASS", true},
		"a part":  {"echo '    --- SKIP: TestX/part (0.00s)'; echo PASS", true},
		"skipped": {"echo '--- SKIP: TestX (0.00s)'; echo PASS", false},
		"empty":   {"echo 'testing: warning: no tests to run'; echo PASS", false},
		"failed":  {"exit 1", false},
	} {
		u := &unit{argv: []string{"sh", "-c", c.script}}
		err := s.execute(t.Context(), u, filepath.Join(s.root, "log"))
		if (err == nil) != c.ok || (len(u.skipped) > 0) != (name == "a part") {
			t.Errorf("%s: %v, skipped %q", name, err, u.skipped)
		}
	}
}

func TestTableAndVerdict(t *testing.T) {
	s := &state{root: t.TempDir(), units: []*unit{
		{name: "e2e/TestA", part: 1, seconds: 10, ran: true, skipped: []string{"TestA/part (0.00s)"}},
		{name: "e2e/TestB", part: 2, seconds: 20},
		{name: "image", seconds: 5, ran: true, err: os.ErrClosed},
	}}
	var out strings.Builder
	s.table(&out, choice{runs: func(u *unit) bool { return u.part != 2 }})
	if err := unproven.In(s.root).Note("vulnerabilities", "no database"); err != nil {
		t.Fatal(err)
	}
	err := s.verdict(&out)
	for _, want := range []string{
		"e2e/TestB +2/16 +20  not run\n", "image +each +0 +5  FAILED\n", "2 of 3 units ran", "\n1 passed, 1 failed\n",
		"part 2/16: 25 s",
		"NOT CHECKED in e2e/TestA: TestA/part", "NOT CHECKED vulnerabilities: no database\n",
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if err == nil {
		t.Error("a failed unit is no failure of the suite")
	}
	if (&state{root: s.root, units: s.units[1:2]}).verdict(&out) == nil {
		t.Error("a suite of which nothing ran has passed")
	}
}

// TestProofsPageIsTrue holds the page of what is proven to the parts.
func TestProofsPageIsTrue(t *testing.T) {
	units := tree(t)
	deal(units)
	page, err := os.ReadFile(filepath.Join("../..", proofsFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fill(string(page), units), string(page)); diff != "" {
		t.Errorf("%s does not say where proofs run (go run ./test/suite -docs writes it; -want +is):\n%s", proofsFile,
			diff)
	}
}

func TestFill(t *testing.T) {
	units := []*unit{
		{name: "e2e/TestA", part: 1},
		{name: "e2e/TestAB", part: 3},
		{name: "faults/Test01_X", part: 2},
		{name: "image"},
	}
	const page = "text\n\n| claim | command |\n|---|---|\n" +
		"| one | `make e2e RUN='TestA$'` |\n| two | `make e2e RUN='TestA\\|TestZ'` | old |\n| three | `make faults` and `make figures` |\n" +
		"| four | `cd packaging/image && go test ./...` |\n| five | `go test ./accel` |\n\n| other | table |\n"
	const want = "text\n\n| claim | command | run |\n|---|---|---|\n" +
		"| one | `make e2e RUN='TestA$'` | 1/16 |\n| two | `make e2e RUN='TestA\\|TestZ'` | 1/16, 3/16 |\n| three | `make faults` and `make figures` | 2/16, measured by hand |\n" +
		"| four | `cd packaging/image && go test ./...` | each |\n| five | `go test ./accel` | each |\n\n| other | table |\n"
	if diff := cmp.Diff(want, fill(page, units)); diff != "" {
		t.Error(diff)
	}
}

// TestFolders: every folder that the suite checks exists.
func TestFolders(t *testing.T) {
	if err := cache.Room(0, folders(t.TempDir())...); err != nil {
		t.Fatal(err)
	}
}
