package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestList holds every entry to the tree: its lines are there, exactly once.
func TestList(t *testing.T) {
	all, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range check(root, all) {
		t.Error(p)
	}
	const least = 150
	if len(all) < least {
		t.Errorf("%d mutants, at least %d are wanted", len(all), least)
	}
}

// TestPage holds the score in the page to the recorded results, and those to the list.
func TestPage(t *testing.T) {
	all, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	known, err := readRecord(root)
	if err != nil {
		t.Fatal(err)
	}
	if stale := len(known) - len(known.results(all)); stale > 0 {
		t.Errorf("%s has %d mutants that the list has not: run make mutants WRITE=1 RUN=...", recordFile, stale)
	}
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	from, to, err := between(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(standing(all, known)+"\n", string(text[from:to])); diff != "" {
		t.Errorf("%s is not what was recorded: run make mutants WRITE=1 RUN=... (-want +got):\n%s", page, diff)
	}
}

// TestApply shows what an entry must be like.
func TestApply(t *testing.T) {
	const source = "package a\n\nfunc f() {\n\tif x {\n\t\treturn\n\t}\n\tif y {\n\t\treturn\n\t}\n}\n"
	for name, c := range map[string]struct {
		was, now   string
		text, fail string
		line       int
	}{
		"a line": {was: "if x {", now: "if !x {", line: 4, text: strings.Replace(source, "\tif x {",
			"if !x {", 1)},
		"lines that are dropped": {
			was: "if x {\n  return\n}\n", line: 4,
			text: strings.Replace(source, "\tif x {\n\t\treturn\n\t}\n", "", 1),
		},
		"more lines": {was: "if y {", now: "z()\nif y {", line: 7, text: strings.Replace(source, "\tif y {",
			"z()\nif y {", 1)},
		"another layout": {
			was: "if   y  { // why", now: "if !y {", line: 7,
			text: strings.Replace(source, "\tif y {", "if !y {", 1),
		},
		"two places":       {was: "return", fail: "its lines are there twice, from line 5 and from line 8"},
		"a part of a line": {was: "if x", fail: `its lines are not there any more: "if x"`},
		"lines apart":      {was: "if x {\nif y {", fail: `its lines are not there any more: "if x {"`},
		"nothing":          {now: "x", fail: "it says no line of the file"},
		"the same":         {was: "if x {", now: "  if x {\n", fail: "it changes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			text, line, err := edit{Was: c.was, Now: c.now}.apply([]byte(source))
			if got := fmt.Sprint(err); c.fail != "" && got != c.fail {
				t.Errorf("got %q, want %q", got, c.fail)
			}
			if diff := cmp.Diff(c.text, string(text)); diff != "" || line != c.line {
				t.Errorf("line %d, want %d (-want +got):\n%s", line, c.line, diff)
			}
		})
	}
}

// tiny is a module with a list of its own: what a run must tell apart.
func tiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module tiny\n\ngo 1.26\n",
		"a/a.go": `package a

func Less(a, b int) bool {
	return a < b
}

func Name() string {
	name := "a"
	return name
}
`,
		"a/a_test.go": `package a

import (
	"os"
	"testing"
)

func TestLess(t *testing.T) {
	t.Run("one and two", func(t *testing.T) {
		if !Less(1, 2) || Less(2, 1) {
			t.Error("not less")
		}
	})
}

func TestNameAtLast(t *testing.T) {
	if Name() == "" {
		select {}
	}
	if Name() == "!" {
		panic("!")
	}
}

func TestCage(t *testing.T) {
	if os.Getenv("CAGED") != "" {
		_ = os.WriteFile("../escaped", nil, 0o600)
	}
	if err := os.WriteFile(t.TempDir()+"/x", nil, 0o600); err != nil {
		t.Error(err)
	}
}
`,
		page: "# Proofs\n\n" + openMark + closeMark + "The end.\n",
		lists + "/a.yaml": `
- id: less-or-equal
  file: a/a.go
  why: equal is not less
  was: return a < b
  now: return a <= b
- id: greater
  file: a/a.go
  why: the order is another one
  was: return a < b
  now: return a > b
- id: no-name
  file: a/a.go
  why: somebody waits for ever
  was: name := "a"
  now: name := ""
- id: loud-name
  file: a/a.go
  why: somebody panics
  was: name := "a"
  now: name := "!"
- id: no-variable
  file: a/a.go
  why: it is no Go
  was: name := "a"
- id: another-name
  file: a/a.go
  why: it is another name
  was: name := "a"
  now: name := "b"
  explained: nobody looks at it
`,
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOutcomes runs the mutants of a tiny module: each has the outcome that it must have, by the test that must notice.
func TestOutcomes(t *testing.T) {
	dir := tiny(t)
	all, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if problems := check(dir, all); len(problems) > 0 {
		t.Fatal(problems)
	}
	var out bytes.Buffer
	r, err := newRunner(dir, &out)
	if err != nil {
		t.Fatal(err)
	}
	r.patience = 2 * time.Second
	if r.cage != nil {
		t.Setenv("CAGED", "yes")
	}
	results, err := r.all(t.Context(), all, 2)
	r.close()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range results {
		by, _, _ := strings.Cut(x.by, "\n")
		got = append(got, fmt.Sprintf("%s:%d %s %s", x.ID, x.line, x.outcome, by))
	}
	want := []string{
		"less-or-equal:4 survived ",
		"greater:4 killed TestLess",
		"no-name:8 timed out TestNameAtLast",
		"loud-name:8 killed TestNameAtLast",
		"no-variable:8 did not compile # tiny/a [tiny/a.test]",
		"another-name:8 survived ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s%s", diff, &out)
	}
	if _, err := os.Stat(filepath.Join(dir, "escaped")); err == nil {
		t.Error("a test writes wherever it likes")
	}
	if left, _ := filepath.Glob(r.dir + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	wantErr := "less-or-equal survived\nno-variable did not compile\nthe score is 50 %, at least 95 % are wanted"
	if failed := verdict(results, sum(results)); fmt.Sprint(failed) != wantErr {
		t.Errorf("got %q, want %q", failed, wantErr)
	}
	if first := r.record.with(all, results).first("greater"); first != "TestLess" {
		t.Errorf("the recorded test is %q", first)
	}
}

