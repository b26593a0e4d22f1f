package build

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// dkmsFile is the file that DKMS reads in a source tree (dkms(8), "dkms.conf").
const dkmsFile = "dkms.conf"

// dkmsConf is a parsed dkms.conf. The file is a shell script that DKMS sources. Here only assignments are read, which
// is all that it should contain, and everything else is refused: nothing of it runs outside the build's scope.
type dkmsConf struct {
	file  string              // its path, for messages
	texts map[string]dkmsText // by name, "MAKE[0]" for elements; "MAKE" alone is element 0, as in the shell
	facts map[string]string   // variables that DKMS sets
}

// dkmsText is a value as a shell would have it after sourcing, except that everything that begins with a dollar is
// left unexpanded for the code that uses the value.
type dkmsText struct {
	text  string
	line  int
	plain bool // starts with a single quote: its backquotes are literal, unless it has a dollar
}

// dkmsArrays are the directives with an index (dkms(8)).
func dkmsArrays() []string {
	return []string{
		"BUILT_MODULE_NAME", "BUILT_MODULE_LOCATION", "DEST_MODULE_NAME", "DEST_MODULE_LOCATION", "MAKE", "MAKE_MATCH",
		"PATCH", "PATCH_MATCH", "STRIP", "MODULES_CONF", "MODULES_CONF_ALIAS_TYPE", "MODULES_CONF_OBSOLETES",
		"MODULES_CONF_OBSOLETE_ONLY", "BUILD_DEPENDS", "OBSOLETE_BY",
	}
}

// dkmsScalars are the directives without an index, except the name and version of the package. Those that only concern
// what DKMS does to the host are read but ignored: acceld installs nothing.
func dkmsScalars() []string {
	return []string{
		"CLEAN", "AUTOINSTALL", "REMAKE_INITRD", "NO_WEAK_MODULES", "WEAK_UPDATES",
		"PRE_BUILD", "POST_BUILD", "PRE_INSTALL", "POST_INSTALL", "POST_ADD", "POST_REMOVE", "PRE_ADD", "SIGN_FILE",
		"BUILD_EXCLUSIVE_KERNEL", "BUILD_EXCLUSIVE_KERNEL_MIN", "BUILD_EXCLUSIVE_KERNEL_MAX", "BUILD_EXCLUSIVE_ARCH",
		"BUILD_EXCLUSIVE_CONFIG",
	}
}

// parseDKMS parses a dkms.conf. Problems name it by file.
func parseDKMS(file string, data []byte) (*dkmsConf, *accel.Problem) {
	c := &dkmsConf{file: file, texts: map[string]dkmsText{}, facts: map[string]string{}}
	p := dkmsParser{rest: string(data), line: 1}
	for {
		p.skip()
		if p.rest == "" {
			break
		}
		line := p.line
		name, text, err := p.assignment()
		if err != nil {
			return nil, c.refuse(p.line, "%v", err)
		}
		text.line = line
		if slices.Contains(dkmsArrays(), name) {
			name += "[0]"
		}
		c.texts[name] = text
	}
	for _, x := range []struct{ name, fact string }{
		{"PACKAGE_NAME", "module"},
		{"PACKAGE_VERSION", "module_version"},
	} {
		value, problem := c.value(x.name)
		if problem != nil {
			return nil, problem
		}
		if value == "" || value != path.Base(value) || value == ".." {
			return nil, c.refuse(max(1, c.texts[x.name].line), "%s is %q", x.name, value)
		}
		c.facts[x.fact] = value
	}
	return c, nil
}

func (c *dkmsConf) refuse(line int, format string, args ...any) *accel.Problem {
	return accel.Problemf(accel.SourceInvalid, "cannot use %s:%d: %s", c.file, line, fmt.Sprintf(format, args...))
}

// dkmsParser parses shell assignments.
type dkmsParser struct {
	rest string
	line int
}

func (p *dkmsParser) take(n int) string {
	s := p.rest[:n]
	p.rest = p.rest[n:]
	p.line += strings.Count(s, "\n")
	return s
}

// skip skips everything between assignments.
func (p *dkmsParser) skip() {
	p.take(len(regexp.MustCompile(`^(?:[ \t\r\n;]|\\\n|#[^\n]*)*`).FindString(p.rest)))
}

// assignment parses NAME=value or NAME[number]=value.
func (p *dkmsParser) assignment() (string, dkmsText, error) {
	start := regexp.MustCompile(`^(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*(?:\[[0-9]+\])?)=`).FindStringSubmatch(p.rest)
	if start == nil {
		text, _, _ := strings.Cut(p.rest, "\n")
		return "", dkmsText{},
			fmt.Errorf("%q is not an assignment: a build by acceld reads dkms.conf and does not run it",
				strings.TrimSpace(text))
	}
	p.take(len(start[0]))
	if strings.HasPrefix(p.rest, "(") {
		return "", dkmsText{}, fmt.Errorf("%s has a list in parentheses: write %s[0]=, %s[1]=", start[1], start[1],
			start[1])
	}
	text, err := p.word()
	return start[1], text, err
}

