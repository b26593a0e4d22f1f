package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// colourful reports whether out is a terminal that wants colour (no-color.org).
func colourful(out io.Writer) bool {
	return columns(out) > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// columns is the width of the terminal that out is, 0 when it is none.
func columns(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// printPage prints text; lines longer than the terminal is wide are wrapped, and in a pipe none is.
func printPage(out io.Writer, text string) error {
	if width := columns(out); width >= 40 { // in a narrower one a wrapped table is no better
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(wrap(line, width))
		}
		text = b.String()
	}
	_, err := io.WriteString(out, text)
	return err
}

// wrap breaks a line at spaces so that no part is wider than width, except single words that are. What follows the first
// part is indented as what follows the label of the line, such as "  driver   ", or by four more than the line.
func wrap(line string, width int) string {
	if visible(strings.TrimRight(line, "\n")) <= width {
		return line
	}
	body := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(body)]
	hang := len(indent) + 4
	if label := regexp.MustCompile(`^ *[a-z]+  +`).FindString(line); label != "" && len(label) < 12 {
		hang = len(label)
	}
	var b strings.Builder
	b.WriteString(indent)
	column := len(indent)
	// The spaces before a word are kept: they are a table's.
	for _, word := range regexp.MustCompile(` *[^ ]+`).FindAllString(strings.TrimRight(body, "\n"), -1) {
		if column > hang && column+visible(word) > width {
			b.WriteString("\n" + strings.Repeat(" ", hang))
			column = hang
			word = strings.TrimLeft(word, " ")
		}
		b.WriteString(word)
		column += visible(word)
	}
	return b.String() + "\n"
}

// visible is the number of columns that s takes: its characters without the colours.
func visible(s string) int {
	return utf8.RuneCountInString(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(s, ""))
}
