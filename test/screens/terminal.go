package screens

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cell is a character of a terminal; style is the parameter of the SGR code that it was written with, such as "1;31".
type cell struct {
	char  rune
	style string
}

// terminal is what a terminal of some size shows of the bytes written to it. It knows what acceld writes: cursor home,
// erase, the alternate screen, synchronized output and colours.
type terminal struct {
	width, height int
	rows          [][]cell
	x, y          int
	style         string
	// page is called at the end of each synchronized output.
	page func()
}

func (t *terminal) clear() {
	t.rows, t.x, t.y = nil, 0, 0
	for range t.height {
		t.rows = append(t.rows, make([]cell, t.width))
	}
}

func (t *terminal) write(s string) {
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			if i := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' }); i >= 0 {
				t.control(rest[:i], rest[i])
				s = rest[i+1:]
				continue
			}
		}
		r := []rune(s)[0]
		s = s[len(string(r)):]
		switch r {
		case '\r':
			t.x = 0
		case '\n':
			t.down()
		default:
			if t.x == t.width {
				t.x = 0
				t.down()
			}
			t.rows[t.y][t.x] = cell{r, t.style}
			t.x++
		}
	}
}

func (t *terminal) down() {
	if t.y++; t.y == t.height {
		t.y--
		t.rows = append(t.rows[1:], make([]cell, t.width))
	}
}

func (t *terminal) control(parameters string, verb byte) {
	switch verb {
	case 'H':
		t.x, t.y = 0, 0
	case 'K':
		clear(t.rows[t.y][min(t.x, t.width-1):])
	case 'J':
		clear(t.rows[t.y][min(t.x, t.width-1):])
		for _, row := range t.rows[t.y+1:] {
			clear(row)
		}
	case 'm':
		t.style = strings.TrimPrefix(parameters, "0")
	case 'h', 'l':
		switch {
		case parameters == "?1049":
			t.clear()
		case parameters == "?2026" && verb == 'l' && t.page != nil:
			t.page()
		}
	}
}

// picture returns the rows up to the last one that shows something.
func (t *terminal) picture() [][]cell {
	last := 0
	for y, row := range t.rows {
		if slices.ContainsFunc(row, func(c cell) bool { return c.char != 0 && c.char != ' ' }) {
			last = y + 1
		}
	}
	var rows [][]cell
	for _, row := range t.rows[:last] {
		rows = append(rows, slices.Clone(row))
	}
	return rows
}

// frame is what a film shows for a while.
type frame struct {
	rows [][]cell
	hold time.Duration
}

// columns and lines are the size of a terminal that is recorded: the bars of acceld top have room there.
const columns, lines = 112, 45

// record runs a program on a pseudoterminal until it ends or ctx does, and returns the pages that it showed: each
// synchronized output, or else what stands there at the end.
func record(ctx context.Context, argv ...string) ([][][]cell, error) {
	master, slave, err := pseudoterminal()
	if err != nil {
		return nil, err
	}
	defer master.Close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		_ = slave.Close()
		return nil, err
	}
	_ = slave.Close()
	var pages [][][]cell
	t := &terminal{width: columns, height: lines}
	t.clear()
	t.page = func() { pages = append(pages, t.picture()) }
	var read sync.WaitGroup
	read.Go(func() {
		buf := make([]byte, 64<<10)
		kept := ""
		for {
			n, err := master.Read(buf)
			kept += string(buf[:n])
			if i := strings.LastIndexAny(kept, "\nhlmJK"); i >= 0 { // never half a code or half a character
				t.write(kept[:i+1])
				kept = kept[i+1:]
			}
			if err != nil {
				return
			}
		}
	})
	_ = cmd.Wait() // "acceld status" ends with 3 if something is not ready
	read.Wait()
	if len(pages) == 0 {
		pages = append(pages, t.picture())
	}
	return pages, nil
}

func pseudoterminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns})
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// prompt is a row in which a command was typed.
func prompt(command string) []cell {
	row := []cell{{'$', "32"}, {' ', ""}}
	for _, r := range command {
		row = append(row, cell{r, ""})
	}
	return row
}

// film makes one animated SVG of frames. It is one file that loads nothing, moves three times and then stays; where the
// reader wants no motion, it shows the last frame.
func film(title string, width int, frames []frame) string {
	const charWidth, rowHeight, edge = 8.4, 18.0, 16.0
	rows, total := 0, time.Duration(0)
	for _, f := range frames {
		rows, total = max(rows, len(f.rows)), total+f.hold
	}
	w, h := float64(width)*charWidth+2*edge, float64(rows)*rowHeight+2*edge
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">
<style>
text{font:14px ui-monospace,"Cascadia Mono",Menlo,"DejaVu Sans Mono",monospace;fill:#dfe5eb;white-space:pre}
.s32{fill:#63d597}.s33{fill:#f1c361}.s2{fill:#9aa5b1}.s1-31{fill:#ff8f86;font-weight:700}.s1{font-weight:700}
g{visibility:hidden;animation:%.2fs step-end 3 forwards}
`, w, h, w, h, html.EscapeString(title), total.Seconds())
	at := time.Duration(0)
	for i, f := range frames {
		from, to := share(at, total), share(at+f.hold, total)
		at += f.hold
		fmt.Fprintf(&b, "#f%d{animation-name:k%d}", i, i)
		switch {
		case i == len(frames)-1:
			fmt.Fprintf(&b, "@keyframes k%d{0%%{visibility:hidden}%s,to{visibility:visible}}\n", i, from)
		case i == 0:
			fmt.Fprintf(&b, "@keyframes k%d{0%%{visibility:visible}%s,to{visibility:hidden}}\n", i, to)
		default:
			fmt.Fprintf(&b, "@keyframes k%d{0%%{visibility:hidden}%s{visibility:visible}%s,to{visibility:hidden}}\n", i, from, to)
		}
	}
	fmt.Fprintf(&b, "@media (prefers-reduced-motion:reduce){g{animation:none}#f%d{visibility:visible}}\n</style>\n", len(frames)-1)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="10" fill="#14181d"/>`+"\n", w, h)
	for i, f := range frames {
		fmt.Fprintf(&b, `<g id="f%d">`+"\n", i)
		for y, row := range f.rows {
			for _, r := range runs(row) {
				class := ""
				if r.style != "" {
					class = ` class="s` + strings.ReplaceAll(r.style, ";", "-") + `"`
				}
				// The length makes columns columns in every font.
				fmt.Fprintf(&b, `<text%s x="%.1f" y="%.0f" textLength="%.1f">%s</text>`+"\n", class, edge+float64(r.at)*charWidth,
					edge+float64(y+1)*rowHeight-4, float64(len([]rune(r.text)))*charWidth, html.EscapeString(r.text))
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func share(part, total time.Duration) string {
	return strconv.FormatFloat(100*part.Seconds()/total.Seconds(), 'f', 2, 64) + "%"
}

// run is text of one style in a row.
type run struct {
	at          int
	text, style string
}

// runs cuts a row into runs, at changes of the style and where there is more than one blank.
func runs(row []cell) []run {
	var out []run
	blanks := 2
	for x, c := range row {
		if c.char == 0 || c.char == ' ' {
			blanks++
			continue
		}
		last := len(out) - 1
		if blanks > 1 || out[last].style != c.style {
			out = append(out, run{at: x, text: string(c.char), style: c.style})
		} else {
			out[last].text += strings.Repeat(" ", blanks) + string(c.char)
		}
		blanks = 0
	}
	return out
}
