package yamlfile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// line is one line of a file that is no YAML.
type line struct {
	number int
	indent int
	text   string // without indentation
}

// syntaxFault says where a file is no YAML, why, and what to write.
func syntaxFault(data []byte, err error) Fault {
	f := Fault{Message: plainError(err)}
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(f.Message); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			f.Line, f.Message = n, m[2]
		}
	}
	if better, ok := diagnose(string(data), f); ok {
		return better
	}
	return f
}

func plainError(err error) string { return strings.TrimPrefix(err.Error(), "yaml: ") }

// diagnose looks for the mistakes that people make. said is what the reader of YAML says, whose line is often the next.
func diagnose(text string, said Fault) (Fault, bool) {
	var before []line // the lines that the current one is below, each indented further than the one before it
	block := -1       // the indentation of the line that begins text of several lines; -1 outside
	for i, raw := range strings.Split(text, "\n") {
		l := line{number: i + 1, text: strings.TrimLeft(raw, " ")}
		l.indent = len(raw) - len(l.text)
		if strings.TrimSpace(l.text) == "" || strings.HasPrefix(l.text, "#") || block >= 0 && l.indent > block {
			continue
		}
		block = -1
		if strings.HasPrefix(l.text, "\t") {
			return Fault{Line: l.number, Message: "a tab indents this line, and YAML takes spaces only: replace it by " +
				"spaces, two for each level"}, true
		}
		if f, ok := l.misplaced(before); ok {
			return f, true
		}
		if f, ok := l.broken(said); ok {
			return f, true
		}
		if regexp.MustCompile(`[|>][+-]?[0-9]?\s*(#.*)?$`).MatchString(l.text) {
			block = l.indent
		}
		before = l.onto(before)
	}
	return Fault{}, false
}

// onto returns the lines that the next line may be below.
func (l line) onto(before []line) []line {
	for len(before) > 0 && before[len(before)-1].indent >= l.indent {
		before = before[:len(before)-1]
	}
	before = append(before, l)
	for rest := l; strings.HasPrefix(rest.text, "- "); { // what follows the dash has a level of its own
		inner := strings.TrimLeft(rest.text[2:], " ")
		rest = line{l.number, rest.indent + len(rest.text) - len(inner), inner}
		before = append(before, rest)
	}
	return before
}

// misplaced reports a line whose indentation is none of those above it.
func (l line) misplaced(before []line) (Fault, bool) {
	if len(before) == 0 || !isKey(l.text) {
		return Fault{}, false
	}
	last := before[len(before)-1]
	if open(last.text) {
		return Fault{}, false
	}
	if l.indent > last.indent {
		if _, value, ok := strings.Cut(last.text, ": "); ok && strings.TrimSpace(strings.SplitN(value, " #", 2)[0]) != "" &&
			isKey(last.text) && !strings.HasPrefix(strings.TrimSpace(value), "&") {
			return Fault{Line: l.number, Message: fmt.Sprintf("this line is indented further than line %d, which has a value "+
				"already: indent it by %s like that line", last.number, columns(last.indent))}, true
		}
		return Fault{}, false
	}
	var levels []string
	for _, b := range before {
		if b.indent == l.indent {
			return Fault{}, false
		}
		levels = append(levels, fmt.Sprintf("%d (line %d)", b.indent, b.number))
	}
	if strings.HasPrefix(l.text, "- ") {
		return Fault{}, false
	}
	return Fault{Line: l.number, Message: fmt.Sprintf("this line is indented by %s, and no line above it is: indent it like "+
		"one of those that it can be beside: %s", columns(l.indent), strings.Join(levels, ", "))}, true
}

func columns(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// isKey reports whether a line is "name: …" or "- …".
func isKey(text string) bool {
	return strings.HasPrefix(text, "- ") || regexp.MustCompile(`^["']?[A-Za-z0-9_./-]+["']?\s*:(\s|$)`).MatchString(text)
}

// open reports whether a line ends within brackets, so that the next ones may be indented as they like.
func open(text string) bool {
	return strings.Count(text, "[")+strings.Count(text, "{") > strings.Count(text, "]")+strings.Count(text, "}")
}

// broken reports a mistake within a line, if it is at or before the line where the reader of YAML stopped.
func (l line) broken(said Fault) (Fault, bool) {
	near := said.Line == 0 || l.number == said.Line || l.number == said.Line-1
	key, value, _ := strings.Cut(l.text, ": ")
	value = strings.TrimSpace(value)
	bad := func(format string, args ...any) (Fault, bool) {
		return Fault{Line: l.number, Message: fmt.Sprintf(format, args...)}, true
	}
	switch {
	case near && !strings.Contains(key, " ") && regexp.MustCompile(`^(- )*[A-Za-z][A-Za-z0-9_]*:[^\s/]`).MatchString(l.text):
		name, rest, _ := strings.Cut(l.text, ":")
		return bad(`a space is missing after the colon: write "%.80s: %.80s"`, name, rest)
	case near && regexp.MustCompile(`^-[A-Za-z"']`).MatchString(l.text):
		return bad(`a space is missing after the dash: write "- %.80s"`, l.text[1:])
	case isKey(l.text) && (odd(value, `"`) || odd(value, `'`)):
		return bad("the quote that begins here does not end: close it on the same line")
	case strings.HasPrefix(value, "{{"):
		return bad(`what begins with "{{" needs quotes: write %s: "%.200s"`, key, value)
	case near && value != "" && strings.ContainsAny(value[:1], "%@`*"):
		return bad(`what begins with "%.1s" needs quotes: write %s: "%.200s"`, value, key, value)
	case near && isKey(l.text) && strings.Contains(value, ": ") && !strings.ContainsAny(value[:1], `"'{[`):
		return bad(`text with ": " in it needs quotes: write %s: "%.200s"`, key, value)
	case isKey(l.text) && open(l.text) && strings.Contains(said.Message, "',' or"):
		return bad(`a bracket that is open here is not closed: add the missing "]" or "}"`)
	}
	return Fault{}, false
}

// odd reports whether text begins with a quote that is not closed.
func odd(text, quote string) bool {
	return strings.HasPrefix(text, quote) && strings.Count(text, quote)%2 == 1
}
