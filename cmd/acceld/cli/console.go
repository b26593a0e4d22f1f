package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// console is standard error. On a terminal, its last line may be a status line that is updated in place; other output
// goes above that line.
type console struct {
	mu  sync.Mutex
	out io.Writer
	// shown is how many columns the status line has; 0 if there is none.
	shown int
}

// echo is how many columns stay free for the terminal's echo of Ctrl-C. If it wrapped to the next line, it would stay
// there.
const echo = 2

// inPlace reports whether a line can be updated in place.
func (c *console) inPlace() bool { return columns(c.out) > 0 && os.Getenv("TERM") != "dumb" }

// show replaces the status line; an empty line removes it.
func (c *console) show(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.erasure()
	if width := columns(c.out) - echo; line != "" && width > 1 {
		line = split(line, width)[0]
		text, c.shown = text+line, visible(line)
	}
	_, _ = io.WriteString(c.out, text) // if the terminal is gone, the work continues
}

// erasure returns the codes that erase the status line. A terminal that became narrower has wrapped it.
func (c *console) erasure() string {
	if c.shown == 0 {
		return ""
	}
	up := ""
	if width := columns(c.out); width > 0 && c.shown > width {
		up = fmt.Sprintf("\x1b[%dA", (c.shown-1)/width)
	}
	c.shown = 0
	return "\r" + up + "\x1b[J"
}

// Write writes above the status line, which reappears the next time it is shown.
func (c *console) Write(b []byte) (int, error) {
	return c.over(c.out).Write(b)
}

// over returns a writer to the same terminal, such as standard output.
func (c *console) over(out io.Writer) io.Writer { return above{c, out} }

type above struct {
	c   *console
	out io.Writer
}

func (a above) Write(b []byte) (int, error) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if text := a.c.erasure(); text != "" {
		_, _ = io.WriteString(a.c.out, text) // as in show
	}
	return a.out.Write(b)
}
