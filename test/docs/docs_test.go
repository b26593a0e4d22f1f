package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/vendors"
)

const root = "../.."

// TestGenerated holds the generated pages to the code they come from.
func TestGenerated(t *testing.T) {
	for _, p := range Pages(root) {
		got, err := os.ReadFile(filepath.Join(root, p.Path))
		if err != nil {
			t.Errorf("%v: run make generate", err)
			continue
		}
		if diff := cmp.Diff(p.Text, string(got)); diff != "" {
			t.Errorf("%s is not what the code says, run make generate (-code +page):\n%s", p.Path, diff)
		}
	}
}

// TestLinks follows every relative link, with its anchor.
func TestLinks(t *testing.T) {
	all := pages(t)
	for name, m := range all {
		for _, l := range m.Links {
			if strings.Contains(l.Target, "://") || strings.HasPrefix(l.Target, "mailto:") {
				continue
			}
			target, fragment, _ := strings.Cut(l.Target, "#")
			file := filepath.Join(filepath.Dir(name), target)
			if target == "" {
				file = name
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s:%d: %q is not there", name, l.Line, l.Target)
				continue
			}
			if fragment != "" && !slices.Contains(all[file].Anchors, fragment) {
				t.Errorf("%s:%d: %q has no heading %q", name, l.Line, file, fragment)
			}
		}
	}
}

// TestIndex holds the index of docs to the folder: every file of it can be reached from there.
func TestIndex(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	var linked []string
	for _, l := range pages(t)["docs/README.md"].Links {
		linked = append(linked, strings.Split(l.Target, "#")[0])
	}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		if name != "README.md" && name != "pictures/" && !slices.Contains(linked, name) { // TestPictures
			t.Errorf("docs/README.md does not link %s", name)
		}
	}
}

// TestTree holds the drawing of the house in ARCHITECTURE.md to the folders.
func TestTree(t *testing.T) {
	var drawn, there []string
	for _, b := range pages(t)["ARCHITECTURE.md"].Blocks {
		for _, m := range regexp.MustCompile(`(?m)^([a-z]+)/ `).FindAllStringSubmatch(b.Text, -1) {
			drawn = append(drawn, m[1])
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" && e.Name() != "dist" {
			there = append(there, e.Name())
		}
	}
	slices.Sort(drawn)
	if diff := cmp.Diff(there, drawn); diff != "" {
		t.Errorf("folders (-there +drawn):\n%s", diff)
	}
}

// TestCommands holds every command in a page to what is there: shell syntax, make targets, Go packages of the
// repository, commands and flags of acceld.
func TestCommands(t *testing.T) {
	makefile := read(t, "Makefile")
	known := commands(t)
	for name, m := range pages(t) {
		for _, b := range m.Blocks {
			for _, c := range b.Commands() {
				where, line := fmt.Sprintf("%s:%d", name, c.Line), c.Text
				if out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", line).CombinedOutput(); err != nil {
					t.Errorf("%s: %q: %s", where, line, out)
				}
				if err := check(line, makefile, known); err != nil {
					t.Errorf("%s: %q: %v", where, line, err)
				}
			}
		}
	}
}

// check looks at the programs of the repository in one command line.
func check(line, makefile string, known map[string]string) error {
	line, _, _ = strings.Cut(line, " #")
	for _, simple := range regexp.MustCompile(`&&|\|\||[|;]`).Split(line, -1) {
		words := strings.Fields(simple)
		for len(words) > 0 && (words[0] == "sudo" || strings.Contains(words[0], "=")) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		switch filepath.Base(words[0]) {
		case "make":
			for _, w := range words[1:] {
				if !strings.ContainsAny(w, "=-") &&
					!regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(w)+`:`).MatchString(makefile) {
					return fmt.Errorf("the Makefile has no target %q", w)
				}
			}
		case "go":
			for _, w := range words[1:] {
				if dir, ok := strings.CutPrefix(w, "./"); ok && !strings.HasSuffix(dir, "...") {
					if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
						return err
					}
				}
			}
		case "acceld":
			if err := checkProgram(words[1:], known); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkProgram holds the arguments of acceld to its help: the command is there, and so is every flag.
func checkProgram(args []string, known map[string]string) error {
	command := "acceld"
	for len(args) > 0 && known[command+" "+args[0]] != "" {
		command, args = command+" "+args[0], args[1:]
	}
	help := known[command]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") && strings.Contains(help, "Available Commands:") {
		return fmt.Errorf("%s has no command %q", command, args[0])
	}
	for _, a := range args {
		flag, _, _ := strings.Cut(a, "=")
		if strings.HasPrefix(flag, "-") &&
			!regexp.MustCompile(`(?m)^ .*`+regexp.QuoteMeta(flag)+`\b`).MatchString(help) {
			return fmt.Errorf("%s has no flag %q", command, flag)
		}
	}
	return nil
}

