package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Document is one YAML document of a file.
type Document struct {
	node *yaml.Node
}

// Documents parses a file. Documents without content are left out.
func Documents(data []byte) ([]Document, []Fault) {
	// For YAML a carriage return alone ends a line, too. Lines are counted in one way from here on.
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	var out []Document
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		node := &yaml.Node{}
		err := decoder.Decode(node)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, []Fault{syntaxFault(data, err)}
		}
		if len(node.Content) > 0 && node.Content[0].ShortTag() != "!!null" {
			out = append(out, Document{node})
		}
	}
}

// Read reads a file with one document into v, a pointer to a struct, and returns everything that is wrong with its
// form, in the order of the file. A file without content leaves v as it is; empty says so. v is of no use if there are
// faults.
func Read(data []byte, v any) (places Places, empty bool, faults []Fault) {
	d, empty, faults := One(data)
	if empty || len(faults) > 0 {
		return nil, empty, faults
	}
	places, faults = d.Read(v)
	return places, false, faults
}

// One returns the only document of a file; empty says that there is none.
func One(data []byte) (d Document, empty bool, faults []Fault) {
	documents, faults := Documents(data)
	switch {
	case len(faults) > 0:
		return Document{}, false, faults
	case len(documents) == 0:
		return Document{}, true, nil
	case len(documents) > 1:
		return Document{}, false, []Fault{{
			Line:    documents[1].node.Content[0].Line,
			Message: `only one document can be in a file: put what follows "---" into a file of its own`,
		}}
	}
	return documents[0], false, nil
}

// Read reads the document into v, a pointer to a struct, as [Read] does.
func (d Document) Read(v any) (Places, []Fault) {
	s := shapeOf(d.node, reflect.TypeOf(v).Elem())
	if len(s.faults) == 0 {
		s.decode(d.node, v)
	}
	return s.lines, s.lines.Locate(s.faults)
}

// Below returns the part of the document at a key of its top, such as "spec", and what is there instead.
func (d Document) Below(keys ...string) (Document, bool) {
	n := d.node.Content[0]
	for _, key := range keys {
		if n = value(n, key); n == nil {
			return Document{}, false
		}
	}
	return Document{&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{n}}}, true
}

// Keys returns the names at the document's top, in order.
func (d Document) Keys() []string {
	var out []string
	if n := d.node.Content[0]; n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			out = append(out, n.Content[i].Value)
		}
	}
	return out
}

// Text returns the text at a key of the document's top; empty if there is none.
func (d Document) Text(key string) string {
	if n := value(d.node.Content[0], key); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// value returns the value that a mapping has under a key; nil if there is none.
func value(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// decode converts through JSON, because the types have JSON names only.
func (s *shape) decode(document *yaml.Node, v any) {
	var any any
	if err := document.Decode(&any); err != nil {
		s.faults = append(s.faults, Fault{Message: plainError(err)})
		return
	}
	b, err := json.Marshal(any)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		s.faults = append(s.faults, Fault{
			Field: wrong.Field, Message: fmt.Sprintf("%s does not fit: the number is too large", wrong.Value),
		})
	case err != nil:
		s.faults = append(s.faults, Fault{Message: err.Error()})
	}
}
