package house

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestHouse holds the repository to every rule.
func TestHouse(t *testing.T) {
	tree := load(t, os.DirFS("../.."), Budgets())
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			for _, f := range r.Check(tree) {
				t.Errorf("%s", f)
			}
			if t.Failed() {
				t.Logf("the rule: %s", r.Sentence)
			}
		})
	}
}

// TestRulesCatch shows each rule a small tree that breaks it, under testdata/<rule>, and compares the findings with
// the file "want" there. Every such tree also holds what comes close and is allowed.
func TestRulesCatch(t *testing.T) {
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			dir := "testdata/" + r.Name
			want, err := os.ReadFile(dir + "/want")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range r.Check(load(t, fixture(t, dir+"/tree"), Limits{
				Function: 4, File: 12, Interface: 1,
				Methods: 2, Main: 6,
			})) {
				got = append(got, f.String())
			}
			slices.Sort(got)
			if len(got) == 0 {
				t.Error("the rule finds nothing in its own counter-example")
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(undotted(want)), "\n"), got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExceptionsNeeded holds the list of exceptions to what the code still does.
func TestExceptionsNeeded(t *testing.T) {
	tree := load(t, os.DirFS("../.."), Budgets())
	for _, e := range exceptions() {
		used := tree.inspect(Source.Product, func(s Source, n ast.Node) []Finding {
			if pkg, name := selector(s, n); s.Dir() == e.dir && pkg != "" && matches(e.what, path.Base(pkg)+"."+name) {
				return []Finding{{}}
			}
			return nil
		})
		if len(used) == 0 {
			t.Errorf("nothing in %s uses %s any more: delete the exception", e.dir, e.what)
		}
	}
}

// TestRulesWritten holds STYLE.md to the rules: each with its sentence, and no other.
func TestRulesWritten(t *testing.T) {
	style, err := os.ReadFile("../../STYLE.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, r := range Rules() {
		want = append(want, "| `"+r.Name+"` | "+r.Sentence+" |")
	}
	var got []string
	for line := range strings.Lines(string(style)) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of STYLE.md (-want +got):\n%s", diff)
	}
}

func load(t *testing.T, fsys fs.FS, limits Limits) *Tree {
	t.Helper()
	tree, err := Load(fsys, limits)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// fixture reads the tree of a counter-example, without the dots.
func fixture(t *testing.T, dir string) fs.FS {
	t.Helper()
	m := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		m[name] = &fstest.MapFile{Data: []byte(undotted(b))}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// undotted takes out the middle dots that keep the words of the fixture "words" from being words of this repository.
func undotted(b []byte) string { return strings.ReplaceAll(string(b), "·", "") }