// TestNamedTests holds every `file_test.go:TestName` in a page to the tree: the file is there and has the test, and a
// part behind a slash is one of its parts.
func TestNamedTests(t *testing.T) {
	for name := range pages(t) {
		for _, ref := range testRefs(read(t, name)) {
			if err := ref.check(root); err != nil {
				t.Errorf("%s: %q: %v", name, ref, err)
			}
		}
	}
}

// TestNodeE2E holds each row of docs/node-e2e.md to its form. A result that says "covered" names a test; the
// others give a reason.
func TestNodeE2E(t *testing.T) {
	rows, seen := 0, map[string]bool{}
	file := ""
	for line := range strings.Lines(read(t, "docs/node-e2e.md")) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			file = strings.TrimSpace(title)
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.TrimSpace(cells[1]) == "theirs" || strings.HasPrefix(cells[1], "-") {
			continue
		}
		rows++
		theirs := strings.TrimSpace(cells[1])
		if seen[file+theirs] {
			t.Errorf("%s: %s is there twice", file, theirs)
		}
		seen[file+theirs] = true
		if err := checkRow(cells[3], strings.TrimSpace(cells[4])); err != nil {
			t.Errorf("%s: %s: %v", file, theirs, err)
		}
	}
	if rows == 0 {
		t.Error("the page has no row")
	}
}

// checkRow looks at what a row names and what it says comes of it.
func checkRow(ours, result string) error {
	refs := testRefs(ours)
	word, reason, _ := strings.Cut(result, ":")
	switch word {
	case "covered":
		if len(refs) == 0 {
			return errors.New("covered by no test")
		}
	case "not ours", "open":
		if strings.TrimSpace(reason) == "" {
			return fmt.Errorf("%s without a reason", word)
		}
	default:
		return fmt.Errorf("no such result: %q", word)
	}
	return nil
}

// testRef is a test as a page names it.
type testRef struct{ file, test, part string }

func (r testRef) String() string { return strings.TrimSuffix(r.file+":"+r.test+"/"+r.part, "/") }

// testRefs finds the tests that a text names in code, by path.
func testRefs(text string) []testRef {
	var all []testRef
	for _, m := range regexp.MustCompile(
		"`([a-z][a-z0-9_/]*_test\\.go):(Test[A-Za-z0-9_]*)(?:/([^`]+))?`").FindAllStringSubmatch(text, -1) {
		all = append(all, testRef{m[1], m[2], m[3]})
	}
	return all
}

// check looks for the test in the tree at root.
func (r testRef) check(root string) error {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, r.file), nil, 0)
	if err != nil {
		return err
	}
	test := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == r.test
	})
	if test < 0 {
		return errors.New("the file has no such test")
	}
	found := r.part == ""
	ast.Inspect(f.Decls[test], func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			found = found || err == nil && text == r.part
		}
		return true
	})
	if !found {
		return errors.New("the test has no such part")
	}
	return nil
}

// TestSnippets parses every block of YAML; a "yaml config" is a configuration file of the agent, a "yaml definition"
// one of a kind, a "yaml policy" an AcceleratorPolicy.
func TestSnippets(t *testing.T) {
	for name, m := range pages(t) {
		for _, b := range m.Blocks {
			kind, use, _ := strings.Cut(b.Info, " ")
			if kind != "yaml" {
				continue
			}
			for _, document := range strings.Split(b.Text, "\n---\n") {
				var v any
				if err := yaml.UnmarshalStrict([]byte(document), &v); err != nil {
					t.Errorf("%s:%d: %v", name, b.Line, err)
				}
			}
			if use == "definition" {
				if _, faults := vendors.Read([]byte(b.Text)); len(faults) > 0 {
					t.Errorf("%s:%d: %v", name, b.Line, faults)
				}
			}
			if use == "policy" {
				var p policy.Policy
				if err := yaml.UnmarshalStrict([]byte(b.Text), &struct {
					metav1.TypeMeta `json:",inline"`
					*policy.Policy  `json:",inline"`
				}{Policy: &p}); err != nil || len(p.Spec.Problems()) > 0 {
					t.Errorf("%s:%d: %v %v", name, b.Line, err, p.Spec.Problems())
				}
			}
			if use == "config" {
				if _, err := agent.ParseConfig(name, []byte(b.Text)); err != nil {
					t.Errorf("%s:%d: %v", name, b.Line, err)
				}
			}
		}
	}
}

