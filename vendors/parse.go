package vendors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/acceld/acceld/accel"
)

// Fault is one error in a definition file.
type Fault struct {
	// Line is the line in the file, from 1; 0 if the fault concerns the whole file.
	Line int
	// Field is the path of the field, such as "driver.modules[0].name"; empty if the fault concerns the whole file.
	Field string
	// Message says what is wrong.
	Message string
}

// String returns "field: message".
func (f Fault) String() string {
	if f.Field == "" {
		return f.Message
	}
	return f.Field + ": " + f.Message
}

// Read reads one definition as YAML or JSON and returns everything that is wrong with it, in the order of the file.
// The definition is nil if it cannot be read at all.
func Read(data []byte) (*accel.Definition, []Fault) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, []Fault{{Message: "the file is empty"}}
	}
	if err == nil && !errors.Is(decoder.Decode(&second), io.EOF) {
		return nil, []Fault{{Line: second.Line, Message: "only one definition can be in a file"}}
	}
	if err != nil {
		return nil, []Fault{syntaxFault(err)}
	}
	s := shapeOf(&document)
	if len(s.faults) > 0 {
		return nil, s.faults
	}
	def := &accel.Definition{}
	if err := decode(&document, def); err != nil {
		return nil, []Fault{{Message: err.Error()}}
	}
	complete(def)
	return def, s.locate(Validate(def))
}

// Locate adds the lines of their fields to faults that were found later, and sorts them by line.
func Locate(data []byte, faults []Fault) []Fault {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) == 0 {
		return faults
	}
	return shapeOf(&document).locate(faults)
}

func (s *shape) locate(faults []Fault) []Fault {
	for i := range faults {
		if faults[i].Line == 0 {
			faults[i].Line = s.line(faults[i].Field)
		}
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return faults
}

// decode converts through JSON, because the types in accel have JSON names only.
func decode(document *yaml.Node, def *accel.Definition) error {
	var v any
	if err := document.Decode(&v); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, def)
}

// complete fills in fields that a definition may leave to be derived from others.
func complete(def *accel.Definition) {
	if def.Vendor != "" && def.Resource != "" && !strings.Contains(def.Resource, "/") {
		def.Resource = def.Vendor + "/" + def.Resource
	}
	if d := def.Partitions; d != nil && def.Vendor != "" {
		for i, p := range d.Profiles {
			if p.Rename != "" && !strings.Contains(p.Rename, "/") {
				d.Profiles[i].Rename = def.Vendor + "/" + p.Rename
			}
		}
	}
}

func syntaxFault(err error) Fault {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(text); m != nil {
		line, err := strconv.Atoi(m[1])
		if err == nil {
			return Fault{Line: line, Message: m[2]}
		}
	}
	return Fault{Message: text}
}

// shape checks the nodes of a file against the types in accel.
type shape struct {
	faults []Fault
	lines  map[string]int // of fields, by path
}

func shapeOf(document *yaml.Node) *shape {
	s := &shape{lines: map[string]int{}}
	s.check(document.Content[0], reflect.TypeFor[accel.Definition](), "")
	return s
}

// line returns the line of the field, or of its nearest parent that is in the file.
func (s *shape) line(field string) int {
	for field != "" {
		if n, ok := s.lines[field]; ok {
			return n
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return 0
}

func (s *shape) bad(n *yaml.Node, field, format string, args ...any) {
	s.faults = append(s.faults, Fault{n.Line, field, fmt.Sprintf(format, args...)})
}

func (s *shape) check(n *yaml.Node, t reflect.Type, field string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return // treated as absent
	}
	if t == reflect.TypeFor[accel.SettingValue]() {
		s.scalar(n, field, "a word, a number, on or off", "!!bool", "!!str", "!!int", "!!float")
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		s.check(n, t.Elem(), field)
	case reflect.Struct, reflect.Map:
		s.mapping(n, t, field)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			s.bad(n, field, "must be a list")
			return
		}
		for i, element := range n.Content {
			name := fmt.Sprintf("%s[%d]", field, i)
			s.lines[name] = element.Line
			s.check(element, t.Elem(), name)
		}
	case reflect.String:
		s.scalar(n, field, "text", "!!str")
	case reflect.Bool:
		s.scalar(n, field, "true or false", "!!bool")
	case reflect.Float64:
		s.scalar(n, field, "a number", "!!float", "!!int")
	default:
		s.scalar(n, field, "a whole number", "!!int")
	}
}

func (s *shape) scalar(n *yaml.Node, field, what string, tags ...string) {
	switch tag := n.ShortTag(); {
	case n.Kind != yaml.ScalarNode:
		s.bad(n, field, "must be %s", what)
	case !slices.Contains(tags, tag) && tags[0] == "!!str":
		// Without quotes, YAML parses 11e8, 0300, 1.10 and no as something other than text.
		s.bad(n, field, "must be text: write \"%s\" in quotes", n.Value)
	case !slices.Contains(tags, tag):
		s.bad(n, field, "%q is not %s", n.Value, what)
	}
}

func (s *shape) mapping(n *yaml.Node, t reflect.Type, field string) {
	if n.Kind != yaml.MappingNode {
		s.bad(n, field, "must have fields")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := join(field, key.Value)
		s.lines[name] = key.Line
		element, ok := member(t, key.Value)
		switch {
		case seen[key.Value]:
			s.bad(key, name, "is there twice")
		case !ok:
			s.bad(key, field, "unknown field %q%s", key.Value, alternatives(t))
		default:
			s.check(value, element, name)
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

// member returns the type of the value that a mapping of type t has under a key.
func member(t reflect.Type, key string) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	for i := range t.NumField() {
		if accel.FieldName(t.Field(i)) == key {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

// alternatives lists the valid fields.
func alternatives(t reflect.Type) string {
	var names []string
	for i := range t.NumField() {
		names = append(names, accel.FieldName(t.Field(i)))
	}
	return " (there are: " + strings.Join(names, ", ") + ")"
}
