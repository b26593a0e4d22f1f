package docs

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Markdown is what the tests look at in a written page.
type Markdown struct {
	Links  []Link
	Blocks []Block
	// Anchors are the names of its headings as links use them.
	Anchors []string
}

// Link is one link or image of a page.
type Link struct {
	Line   int
	Target string
}

// Block is one fenced block.
type Block struct {
	Line int
	// Section is the anchor of the heading that it is below.
	Section string
	// Info is what stands behind the fence, such as "sh" or "yaml config".
	Info string
	Text string
}

// Parse reads a page. It knows the subset of Markdown that this repository uses: ATX headings, inline links, fences of
// three backticks.
func Parse(page string) Markdown {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("`[^`]*`")
	var m Markdown
	var block *Block
	number, section := 0, ""
	for line := range strings.Lines(page) {
		number++
		if fence := strings.TrimSpace(line); strings.HasPrefix(fence, "```") {
			if block == nil {
				block = &Block{Line: number, Section: section, Info: strings.TrimPrefix(fence, "```")}
			} else {
				m.Blocks = append(m.Blocks, *block)
				block = nil
			}
			continue
		}
		if block != nil {
			block.Text += line
			continue
		}
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			section = anchor(title)
			m.Anchors = append(m.Anchors, section)
		}
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			m.Links = append(m.Links, Link{number, l[1]})
		}
	}
	return m
}

// anchor is the name that a heading gets: lower case, punctuation dropped, spaces as dashes.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(title))
}

// Command is one command line of a block of shell.
type Command struct {
	// Line is where it begins in its page.
	Line int
	Text string
	// Output is what the page shows of what it prints.
	Output string
}

// Commands returns the command lines of a block of shell: every line of "sh", those behind a "$ " of "console", with
// the output below them. Continued lines are joined, comments left out.
func (b Block) Commands() []Command {
	kind, _, _ := strings.Cut(b.Info, " ")
	if !slices.Contains([]string{"sh", "bash", "console"}, kind) {
		return nil
	}
	var out []Command
	number, goesOn := b.Line, false
	for line := range strings.Lines(b.Text) {
		number++
		line = strings.TrimSpace(line)
		text, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case goesOn:
			last := &out[len(out)-1]
			last.Text = strings.TrimSuffix(last.Text, "\\") + line
		case kind == "console" && !prompt:
			if len(out) > 0 {
				out[len(out)-1].Output += line + "\n"
			}
		case line != "" && !strings.HasPrefix(line, "#"):
			out = append(out, Command{Line: number, Text: text})
		}
		goesOn = len(out) > 0 && strings.HasSuffix(out[len(out)-1].Text, "\\") && strings.HasSuffix(line, "\\")
	}
	return out
}