// TestRecord runs the recorded test first, and all of them if that one no longer notices the mutant.
func TestRecord(t *testing.T) {
	dir := tiny(t)
	all, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for first, want := range map[string]string{"TestLess": "TestLess", "TestCage": "TestLess", "TestGone": "TestLess"} {
		known := record{"greater": {killed, first}, "removed": {killed, first}}.with(all, nil)
		if err := known.write(dir); err != nil {
			t.Fatal(err)
		}
		if known, err = readRecord(dir); err != nil || len(known) != 1 {
			t.Errorf("%s: got %v (%v), want the mutant of the list", first, known, err)
		}
		r, err := newRunner(dir, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		results, err := r.all(t.Context(), all[1:2], 1)
		r.close()
		if err != nil || results[0].outcome != killed || results[0].by != want {
			t.Errorf("%s: got %+v, %v", first, results, err)
		}
	}
}

// TestCommand shows what the command prints, writes and fails for.
func TestCommand(t *testing.T) {
	dir := tiny(t)
	proofs := func() string {
		text, err := os.ReadFile(filepath.Join(dir, page))
		return string(text) + fmt.Sprint(err)
	}
	for _, c := range []struct {
		o    options
		fail string
		says string
	}{
		{options{pick: "nothing like it"}, `no mutant to run has an id or a file like "nothing like it"`, ""},
		{options{pick: "(", jobs: 1}, "cannot pick mutants: error parsing regexp: missing closing ): `(`", ""},
		{
			options{pick: "^greater$", write: true},
			"<nil>",
			"Of 1 mutants the unit tests notice 1 (100 %), 0 of them by a test that hangs; for 0 others the list explains why no test can.",
		},
		{options{pick: "^greater$", fresh: true}, `no mutant to run has an id or a file like "^greater$"`, ""},
		{
			options{pick: "less-or-equal"},
			"less-or-equal survived\nthe score is 0 %, at least 95 % are wanted",
			"a/a.go:4: less-or-equal survived: equal is not less\n\t- return a < b\n\t+ return a <= b\n",
		},
	} {
		var out bytes.Buffer
		c.o.root = dir
		if err := run(t.Context(), &out, c.o); fmt.Sprint(err) != c.fail || !strings.Contains(out.String(), c.says) {
			t.Errorf("%+v: got %v, want %q\n%s\nwant %q", c.o, err, c.fail, &out, c.says)
		}
	}
	want := "# Proofs\n\n" + openMark +
		"Of 1 mutants the unit tests notice 1 (100 %), 0 of them by a test that hangs; for 0 others the list explains why no test can. 5 more have not been run yet.\n" +
		closeMark + "The end.\n"
	if diff := cmp.Diff(want+"<nil>", proofs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.Remove(filepath.Join(dir, "a/a_test.go")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, options{root: dir}); err == nil ||
		!strings.Contains(out.String(), `"greater" (a/a.go): "a" has no tests`) {
		t.Errorf("got %v\n%s", err, &out)
	}
}

// TestCalledOff ends a run in its midst: it says so, and leaves nothing behind.
func TestCalledOff(t *testing.T) {
	dir := tiny(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}, options{root: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestVerdict shows what a run fails for.
func TestVerdict(t *testing.T) {
	is := func(o outcome, explained string) result {
		return result{mutant: mutant{ID: string(o) + explained, Explained: explained}, outcome: o, by: "TestX"}
	}
	many := make([]result, 0, 100)
	for range 95 {
		many = append(many, is(killed, ""))
	}
	for name, c := range map[string]struct {
		results []result
		want    string
	}{
		"all":     {many, "<nil>"},
		"hanging": {append(many[:94:94], is(late, "")), "<nil>"},
		"some explained": {append(many[:95:95], is(survived, "!"), is(survived, "!"), is(survived, "!"),
			is(survived, "!"), is(survived, "!")), "<nil>"},
		"too many explained": {
			append(many[:19:19], is(survived, "!"), is(survived, "!")),
			"the score is 90 %, at least 95 % are wanted",
		},
		"one of many":           {append(many[:95:95], is(survived, "")), "survived survived"},
		"wrongly explained":     {append(many[:95:95], is(killed, "!")), "killed! is explained, but TestX notices it"},
		"an entry of yesterday": {append(many[:95:95], is(broken, "")), "did not compile did not compile"},
	} {
		if got := fmt.Sprint(verdict(c.results, sum(c.results))); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
