package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Diff renders the change for people like diff -u, with two lines of context.
func (c Change) Diff() string {
	var b strings.Builder
	for _, f := range c.Files {
		before := "--- " + f.Path
		if f.New {
			before = "--- /dev/null"
		}
		fmt.Fprintf(&b, "%s\n+++ %s\n", before, f.Path)
		diff(&b, slices.Collect(strings.Lines(string(f.Before))), slices.Collect(strings.Lines(string(f.After))))
	}
	return b.String()
}

// diff writes a single hunk. Changes are one line, or two close together, so that is enough.
func diff(b *strings.Builder, before, after []string) {
	same := 0
	for same < len(before) && same < len(after) && before[same] == after[same] {
		same++
	}
	tail := 0
	for tail < len(before)-same && tail < len(after)-same && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	const around = 2
	from, behind := max(0, same-around), min(tail, around)
	first := func(all []string) int { return min(from+1, len(all)) } // an empty file starts at line 0
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", first(before), len(before)-tail+behind-from, first(after),
		len(after)-tail+behind-from)
	write := func(mark string, all []string) {
		for _, l := range all {
			text := strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r")
			b.WriteString(mark + text + "\n")
			if !strings.HasSuffix(l, "\n") {
				b.WriteString("\\ No newline at end of file\n")
			}
		}
	}
	write(" ", before[from:same])
	write("-", before[same:len(before)-tail])
	write("+", after[same:len(after)-tail])
	write(" ", before[len(before)-tail:len(before)-tail+behind])
}
