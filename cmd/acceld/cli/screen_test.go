package cli

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// emulated is what a terminal of some size shows for the bytes written to it. It knows what screen writes: cursor
// home, erase to the end of line and screen, modes, colours. Like a terminal, it continues in the next row when a row
// is full.
type emulated struct {
	rows          [][]rune
	width, height int
	x, y          int
	full          bool // the last column was written, and the cursor stays there
	modes         map[string]bool
	// erased counts how often the whole screen was cleared: a flicker.
	erased int
}

func newEmulated(width, height int) *emulated {
	e := &emulated{width: width, height: height, modes: map[string]bool{}}
	e.rows = make([][]rune, height)
	for i := range e.rows {
		e.rows[i] = []rune(strings.Repeat(" ", width))
	}
	return e
}

func (e *emulated) String() string {
	var lines []string
	for _, r := range e.rows {
		lines = append(lines, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func (e *emulated) Write(p []byte) (int, error) {
	for s := string(p); s != ""; {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			i := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			e.control(rest[:i], rest[i])
			s = rest[i+1:]
			continue
		}
		r := []rune(s)[0]
		s = s[len(string(r)):]
		switch r {
		case '\r':
			e.x, e.full = 0, false
		case '\n':
			e.down()
		default:
			if e.full {
				e.x, e.full = 0, false
				e.down()
			}
			e.rows[e.y][e.x] = r
			if e.x++; e.x == e.width {
				e.x, e.full = e.width-1, true
			}
		}
	}
	return len(p), nil
}

func (e *emulated) down() {
	if e.y++; e.y == e.height {
		e.y--
		e.rows = append(e.rows[1:], []rune(strings.Repeat(" ", e.width)))
	}
}

func (e *emulated) control(parameters string, verb byte) {
	switch verb {
	case 'H':
		e.x, e.y, e.full = 0, 0, false
	case 'K':
		for x := e.x; x < e.width; x++ {
			e.rows[e.y][x] = ' '
		}
	case 'J':
		if e.x == 0 && e.y == 0 {
			e.erased++
		}
		for x := e.x; x < e.width; x++ {
			e.rows[e.y][x] = ' '
		}
		for y := e.y + 1; y < e.height; y++ {
			e.rows[y] = []rune(strings.Repeat(" ", e.width))
		}
	case 'A':
		n, _ := strconv.Atoi(parameters)
		e.y = max(0, e.y-n)
	case 'h', 'l':
		e.modes[parameters] = verb == 'h'
	case 'm':
	default:
		panic("control " + parameters + string(verb))
	}
}

// writes counts the writes to a terminal: one for each page.
type writes struct {
	*emulated
	n int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.emulated.Write(p)
}

// TestScreen: each page is written over the last one in one write, without clearing the screen. It tries longer and
// shorter pages, wider ones, and ones that do not fit.
func TestScreen(t *testing.T) {
	e := &writes{emulated: newEmulated(20, 5)}
	s := screen{out: e}
	long := strings.Repeat("0123456789", 4)
	for i, c := range []struct{ page, want string }{
		{"one\ntwo\nthree\n", "one\ntwo\nthree"},
		{"1\n2\n", "1\n2"},
		{"\x1b[1;31mred\x1b[0m\nlonger than before\n", "red\nlonger than before"},
		{strings.Repeat("x", 19) + "\nend\n", strings.Repeat("x", 19) + "\nend"},
		{strings.Repeat("x", 20) + "\nend\n", strings.Repeat("x", 19) + "\nx\nend"},
		{"\x1b[32m" + long + "\x1b[0m\n", long[:19] + "\n" + long[19:38] + "\n" + long[38:]},
		{"ö\nä\nü\n", "ö\nä\nü"},
		{"1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5"},
		{"1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\n4\n… 3 more lines"},
		{"", ""},
	} {
		if err := s.show(c.page, 20, 5); err != nil {
			t.Fatal(err)
		}
		if got := e.String(); got != c.want {
			t.Errorf("page %d shows\n%s\nwant\n%s", i, got, c.want)
		}
		if e.n != i+1 || e.erased > 0 && c.page != "" {
			t.Errorf("page %d: %d writes, cleared %d times", i, e.n, e.erased)
		}
		if !e.modes["?1049"] || e.modes["?25"] || e.modes["?2026"] {
			t.Errorf("page %d: modes %v", i, e.modes)
		}
	}
	if err := s.close("the end\n"); err != nil || e.modes["?1049"] || !e.modes["?25"] ||
		!strings.Contains(e.String(), "the end") {
		t.Errorf("%v, modes %v:\n%s", err, e.modes, e)
	}
	var nothing bytes.Buffer
	if err := (&screen{out: &nothing}).close("x"); err != nil || nothing.Len() > 0 {
		t.Errorf("a screen that showed nothing wrote %q", nothing.String())
	}
}

// TestEveryPageOnScreens: pages fit terminals of many widths when they are written over each other.
func TestEveryPageOnScreens(t *testing.T) {
	for _, width := range []int{24, 41, 79, 80, 200} {
		e := newEmulated(width, 60)
		s := screen{out: e}
		every(func(title string, m shown) {
			sh := &tableWriter{palette: true, width: width - 1}
			printMachine(sh, m)
			if err := s.show(sh.String(), width, 60); err != nil {
				t.Fatal(err)
			}
			squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
			bare := &tableWriter{width: width - 1}
			printMachine(bare, m)
			if rows := strings.Join(split(bare.String(), width), "\n"); len(strings.Split(rows, "\n")) <= 60 &&
				squeeze(e.String()) != squeeze(bare.String()) {
				t.Errorf("%s at %s:\n%s\nwant\n%s", title, strconv.Itoa(width), e, bare)
			}
		})
	}
}