// TestCheck shows the checks what they must catch.
func TestCheck(t *testing.T) {
	known := map[string]string{
		"acceld":             "Available Commands:\n  driver\n",
		"acceld driver":      "Available Commands:\n  list\n",
		"acceld driver list": "Flags:\n  -o, --output string   json\n",
	}
	makefile := "test: check\n\techo\n"
	for line, want := range map[string]string{
		"make test":                            "",
		"make test   # all of it":              "",
		"make JOBS=2 test":                     "",
		"make tests":                           `the Makefile has no target "tests"`,
		"cd x && sudo make demo":               `the Makefile has no target "demo"`,
		"go run ./test/docs/gen":               "",
		"go run ./test/nothing":                "stat ../../test/nothing: no such file or directory",
		"sudo acceld driver list -o json":      "",
		"acceld driver list --output=json | x": "",
		"acceld drivers":                       `acceld has no command "drivers"`,
		"acceld driver lst":                    `acceld driver has no command "lst"`,
		"bin/acceld driver list --wide":        `acceld driver list has no flag "--wide"`,
	} {
		got := ""
		if err := check(line, makefile, known); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// TestCheckNamedTests shows the checks of named tests what they must catch.
func TestCheckNamedTests(t *testing.T) {
	for text, want := range map[string]string{
		"`test/docs/docs_test.go:TestParse`":                                           "",
		"`test/e2e/node_test.go:TestDaemonSet/kill -9 under a pod` and so on":          "",
		"`test/docs/docs_test.go:TestParse/a part`":                                    "the test has no such part",
		"`test/docs/docs_test.go:TestParses`":                                          "the file has no such test",
		"`test/docs/nothing_test.go:TestParse`, `test/docs/docs_test.go:TestSnippets`": "no such file or directory",
	} {
		got := testRefs(text)[0].check(root)
		if (got == nil) != (want == "") || got != nil && !strings.HasSuffix(got.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, got, want)
		}
	}
	for row, want := range map[[2]string]string{
		{"`test/docs/docs_test.go:TestParse`", "covered"}: "",
		{"", "covered"}: "covered by no test",
		{"`test/e2e/dra_test.go:TestDRA`", "open: one engine only"}: "",
		{"", "not ours: the kubelet alone"}:                         "",
		{"", "not ours"}:                                            "not ours without a reason",
		{"", "perhaps"}:                                             `no such result: "perhaps"`,
	} {
		got := ""
		if err := checkRow(row[0], row[1]); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", row, got, want)
		}
	}
}

// TestParse reads one page with everything in it.
func TestParse(t *testing.T) {
	got := Parse(
		"# A title: with `code`\n\nSee [one](a.md#b) and `[not](this)`.\n\n```console\n$ make \\\n    test\nok\n```\n")
	want := Markdown{
		Links:   []Link{{3, "a.md#b"}},
		Blocks:  []Block{{5, "a-title-with-code", "console", "$ make \\\n    test\nok\n"}},
		Anchors: []string{"a-title-with-code"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Command{{6, "make test", "ok\n"}}, got.Blocks[0].Commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// pages parses every page of the repository, by path.
func pages(t *testing.T) map[string]Markdown {
	t.Helper()
	out := map[string]Markdown{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata"}, d.Name()):
			return fs.SkipDir
		case filepath.Ext(name) != ".md":
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err == nil {
			out[rel] = Parse(read(t, rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// commands reads docs/cli.md, which TestGenerated holds to the program: the help of each command, by its full name.
func commands(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, section := range strings.Split(read(t, "docs/cli.md"), "\n## ")[1:] {
		name, help, _ := strings.Cut(section, "\n")
		out[name] = help
	}
	return out
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
