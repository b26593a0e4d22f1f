package yamlfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/acceld/acceld/accel"
)

// maxNodes bounds what is looked at: aliases may name one node again and again.
const maxNodes = 200000

// Switch is text that is often "on" or "off", which other readers of YAML turn into true and false before it gets here.
type Switch string

// UnmarshalJSON implements json.Unmarshaler.
func (s *Switch) UnmarshalJSON(b []byte) error {
	var on bool
	if json.Unmarshal(b, &on) != nil {
		return json.Unmarshal(b, (*string)(s))
	}
	if *s = "off"; on {
		*s = "on"
	}
	return nil
}

// shape checks the nodes of a document against Go types.
type shape struct {
	faults []Fault
	lines  Places
	above  []level
	looked int
	// members are those of the types that were looked at, by name.
	members map[reflect.Type]map[string]reflect.StructField
}

// level is a mapping that the checked node is in.
type level struct {
	t     reflect.Type
	field string
}

func shapeOf(document *yaml.Node, t reflect.Type) *shape {
	s := &shape{lines: Places{}, members: map[reflect.Type]map[string]reflect.StructField{}}
	s.check(document.Content[0], t, "", "")
	return s
}

func (s *shape) bad(n *yaml.Node, field, format string, args ...any) {
	s.faults = append(s.faults, Fault{n.Line, field, fmt.Sprintf(format, args...)})
}

// check checks one node. tag is that of the struct field whose value it is.
func (s *shape) check(n *yaml.Node, t reflect.Type, field string, tag reflect.StructTag) {
	if s.looked++; s.looked >= maxNodes {
		if s.looked == maxNodes {
			s.bad(n, "", "the file is too large, or names its anchors too often")
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return // treated as absent
	}
	t = solid(t)
	if s.special(n, t, field) {
		return
	}
	switch t.Kind() {
	case reflect.Interface: // anything
	case reflect.Struct, reflect.Map:
		s.mapping(n, t, field, tag)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			s.bad(n, field, "must be a list: %s", listCure(n))
			return
		}
		for i, element := range n.Content {
			name := fmt.Sprintf("%s[%d]", field, i)
			s.lines[name] = element.Line
			s.check(element, t.Elem(), name, tag)
		}
	default:
		s.scalar(n, t, field, tag)
	}
}

// special checks a node of a type that is written otherwise than its Go type says.
func (s *shape) special(n *yaml.Node, t reflect.Type, field string) bool {
	switch t {
	case reflect.TypeFor[accel.SettingValue]():
		s.plain(n, field, "a word, a number, on or off", "!!bool", "!!str", "!!int", "!!float")
	case reflect.TypeFor[accel.Portion]():
		s.plain(n, field, "a number such as 3 or a share such as 25%", "!!str", "!!int")
	case reflect.TypeFor[Switch]():
		s.plain(n, field, "a word", "!!str", "!!bool")
	case reflect.TypeFor[time.Time]():
		s.plain(n, field, "a time such as 2026-01-02T15:04:05Z", "!!str", "!!timestamp")
	case reflect.TypeFor[json.RawMessage](): // of a policy
		s.check(n, reflect.TypeFor[accel.Definition](), field, "")
	default:
		return false
	}
	return true
}

func (s *shape) mapping(n *yaml.Node, t reflect.Type, field string, tag reflect.StructTag) {
	if n.Kind != yaml.MappingNode {
		s.bad(n, field, "must have fields%s", fieldsCure(n, t))
		return
	}
	s.above = append(s.above, level{t, field})
	defer func() { s.above = s.above[:len(s.above)-1] }()
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			s.bad(key, field, "a name is expected before the colon; put text with braces or brackets in quotes")
			continue
		}
		name := join(field, key.Value)
		s.lines[name] = key.Line
		f, ok := s.member(t, key.Value)
		switch {
		case key.Value == "<<" && key.Tag == "!!merge":
			s.bad(key, field, "merge keys (<<) are not known here: write the fields out")
		case seen[key.Value]:
			s.bad(key, name, "is there twice: remove one of the two")
		case !ok:
			s.bad(key, field, "unknown field %q%s", key.Value, s.meant(n, i, t, field))
		case t.Kind() == reflect.Map && i > 0 && s.outdented(n, i, t, name):
		case t.Kind() == reflect.Map:
			key.Tag = "!!str" // a number may be a name
			s.check(value, f.Type, name, tag)
		default:
			s.check(value, f.Type, name, f.Tag)
		}
		seen[key.Value] = true
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "." + b
}

// fields returns the fields that a struct has in a file, with those of embedded structs.
func fields(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		switch name := accel.FieldName(f); {
		case f.Anonymous && name == "":
			out = append(out, fields(f.Type)...)
		case name != "" && name != "-":
			out = append(out, f)
		}
	}
	return out
}

// names returns the names of those fields.
func names(t reflect.Type) []string {
	var out []string
	for _, f := range fields(t) {
		out = append(out, accel.FieldName(f))
	}
	return out
}

// has reports whether a mapping of type t may have a key.
func has(t reflect.Type, key string) bool {
	return t.Kind() == reflect.Map || slices.Contains(names(t), key)
}

// member returns what a mapping of type t has under a key.
func (s *shape) member(t reflect.Type, key string) (reflect.StructField, bool) {
	if t.Kind() == reflect.Map {
		return reflect.StructField{Type: t.Elem()}, true
	}
	all, known := s.members[t]
	if !known {
		all = map[string]reflect.StructField{}
		for _, f := range slices.Backward(fields(t)) { // the first of a name wins
			all[accel.FieldName(f)] = f
		}
		s.members[t] = all
	}
	f, there := all[key]
	return f, there
}

// scalar checks text, a number or a switch.
func (s *shape) scalar(n *yaml.Node, t reflect.Type, field string, tag reflect.StructTag) {
	switch t.Kind() {
	case reflect.String:
		s.text(n, field, tag)
	case reflect.Bool:
		if word, ok := truth(n); ok {
			n.Tag, n.Value = "!!bool", word
		}
		s.plain(n, field, "true or false", "!!bool")
	case reflect.Float64:
		s.plain(n, field, "a number", "!!float", "!!int")
	default:
		s.plain(n, field, "a whole number", "!!int")
	}
}

// truth returns what an unquoted word of YAML 1.1 means.
func truth(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return "", false
	}
	switch strings.ToLower(n.Value) {
	case "on", "yes":
		return "true", true
	case "off", "no":
		return "false", true
	}
	return "", false
}

// plain checks a node that must be a scalar with one of some tags.
func (s *shape) plain(n *yaml.Node, field, what string, tags ...string) {
	switch {
	case n.Kind != yaml.ScalarNode:
		s.bad(n, field, "must be %s, and not a list or fields", what)
	case !slices.Contains(tags, n.ShortTag()):
		s.bad(n, field, "%.80q is not %s%s", n.Value, what, quotedCure(n, tags))
	}
}
