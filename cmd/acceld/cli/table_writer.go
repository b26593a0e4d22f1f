package cli

import (
	"strings"
	"unicode/utf8"
)

// labelWidth is the column where the text after a label begins.
const labelWidth = 11

// tableWriter is a text for people that fits a width. The zero tableWriter has no colour and no limit of width.
type tableWriter struct {
	palette
	// width is the number of columns; 0 means no limit.
	width int
	b     strings.Builder
}

// String returns what was written.
func (s *tableWriter) String() string { return s.b.String() }

// line writes a line. What does not fit continues below, indented by four more columns.
func (s *tableWriter) line(indent int, text string) {
	s.fold(strings.Repeat(" ", indent), indent+4, text)
}

// field writes a label and its text. What does not fit continues below the text.
func (s *tableWriter) field(indent int, label, text string) {
	if text == "" {
		return
	}
	prefix := strings.Repeat(" ", indent) + label
	prefix += strings.Repeat(" ", max(1, indent+labelWidth-2-visible(prefix)))
	s.fold(prefix, indent+labelWidth-2, text)
}

// fields writes several texts below each other, with a label before the first.
func (s *tableWriter) fields(indent int, label string, texts []string) {
	for _, t := range texts {
		s.field(indent, label, plain(t))
		label = ""
	}
}

// minText is the minimum width of a column of text. Narrower text is unreadable, and the terminal may as well wrap
// it.
const minText = 20

// fold writes prefix and text. It breaks text at spaces if it is wider than the tableWriter, and indents further lines
// by hang.
func (s *tableWriter) fold(prefix string, hang int, text string) {
	if text == "" || s.width == 0 || s.width-hang < minText {
		s.b.WriteString(strings.TrimRight(prefix+text, " ") + "\n")
		return
	}
	s.breakAt(prefix, hang, text)
}

// breakAt is fold for a width that has room.
func (s *tableWriter) breakAt(prefix string, hang int, text string) {
	s.b.WriteString(prefix)
	at, gap, begun := visible(prefix), "", false
	for word := range strings.SplitSeq(text, " ") {
		if word == "" { // a run of spaces, which aligns a table
			gap += " "
			continue
		}
		if begun && at+len(gap)+visible(word) > s.width {
			s.b.WriteString("\n" + strings.Repeat(" ", hang))
			at, gap = hang, ""
		}
		s.b.WriteString(gap + word)
		at += len(gap) + visible(word)
		gap, begun = " ", true
	}
	s.b.WriteString("\n")
}

// aligned formats rows as lines with aligned columns, and returns the width of the widest line.
func aligned(rows [][]string) (lines []string, width int) {
	var wide []int
	for _, r := range rows {
		for c, cell := range r {
			if c == len(wide) {
				wide = append(wide, 0)
			}
			wide[c] = max(wide[c], visible(cell))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for c, cell := range r {
			b.WriteString(cell)
			if c < len(r)-1 {
				b.WriteString(strings.Repeat(" ", wide[c]-visible(cell)+2))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		lines, width = append(lines, line), max(width, visible(line))
	}
	return lines, width
}

// table writes rows with aligned columns; the first row contains the headings.
func (s *tableWriter) table(rows [][]string) {
	lines, _ := aligned(rows)
	for _, line := range lines {
		s.line(0, line)
	}
}

// visible returns the number of columns that s takes: its characters without the colour codes.
func visible(s string) int {
	n := 0
	for {
		before, after, colour := strings.Cut(s, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !colour {
			return n
		}
		_, s, _ = strings.Cut(after, "m")
	}
}
