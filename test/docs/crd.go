package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/controller/policy"
)

// crdPath is the file with the definitions of the cluster's objects. Its descriptions are generated; the rest is
// written.
const crdPath = "packaging/manifests/controller/crd.yaml"

// crdPage renders the file with the descriptions that the fields of the Go types have, so that kubectl explain has
// them.
func crdPage(root string) Page {
	text, _, err := describedCRD(root)
	if err != nil {
		text = err.Error()
	}
	return Page{crdPath, text}
}

// undescribedInCluster returns the fields of the cluster's objects that have no comment.
func undescribedInCluster(root string) ([]string, error) {
	_, fields, err := describedCRD(root)
	return fields, err
}

func describedCRD(root string) (text string, undescribed []string, err error) {
	data, err := os.ReadFile(filepath.Join(root, crdPath))
	if err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	d := &describer{newComments(root), nil}
	for {
		var n yaml.Node
		if decoder.Decode(&n) != nil {
			break
		}
		top := node(&n, "spec", "versions", "", "schema", "openAPIV3Schema", "properties")
		for name, t := range map[string]reflect.Type{
			"spec": reflect.TypeFor[accel.PolicySpec](), "status": reflect.TypeFor[policy.Status](),
			"record": reflect.TypeFor[devices.Record](),
		} {
			if s := node(top, name); s != nil {
				d.describe(s, t)
			}
		}
		if err := encoder.Encode(&n); err != nil {
			return "", nil, err
		}
	}
	err = encoder.Close()
	slices.Sort(d.undescribed)
	return out.String(), slices.Compact(d.undescribed), err
}

// node follows keys; an empty one is the first element of a list. It returns nil if there is none.
func node(n *yaml.Node, keys ...string) *yaml.Node {
	if n != nil && n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	for _, key := range keys {
		switch {
		case n == nil:
			return nil
		case key == "" && n.Kind == yaml.SequenceNode && len(n.Content) > 0:
			n = n.Content[0]
			continue
		}
		var found *yaml.Node
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				found = n.Content[i+1]
			}
		}
		n = found
	}
	return n
}

// describer puts descriptions into the schemas of objects.
type describer struct {
	*comments
	// undescribed are the paths of fields whose Go fields have no comment.
	undescribed []string
}

// describe describes the fields of a schema and of all below it.
func (d *describer) describe(schema *yaml.Node, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Map:
		if below := node(schema, "additionalProperties"); below != nil {
			d.describe(below, t.Elem())
		}
	case reflect.Slice:
		if below := node(schema, "items"); below != nil {
			d.describe(below, t.Elem())
		}
	case reflect.Struct:
		properties := node(schema, "properties")
		if properties == nil {
			return
		}
		if t == reflect.TypeFor[accel.Source]() {
			complete(properties, t)
		}
		for i := range t.NumField() {
			f := t.Field(i)
			s := node(properties, accel.FieldName(f))
			if s == nil {
				continue
			}
			d.describe(s, f.Type)
			text := d.field(t, f)
			if text == "" {
				d.undescribed = append(d.undescribed, t.String()+"."+f.Name)
				continue
			}
			set(s, "description", text)
		}
		properties.Style &^= yaml.FlowStyle
	}
}

// complete adds the fields of a source that are not in the schema: the API server keeps what it does not know there.
func complete(properties *yaml.Node, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := accel.FieldName(f)
		kinds := map[reflect.Kind]string{
			reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer",
		}
		if node(properties, name) != nil {
			continue
		}
		s := &yaml.Node{Kind: yaml.MappingNode}
		switch k := f.Type.Kind(); {
		case kinds[k] != "":
			set(s, "type", kinds[k])
		case k == reflect.Slice && f.Type.Elem().Kind() == reflect.String:
			set(s, "type", "array")
			items := &yaml.Node{Kind: yaml.MappingNode}
			set(items, "type", "string")
			s.Content = append(s.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "items"}, items)
		default:
			s.Content = append(s.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "x-kubernetes-preserve-unknown-fields"},
				&yaml.Node{Kind: yaml.ScalarNode, Value: "true", Tag: "!!bool"})
		}
		properties.Content = append(properties.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, s)
	}
}

// set sets a text of a mapping, the description after the type.
func set(n *yaml.Node, key, text string) {
	n.Style &^= yaml.FlowStyle
	if have := node(n, key); have != nil {
		have.Value, have.Style, have.Tag = text, 0, "!!str"
		return
	}
	pair := []*yaml.Node{
		{Kind: yaml.ScalarNode, Value: key}, {Kind: yaml.ScalarNode, Value: text, Tag: "!!str"},
	}
	at := 0
	if len(n.Content) >= 2 && n.Content[0].Value == "type" {
		at = 2
	}
	n.Content = slices.Insert(n.Content, at, pair...)
}
