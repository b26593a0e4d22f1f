package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// edit is one change of one file.
type edit struct {
	// File is relative to the root of the module.
	File string
	// Was are whole lines of the file, which it has exactly once; comments and white space do not count.
	Was string
	// Now takes their place; empty when they are only left out.
	Now string
}

// mutant is one entry of the list.
type mutant struct {
	ID   string
	edit `yaml:",inline"`
	// Also are changes of other files, for what two places hold together.
	Also []edit
	// Why says what the mutant would do to somebody.
	Why string
	// Tests are the directories of the packages whose tests must notice, in the order in which they are asked. The
	// package of the file when there is none.
	Tests []string
	// Explained says why no test can tell the mutant from the original.
	Explained string
}

// lists is where the entries are, one file for each room of the house.
const lists = "test/mutants/list"

// read returns the entries of all files, in the order of files and lines.
func read(root string) ([]mutant, error) {
	names, err := filepath.Glob(filepath.Join(root, lists, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var some []mutant
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		if err := decoder.Decode(&some); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("cannot read %q: %v", name, err)
		}
		for i := range some {
			if len(some[i].Tests) == 0 {
				some[i].Tests = []string{path.Dir(some[i].File)}
			}
		}
		all = append(all, some...)
	}
	return all, nil
}

// check says what is wrong with the list: the tree has moved on under an entry, or it never was complete.
func check(root string, all []mutant) []string {
	var problems []string
	seen := map[string]bool{}
	for _, m := range all {
		found := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%q (%s): ", m.ID, m.File)+fmt.Sprintf(format, args...))
		}
		if m.ID == "" || m.Why == "" {
			found("it needs an id, and why it matters")
		}
		if seen[m.ID] {
			found("the id is there twice")
		}
		seen[m.ID] = true
		for _, dir := range m.Tests {
			if tests, err := filepath.Glob(filepath.Join(root, dir, "*_test.go")); err != nil || len(tests) == 0 {
				found("%q has no tests", dir)
			}
		}
		files := map[string]bool{}
		for _, e := range m.edits() {
			if files[e.File] {
				found("%s is there twice", e.File)
			}
			files[e.File] = true
			source, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				found("%v", err)
				continue
			}
			text, _, err := e.apply(source)
			if err != nil {
				found("%v", err)
				continue
			}
			if _, err := parser.ParseFile(token.NewFileSet(), e.File, text, parser.SkipObjectResolution); err != nil {
				found("what comes of it is no Go: %v", err)
			}
		}
	}
	return problems
}

func (m mutant) edits() []edit { return slices.Concat([]edit{m.edit}, m.Also) }

// apply returns the source with the change in it, and the line where it begins. Comments and white space are not
// compared, so that an entry outlives better prose and another layout.
func (e edit) apply(source []byte) (text []byte, line int, err error) {
	was := filled(bare(e.Was))
	if len(was) == 0 {
		return nil, 0, errors.New("it says no line of the file")
	}
	code := filled(bare(string(source)))
	first, last := -1, -1
	for i := 0; i+len(was) <= len(code); i++ {
		if !slices.EqualFunc(was, code[i:i+len(was)], func(a, b numbered) bool { return a.text == b.text }) {
			continue
		}
		if first >= 0 {
			return nil, 0, fmt.Errorf("its lines are there twice, from line %d and from line %d", first+1, code[i].at+1)
		}
		first, last = code[i].at, code[i+len(was)-1].at
	}
	if first < 0 {
		return nil, 0, fmt.Errorf("its lines are not there any more: %q", was[0].text)
	}
	if slices.EqualFunc(was, filled(bare(e.Now)), func(a, b numbered) bool { return a.text == b.text }) {
		return nil, 0, errors.New("it changes nothing")
	}
	lines := strings.SplitAfter(string(source), "\n")
	out := slices.Clone(lines[:first])
	for _, l := range trimmed(e.Now) {
		out = append(out, l+"\n")
	}
	out = append(out, lines[last+1:]...)
	return []byte(strings.Join(out, "")), first + 1, nil
}

// numbered is a line with its place in its text.
type numbered struct {
	text string
	at   int
}

// filled returns the lines that are not empty.
func filled(lines []string) []numbered {
	var out []numbered
	for i, l := range lines {
		if l != "" {
			out = append(out, numbered{l, i})
		}
	}
	return out
}

// bare returns the lines of Go code without comments, and with one space for white space of any length.
func bare(text string) []string {
	code := []byte(text)
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(code))
	s.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
	for {
		pos, tok, comment := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok != token.COMMENT {
			continue
		}
		at := file.Offset(pos)
		for i := at; i < at+len(comment); i++ {
			if code[i] != '\n' {
				code[i] = ' '
			}
		}
	}
	lines := strings.Split(string(code), "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return lines
}

// trimmed returns the lines of a text without the white space around them; none for an empty text.
func trimmed(text string) []string {
	var out []string
	for l := range strings.Lines(strings.TrimSpace(text)) {
		out = append(out, strings.TrimSpace(l))
	}
	return out
}
