package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// columns returns the width of the terminal behind out; 0 if it is not a terminal.
func columns(out io.Writer) int {
	width, _ := size(out)
	return width
}

// size returns the size of the terminal behind out; 0 and 0 if it is not a terminal.
func size(out io.Writer) (width, height int) {
	if a, wrapped := out.(above); wrapped {
		out = a.out
	}
	f, ok := out.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// newSheet returns a tableWriter for out: as wide as the terminal and in colour (no-color.org), and without limit and
// plain in a pipe.
func newSheet(out io.Writer) *tableWriter {
	width := columns(out)
	colour := width > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &tableWriter{palette: palette(colour), width: width}
}

// screen shows pages in place on a terminal without flicker: one write overwrites what has changed, and the terminal
// is asked to show it at once (synchronized output, DEC private mode 2026, which other terminals ignore).
type screen struct {
	out   io.Writer
	shown bool
}

// show writes a page over the last one. If the page has more rows than the terminal, it shows how many are missing.
func (s *screen) show(text string, width, height int) error {
	rows := split(text, width)
	if more := len(rows) - height; height > 0 && more > 0 {
		rows = append(rows[:height-1], fmt.Sprintf("… %d more lines", more+1))
	}
	var b strings.Builder
	if !s.shown {
		b.WriteString("\x1b[?1049h\x1b[?25l") // alternate screen, no cursor
		s.shown = true
	}
	b.WriteString("\x1b[?2026h\x1b[H")
	for i, row := range rows {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(row + "\x1b[K")
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	_, err := io.WriteString(s.out, b.String())
	return err
}

// close restores the terminal and leaves the last page in it.
func (s *screen) close(last string) error {
	if !s.shown {
		return nil
	}
	s.shown = false
	_, err := io.WriteString(s.out, "\x1b[?25h\x1b[?1049l"+last)
	return err
}

// split cuts text into rows that leave the last column free. After a character in the last column, the terminal's
// cursor stays there, and the code that erases the rest of the line would erase that character.
func split(text string, width int) []string {
	var rows []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		for width > 1 && visible(line) >= width {
			at := cut(line, width-1)
			rows, line = append(rows, line[:at]), line[at:]
		}
		rows = append(rows, line)
	}
	return rows
}

// cut returns the index in s where the first n columns end.
func cut(s string, n int) int {
	for i := 0; i < len(s); {
		if code, _, ok := strings.Cut(s[i:], "m"); ok && strings.HasPrefix(code, "\x1b[") {
			i += len(code) + 1
			continue
		}
		if n == 0 {
			return i
		}
		n--
		_, bytes := utf8.DecodeRuneInString(s[i:])
		i += bytes
	}
	return len(s)
}
