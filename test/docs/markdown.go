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
	number := 0
	for line := range strings.Lines(page) {
		number++
		if fence := strings.TrimSpace(line); strings.HasPrefix(fence, "```") {
			if block == nil {
				block = &Block{Line: number, Info: strings.TrimPrefix(fence, "```")}
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
			m.Anchors = append(m.Anchors, anchor(title))
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

// Commands returns the command lines of a block of shell: every line of "sh", those behind a "$ " of "console".
// Continued lines are joined, comments and output left out.
func (b Block) Commands() []string {
	kind, _, _ := strings.Cut(b.Info, " ")
	if !slices.Contains([]string{"sh", "bash", "console"}, kind) {
		return nil
	}
	var out []string
	for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if kind == "console" {
			var prompt bool
			if line, prompt = strings.CutPrefix(line, "$ "); !prompt {
				continue
			}
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}