// word parses one shell word with its quotes.
func (p *dkmsParser) word() (dkmsText, error) {
	var out strings.Builder
	t := dkmsText{plain: strings.HasPrefix(p.rest, "'")}
	for p.rest != "" && strings.IndexByte(" \t\r\n;", p.rest[0]) < 0 {
		switch ch := p.rest[0]; {
		case ch == '\'':
			end := strings.IndexByte(p.rest[1:], '\'')
			if end < 0 {
				return t, fmt.Errorf("a quote (') has no end")
			}
			out.WriteString(p.take(end + 2)[1 : end+1])
		case ch == '"':
			p.take(1)
			if err := p.quoted(&out); err != nil {
				return t, err
			}
		case ch == '\\' && len(p.rest) > 1:
			if s := p.take(2)[1:]; s != "\n" {
				out.WriteString(s)
			}
		case strings.IndexByte("&|<>()", ch) >= 0:
			return t, fmt.Errorf("%q outside quotes", ch)
		case ch == '$' && strings.HasPrefix(p.rest, "$("), ch == '`':
			return t, fmt.Errorf("a command outside quotes")
		default:
			out.WriteString(p.take(1))
		}
	}
	t.text = out.String()
	return t, nil
}

// quoted parses the rest of a string in double quotes.
func (p *dkmsParser) quoted(out *strings.Builder) error {
	for p.rest != "" {
		switch {
		case p.rest[0] == '"':
			p.take(1)
			return nil
		case p.rest[0] == '\\' && len(p.rest) > 1:
			s := p.take(2)
			switch s[1] {
			case '"', '\\', '$', '`':
				out.WriteByte(s[1])
			case '\n':
			default:
				out.WriteString(s)
			}
		case strings.HasPrefix(p.rest, "$("): // quotes inside the command do not end the string
			end := commandEnd(p.rest)
			if end < 0 {
				return fmt.Errorf("a command has no end")
			}
			out.WriteString(p.take(end))
		default:
			out.WriteString(p.take(1))
		}
	}
	return fmt.Errorf("a quote (\") has no end")
}

// commandEnd returns the length of the "$(…)" at the start of s, -1 if it has no end.
func commandEnd(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// value returns a value with its variables expanded: those that DKMS sets and those of the file. It is empty if the
// file does not set it.
func (c *dkmsConf) value(name string) (string, *accel.Problem) {
	return c.expand(c.texts[name], 0)
}

func (c *dkmsConf) expand(t dkmsText, depth int) (string, *accel.Problem) {
	const deepest = 8
	if depth > deepest {
		return "", c.refuse(t.line, "%q names itself", t.text)
	}
	var problem *accel.Problem
	out := regexp.MustCompile("\\$(?:([A-Za-z_][A-Za-z0-9_]*)|\\{([A-Za-z_][A-Za-z0-9_]*)\\}|.?)|`").ReplaceAllStringFunc(
		t.text, func(s string) string {
			name := strings.Trim(s, "${}")
			if value, ok := c.facts[name]; ok {
				return value
			}
			inner, ok := c.texts[name]
			if !ok {
				inner, ok = c.texts[name+"[0]"]
			}
			if !ok || name == "" {
				problem = c.refuse(t.line, "%q in %q is neither a variable of DKMS nor one of this file", s, t.text)
				return ""
			}
			value, p := c.expand(inner, depth+1)
			if p != nil {
				problem = p
			}
			return value
		})
	if t.plain && !strings.Contains(t.text, "$") {
		return t.text, nil
	}
	return out, problem
}

// elements returns the indices that are set for a directive, in order.
func (c *dkmsConf) elements(directive string) []int {
	var out []int
	for name := range c.texts {
		var i int
		if _, err := fmt.Sscanf(name, directive+"[%d]", &i); err == nil {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

func element(directive string, i int) string { return fmt.Sprintf("%s[%d]", directive, i) }

// variables are the variables for the file's commands: those of DKMS, and the file's own that are not directives.
func (c *dkmsConf) variables() ([]string, *accel.Problem) {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.facts)) {
		out = append(out, name+"="+c.facts[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.texts)) {
		if strings.Contains(name, "[") || slices.Contains(dkmsScalars(), name) {
			continue
		}
		value, problem := c.value(name)
		if problem != nil {
			return nil, problem
		}
		out = append(out, name+"="+value)
	}
	return out, nil
}
