package yamlfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/acceld/acceld/accel"
)

// maxListed is how many fields a message lists if none of them is near what was written.
const maxListed = 60

// text checks a node that must be text. Without quotes, YAML reads 550.90, 11e8, 0300 and true otherwise.
func (s *shape) text(n *yaml.Node, field string, tag reflect.StructTag) {
	number := n.ShortTag() == "!!int" || n.ShortTag() == "!!float"
	switch {
	case n.Kind != yaml.ScalarNode:
		s.bad(n, field, "must be text, and not a list or fields")
	case n.ShortTag() == "!!str":
	case number && tag.Get("form") == "duration":
		s.bad(n, field, "%.80s has no unit: write %[1]ss for seconds, %[1]sm for minutes or %[1]sh for hours", n.Value)
	case number && tag.Get("form") == "memory":
		s.bad(n, field, "%.80s has no unit: write %[1]s%% for a share of the memory, or %[1]sGi", n.Value)
	default:
		s.bad(n, field, "must be text: YAML reads %.80s without quotes as %s; write %q in quotes", n.Value, readAs(n), n.Value)
	}
}

// readAs says what YAML makes of a scalar without quotes.
func readAs(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!bool":
		return "a switch"
	case "!!timestamp":
		return "a date"
	case "!!int":
		if v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil &&
			strconv.FormatInt(v, 10) != n.Value {
			return fmt.Sprintf("the number %d", v)
		}
	case "!!float":
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil {
			if text := strconv.FormatFloat(v, 'f', -1, 64); text != n.Value {
				return "the number " + text
			}
		}
	}
	return "a number"
}

// quotedCure says what to write instead of a value in quotes that would be right without.
func quotedCure(n *yaml.Node, tags []string) string {
	if n.ShortTag() != "!!str" || n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0 {
		return ""
	}
	bare := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
	if !slices.Contains(tags, bare.ShortTag()) {
		return ""
	}
	return fmt.Sprintf(": write %s without quotes", n.Value)
}

// listCure says how a list is written.
func listCure(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		return fmt.Sprintf(`begin each entry with "- ", as in "- %.80s: …"`, n.Content[0].Value)
	}
	return fmt.Sprintf("write [%.80s]", n.Value)
}

// fieldsCure says how a mapping is written.
func fieldsCure(n *yaml.Node, t reflect.Type) string {
	there := ""
	if t.Kind() == reflect.Struct {
		there = " (there are: " + listed(names(t)) + ")"
	}
	key, value, glued := strings.Cut(n.Value, ":")
	switch {
	case n.Kind == yaml.SequenceNode:
		return `, not a list: leave out "- " and the brackets` + there
	case glued && !strings.ContainsAny(key, " /"):
		return fmt.Sprintf(`: write a space after the colon, "%.80s: %.80s"`, key, value)
	}
	return fmt.Sprintf(", each as name: value, indented on a line below; %.80q is none%s", n.Value, there)
}

func listed(all []string) string {
	if len(all) > maxListed {
		return strings.Join(all[:maxListed], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

// meant says what somebody who wrote an unknown key probably meant: the i-th of a mapping of type t.
func (s *shape) meant(n *yaml.Node, i int, t reflect.Type, field string) string {
	key := n.Content[i].Value
	if near := accel.DidYouMean(key, names(t)); near != "" {
		return near
	}
	if place := below(t, key, 3); place != "" {
		return fmt.Sprintf(": it belongs below %q: write %s, with %q indented below %q", join(field, place),
			join(join(field, place), key), key, place[strings.LastIndex(place, ".")+1:])
	}
	for j := len(s.above) - 2; j >= 0; j-- {
		up := s.above[j]
		if up.t.Kind() == reflect.Map {
			continue
		}
		if has(up.t, key) {
			return fmt.Sprintf(": it belongs further left: write %s, indented as far as %q", join(up.field, key),
				s.beside(up.field, field))
		}
	}
	return " (there are: " + listed(names(t)) + ")"
}

// beside returns the name at the level of up that leads to field.
func (s *shape) beside(up, field string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(field, up), ".")
	if i := strings.IndexAny(rest, ".["); i > 0 {
		rest = rest[:i]
	}
	return rest
}

// below returns the path, at most depth names long, at which a field of type t has a field key; empty if there is none
// or more than one on the first level that has any.
func below(t reflect.Type, key string, depth int) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	if has(t, key) {
		return "" // it would not be unknown
	}
	found := ""
	for d := 1; d <= depth && found == ""; d++ {
		all := at(t, key, d)
		if len(all) > 1 {
			return ""
		}
		for _, place := range all {
			found = place
		}
	}
	return found
}

// solid returns what a type points to, or the type.
func solid(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// at returns the paths of depth names below which type t has a field key.
func at(t reflect.Type, key string, depth int) []string {
	var out []string
	for _, f := range fields(t) {
		inner := solid(f.Type)
		if inner.Kind() != reflect.Struct {
			continue
		}
		if depth == 1 {
			if has(inner, key) {
				out = append(out, accel.FieldName(f))
			}
			continue
		}
		for _, rest := range at(inner, key, depth-1) {
			out = append(out, join(accel.FieldName(f), rest))
		}
	}
	return out
}

// outdented reports a key of a map that has the name of a field of the entry before it.
func (s *shape) outdented(n *yaml.Node, i int, t reflect.Type, name string) bool {
	before, element := n.Content[i-2], solid(t.Elem())
	if element.Kind() != reflect.Struct {
		return false
	}
	if !has(element, n.Content[i].Value) {
		return false
	}
	s.bad(n.Content[i], name, "is not indented: it belongs below %q of line %d, so indent it further than that line",
		before.Value, before.Line)
	return true
}
