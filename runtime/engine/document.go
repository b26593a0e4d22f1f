package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// document is a TOML text with the positions of its tables and keys. It serves to change one line and keep every
// other byte; a real decoder determines what the text means.
type document struct {
	data  []byte
	start int // after a byte order mark
	items []item
}

// item is a table header or a key with its value.
type item struct {
	header bool
	array  bool     // [[header]] or a key below one: never what is looked for
	path   []string // from the root
	// first and last are where the first and the last part of a dotted key start; end is where a header's key, or
	// the value, ends.
	first, last, end int
	value            int // where the value starts
}

// parseDocument finds the positions in a valid TOML text.
func parseDocument(data []byte) (*document, error) {
	d := &document{data: data}
	var p unstable.Parser
	if bytes.HasPrefix(data, []byte(byteOrderMark)) {
		d.start = len(byteOrderMark)
		data = slices.Concat([]byte("   "), data[d.start:]) // keeps the positions
	}
	p.Reset(data)
	var table []string
	var array bool
	for p.NextExpression() {
		x := p.Expression()
		it := item{header: x.Kind != unstable.KeyValue}
		if it.header {
			table, array = nil, x.Kind == unstable.ArrayTable
		}
		it.path, it.array = slices.Clone(table), array
		for keys, first := x.Key(), true; keys.Next(); first = false {
			k := keys.Node()
			it.path = append(it.path, string(k.Data))
			if it.last = int(k.Raw.Offset); first {
				it.first = it.last
			}
			it.end = it.last + int(k.Raw.Length)
		}
		if it.header {
			table = it.path
		} else {
			it.value = it.end + bytes.IndexByte(data[it.end:], '=') + 1
			it.value += len(data[it.value:]) - len(bytes.TrimLeft(data[it.value:], " \t"))
			it.end = int(x.Raw.Offset) + int(x.Raw.Length)
		}
		d.items = append(d.items, it)
	}
	return d, p.Error()
}

// find returns the header or key with exactly this path.
func (d *document) find(header bool, at ...string) (item, bool) {
	for _, it := range d.items {
		if it.header == header && !it.array && slices.Equal(it.path, at) {
			return it, true
		}
	}
	return item{}, false
}

// below returns the first header, of an array too, or the first key below the path, in whatever way it is written.
func (d *document) below(header bool, at []string) (item, bool) {
	for _, it := range d.items {
		if it.header == header && (header || !it.array) && len(it.path) > len(at) &&
			slices.Equal(it.path[:len(at)], at) {
			return it, true
		}
	}
	return item{}, false
}

func (d *document) eol() string {
	if i := bytes.IndexByte(d.data, '\n'); i > 0 && d.data[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lineStart returns where the line of offset starts; lineEnd returns where the next line starts.
func (d *document) lineStart(offset int) int { return bytes.LastIndexByte(d.data[:offset], '\n') + 1 }

func (d *document) lineEnd(offset int) int {
	if i := bytes.IndexByte(d.data[offset:], '\n'); i >= 0 {
		return offset + i + 1
	}
	return len(d.data)
}

// indent returns the white space before offset if nothing else is before it on the line.
func (d *document) indent(offset int) string {
	s := string(d.data[d.lineStart(offset):offset])
	if strings.Trim(s, " \t") != "" {
		return ""
	}
	return s
}

func (d *document) replace(from, to int, text string) []byte {
	return slices.Concat(d.data[:from], []byte(text), d.data[to:])
}

// afterLine inserts a line after the line of offset, even if that is the last one and has no line end.
func (d *document) afterLine(offset int, line string) []byte {
	at := d.lineEnd(offset)
	if at == len(d.data) && (at == 0 || d.data[at-1] != '\n') {
		return d.replace(at, at, d.eol()+line)
	}
	return d.replace(at, at, line+d.eol())
}

// set sets a key of a table to value, which is TOML, however the text writes the table. It changes nothing else.
func (d *document) set(value, key string, at ...string) ([]byte, error) {
	full := append(slices.Clone(at), key)
	if it, ok := d.find(false, full...); ok {
		return d.replace(it.value, it.end, value), nil
	}
	if it, ok := d.find(false, at...); ok { // an inline table
		return d.intoInline(it, key, value)
	}
	if it, ok := d.find(true, at...); ok {
		indent := d.indent(it.first-1) + "  "
		if k, ok := d.below(false, at); ok && d.lineStart(k.first) >= d.lineEnd(it.end) {
			indent = d.indent(k.first)
		}
		return d.afterLine(it.end, indent+key+" = "+value), nil
	}
	_, headed := d.below(true, at)
	if it, ok := d.below(false, at); ok && !headed {
		// Dotted keys make up the table: add one more with the same prefix.
		if len(it.path) != len(full) {
			return nil, fmt.Errorf("key %q is written in a way that is not known", strings.Join(it.path, "."))
		}
		start := d.lineStart(it.first)
		return d.replace(start, start, string(d.data[start:it.last])+key+" = "+value+d.eol()), nil
	}
	for i := range at { // an inline table above it, which no header can extend
		if it, ok := d.find(false, at[:i]...); i > 0 && ok && it.value < len(d.data) {
			return nil, fmt.Errorf("table %q is an inline table", strings.Join(at[:i], "."))
		}
	}
	return d.append(header(at), "  "+key+" = "+value), nil
}

// intoInline inserts a key as the first one of an inline table.
func (d *document) intoInline(it item, key, value string) ([]byte, error) {
	if it.value >= len(d.data) || d.data[it.value] != '{' {
		return nil, fmt.Errorf("%q is not a table", strings.Join(it.path, "."))
	}
	text := " " + key + " = " + value
	if strings.Trim(string(d.data[it.value+1:it.end-1]), " \t\r\n") != "" {
		text += ","
	} else {
		text += " "
	}
	return d.replace(it.value+1, it.value+1, text), nil
}

// append adds lines at the end, after an empty line.
func (d *document) append(lines ...string) []byte {
	var b strings.Builder
	b.Write(d.data)
	if len(d.data) > 0 {
		if d.data[len(d.data)-1] != '\n' {
			b.WriteString(d.eol())
		}
		b.WriteString(d.eol())
	}
	for _, l := range lines {
		b.WriteString(l + d.eol())
	}
	return []byte(b.String())
}

// addRoot adds a key to the root table: after the key named by after, or before everything else.
func (d *document) addRoot(key, value, after string) []byte {
	if it, ok := d.find(false, after); ok {
		return d.afterLine(it.end, key+" = "+value)
	}
	return d.replace(d.start, d.start, key+" = "+value+d.eol())
}

// extend inserts an element as the first one of the list at the path.
func (d *document) extend(element string, at ...string) ([]byte, error) {
	it, ok := d.find(false, at...)
	if !ok || d.data[it.value] != '[' {
		return nil, fmt.Errorf("%q is not a list", strings.Join(at, "."))
	}
	text := `"` + element + `"`
	if rest := strings.TrimLeft(string(d.data[it.value+1:it.end]), " \t\r\n"); !strings.HasPrefix(rest, "]") {
		text += ", "
	}
	return d.replace(it.value+1, it.value+1, text), nil
}

// header renders the header of a table, with quotes around the parts that need them.
func header(at []string) string {
	var parts []string
	for _, p := range at {
		if strings.ContainsFunc(p, func(r rune) bool {
			return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			p = `"` + p + `"`
		}
		parts = append(parts, p)
	}
	return "[" + strings.Join(parts, ".") + "]"
}
