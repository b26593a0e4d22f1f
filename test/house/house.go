// Package house holds the rules of the house as functions over the parsed tree: import direction, package comments,
// global state, vendor names, budgets, host access, skips, words. It reads source files and nothing else; it does not
// compile, does not run programs and does not change a file. STYLE.md gives the reasons.
package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Rule is one rule: its name is the name of its test and of its fixture under testdata.
type Rule struct {
	Name string
	// Sentence says what holds where the rule is kept. STYLE.md repeats it word for word.
	Sentence string
	// Check returns what breaks the rule in t, in any order.
	Check func(t *Tree) []Finding
}

// Rules returns every rule, in the order of STYLE.md.
func Rules() []Rule {
	return []Rule{
		{
			"imports",
			"Imports point down: cmd → agent → the organs → host → accel, sideways only from dra to kube, and only cmd imports vendors.",
			imports,
		},
		{"dependencies", "accel imports the standard library only; vendors add a YAML reader.", dependencies},
		{
			"clientset",
			"The agent imports neither client-go's clientset nor its informers: one client for each resource keeps the program small.",
			clientset,
		},
		{
			"templates",
			"Nothing imports text/template or html/template, which call methods by name; accel alone has the parser, and refuses what a stranger's definition may not contain.",
			templates,
		},
		{"places", "Every package has a place in the house and a name that says what it is.", places},
		{"doc", "Every package has exactly one package comment.", doc},
		{"init", "No package has an init function.", initFunctions},
		{
			"globals", "Package variables are error sentinels, embedded files, compiled patterns and blank assertions.",
			globals,
		},
		{
			"vendor",
			"No vendor's name and no PCI vendor id is in an identifier or a string outside vendors, their probe programs and tests.",
			vendorNames,
		},
		{
			"columns",
			"A line has at most 120 columns, a tab being 4 of them and what a string literal holds none.",
			columns,
		},
		{"function", "A function has at most 80 lines.", functionLength},
		{"file", "A source file has at most 500 lines.", fileLength},
		{"interface", "An interface has at most 3 methods.", interfaceSize},
		{"methods", "A type has at most 40 methods.", methods},
		{
			"goroutines",
			"Only package guard starts goroutines, so that a panic ends one part and never the program.",
			goroutines,
		},
		{
			"wiring",
			"In cmd no health is made up and no goroutine starts: the probe programs of vendors aside, it wires and prints.",
			wiring,
		},
		{"main", "The file of a main function has at most 100 lines.", mainLength},
		{"sleep", "Nothing but tests calls time.Sleep.", sleep},
		{"machine", "Only host runs programs, makes system calls and touches files of the machine.", machine},
		{"skip", "A skipped test says in a literal sentence which condition is missing.", skips},
		{"licence", "The licence is in LICENSE, not repeated at the top of source files.", licence},
		{
			"prose",
			"The field's words stand in for ours: what the word list of STYLE.md calls unclear is nowhere in the tree.",
			prose,
		},
		{
			"words", "No path of a developer's machine, no registry host and no word of a workplace is in the tree.",
			words,
		},
	}
}

// A Finding is one place that breaks a rule.
type Finding struct {
	File string // slash-separated, relative to the root of the tree
	Line int    // 1-based; 0 when the whole file or package is meant
	Text string
}

// String formats the finding as compilers do.
func (f Finding) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Tree is a parsed source tree: what the rules see.
type Tree struct {
	// Module is the import path of the root module.
	Module string
	// Sources are the Go files, sorted by path, those under testdata left out.
	Sources []Source
	// Texts are all text files, Go files included, checksum files left out.
	Texts []Text
	// Limits are the budgets.
	Limits Limits

	fset *token.FileSet
}

// Limits are the budgets, in lines and methods.
type Limits struct {
	Function, File, Interface, Methods, Main int
}

// Budgets returns the limits of this repository.
func Budgets() Limits {
	return Limits{Function: 80, File: 500, Interface: 3, Methods: 40, Main: 100}
}

// Source is one Go file.
type Source struct {
	Path string
	AST  *ast.File
	// Lines is the number of lines of the file.
	Lines int
}

// Text is one text file.
type Text struct {
	Path  string
	Bytes []byte
}

// Test reports whether the file is a test.
func (s Source) Test() bool { return strings.HasSuffix(s.Path, "_test.go") }

// Dir is the directory of the file, "." for the root.
func (s Source) Dir() string { return path.Dir(s.Path) }

// Top is the first element of the file's path: the room of the house it is in.
func (s Source) Top() string { return top(s.Path) }

// Product reports whether the file is part of what users run: not a test and not below test, tools or packaging.
func (s Source) Product() bool {
	return !s.Test() && !slices.Contains([]string{"test", "tools", "packaging"}, s.Top())
}

func top(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

// Load parses the tree in fsys. It fails when a Go file does not parse or there is no go.mod.
func Load(fsys fs.FS, limits Limits) (*Tree, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, fmt.Errorf("cannot load the tree: %w", err)
	}
	m := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(mod)
	if m == nil {
		return nil, errors.New("cannot load the tree: go.mod names no module")
	}
	t := &Tree{Module: string(m[1]), Limits: limits, fset: token.NewFileSet()}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "node_modules"}, d.Name()):
			return fs.SkipDir
		// a work tree's is a file
		case d.IsDir() || !d.Type().IsRegular() || strings.HasSuffix(name, ".sum"), name == ".git":
			return nil
		}
		return t.add(fsys, name)
	})
	return t, err
}

func (t *Tree) add(fsys fs.FS, name string) error {
	b, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // written by another process and gone again: not part of the tree
	}
	if err != nil {
		return err
	}
	if bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 {
		return nil // binary
	}
	t.Texts = append(t.Texts, Text{Path: name, Bytes: b})
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(path.Dir(name), "/"), "testdata") {
		return nil
	}
	f, err := parser.ParseFile(t.fset, name, b, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("cannot parse: %w", err)
	}
	t.Sources = append(t.Sources, Source{Path: name, AST: f, Lines: bytes.Count(b, []byte("\n"))})
	return nil
}

// find makes a finding at node n of source s.
func (t *Tree) find(s Source, n ast.Node, format string, args ...any) Finding {
	return Finding{s.Path, t.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...)}
}

// lines is the number of lines that node n covers.
func (t *Tree) lines(n ast.Node) int {
	return t.fset.Position(n.End()).Line - t.fset.Position(n.Pos()).Line + 1
}

// inspect calls visit for every node of every source that keep accepts, and collects what visit returns.
func (t *Tree) inspect(keep func(Source) bool, visit func(Source, ast.Node) []Finding) []Finding {
	var out []Finding
	for _, s := range t.Sources {
		if !keep(s) {
			continue
		}
		ast.Inspect(s.AST, func(n ast.Node) bool {
			if n != nil {
				out = append(out, visit(s, n)...)
			}
			return true
		})
	}
	return out
}

// selector returns the package path and the name when n is a selector on an imported package, such as "os/exec" and
// "Command"; empty strings otherwise.
func selector(s Source, n ast.Node) (pkg, name string) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	for _, spec := range s.AST.Imports {
		p := importPath(spec)
		if (spec.Name != nil && spec.Name.Name == id.Name) || (spec.Name == nil && path.Base(p) == id.Name) {
			return p, sel.Sel.Name
		}
	}
	return "", ""
}

func importPath(spec *ast.ImportSpec) string {
	return strings.Trim(spec.Path.Value, `"`)
}
