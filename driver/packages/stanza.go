package packages

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The limits of a control file (deb-control(5)): a line, such as the dependencies of a large package, and a stanza,
// such as a Release file, in bytes.
const (
	lineLimit   = 1 << 20
	stanzaLimit = 16 << 20
)

// stanza is a paragraph of a control file: its fields by name in lower case. Lines that continue a field are joined to
// it with "\n".
type stanza map[string]string

// stanzas calls do for every paragraph of a control file.
func stanzas(r io.Reader, do func(stanza) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), lineLimit)
	now, field, size := stanza{}, "", 0
	end := func() error {
		defer func() { now, field, size = stanza{}, "", 0 }()
		if len(now) == 0 {
			return nil
		}
		return do(now)
	}
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), " \t\r")
		if size += len(line) + 1; size > stanzaLimit {
			return errors.New("a paragraph is too long")
		}
		switch {
		case line == "":
			if err := end(); err != nil {
				return err
			}
		case line[0] == ' ' || line[0] == '\t':
			if field == "" {
				return errors.New("a line continues nothing")
			}
			now[field] += "\n" + strings.TrimSpace(line)
		case line[0] == '#':
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok || name == "" || strings.ContainsAny(name, " \t") {
				return fmt.Errorf("a line is no field: %.64q", line)
			}
			field = strings.ToLower(name)
			if _, twice := now[field]; twice {
				return fmt.Errorf("a paragraph has the field %.64q twice", name)
			}
			now[field] = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return end()
}

// single reads a control file that has exactly one paragraph.
func single(r io.Reader) (stanza, error) {
	var out stanza
	err := stanzas(r, func(s stanza) error {
		if out != nil {
			return errors.New("it has more than one paragraph")
		}
		out = s
		return nil
	})
	if err == nil && out == nil {
		err = errors.New("it is empty")
	}
	return out, err
}
