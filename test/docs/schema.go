package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/controller/replica"
	"github.com/acceld/acceld/yamlfile"
)

// object is a JSON object.
type object = map[string]any

// schemas builds JSON schemas (draft-07, which editors and Helm read) of Go types.
type schemas struct {
	*comments
	definitions object
	// undescribed are the fields without a comment, as "Type.Field".
	undescribed []string
}

// policyFile is an AcceleratorPolicy as people write it.
type policyFile struct {
	// APIVersion is acceld.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Kind is AcceleratorPolicy.
	Kind string `json:"kind"`
	// Metadata has the name of the policy.
	Metadata map[string]any `json:"metadata"`
	// Spec is what the cluster asks of the accelerators of the nodes that it selects.
	Spec accel.PolicySpec `json:"spec"`
	// Status is what the controller writes.
	Status map[string]any `json:"status,omitempty"`
}

// schemaPages renders the schemas of everything that people write.
func schemaPages(root string) []Page {
	var out []Page
	for _, s := range []struct {
		name, title string
		t           reflect.Type
	}{
		{"config", "The configuration of the agent, /etc/acceld/config.yaml", reflect.TypeFor[agent.ConfigFile]()},
		{"controller", "The configuration of acceld-controller", reflect.TypeFor[replica.Config]()},
		{"definition", "The definition of a kind of accelerator", reflect.TypeFor[accel.Definition]()},
		{"policy", "An AcceleratorPolicy of a cluster", reflect.TypeFor[policyFile]()},
	} {
		g := &schemas{comments: newComments(root), definitions: object{}}
		top := g.reference(s.t)
		text := render(object{
			"$schema": "http://json-schema.org/draft-07/schema#", "title": s.title, "$ref": top["$ref"],
			"definitions": g.definitions,
		})
		out = append(out, Page{"docs/schemas/" + s.name + ".json", text})
	}
	return append(out, valuesSchema(root))
}

func render(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(b) + "\n"
}

// valuesSchema renders the schema of the chart's values: the written one, with what is generated of the configurations.
func valuesSchema(root string) Page {
	const name = "packaging/chart/values.schema.json"
	p := Page{Path: name}
	data, err := os.ReadFile(filepath.Join(root, name))
	var all object
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		p.Text = err.Error()
		return p
	}
	g := &schemas{comments: newComments(root), definitions: object{}}
	config := g.reference(reflect.TypeFor[agent.ConfigFile]())
	controller := g.reference(reflect.TypeFor[replica.Config]())
	written, _ := all["definitions"].(object)
	for key := range written {
		if strings.Contains(key, ".") {
			delete(written, key)
		}
	}
	for key, value := range g.definitions {
		written[key] = value
	}
	properties, _ := all["properties"].(object)
	for part, schema := range map[string]object{"agent": config, "controller": controller} {
		if of, ok := properties[part].(object)["properties"].(object); ok {
			of["config"] = schema
		}
	}
	p.Text = render(all)
	return p
}

// reference returns a reference to the schema of a struct, which it adds to the definitions.
func (g *schemas) reference(t reflect.Type) object {
	name := t.String()
	if g.definitions[name] == nil {
		s := object{"type": "object", "additionalProperties": false}
		g.definitions[name] = s // before the fields, which may have the type again
		if text := g.of(t.PkgPath()).texts[t.Name()]; text != "" {
			s["description"] = text
		}
		properties, required := object{}, []string{}
		g.properties(t, properties, &required)
		s["properties"] = properties
		if len(required) > 0 {
			slices.Sort(required)
			s["required"] = required
		}
	}
	return object{"$ref": "#/definitions/" + name}
}

// hidden are fields that acceld alone sets.
func hidden(t reflect.Type, field string) bool {
	return t == reflect.TypeFor[accel.UpgradePolicy]() && slices.Contains([]string{"asked", "digest", "by"}, field) ||
		t == reflect.TypeFor[accel.Repair]() && field == "by"
}

func (g *schemas) properties(t reflect.Type, into object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			g.properties(f.Type, into, required)
			continue
		case name == "" || name == "-" || hidden(t, name):
			continue
		}
		s := g.schema(f.Type, f.Tag)
		text := g.field(t, f)
		if text == "" {
			g.undescribed = append(g.undescribed, t.String()+"."+f.Name)
		}
		if ref := s["$ref"]; ref != nil { // what is beside a reference is not read
			s = object{"allOf": []any{object{"$ref": ref}}}
		}
		s["description"] = text
		into[name] = s
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}

// schema returns the schema of a value. A value may be missing, as null says too.
func (g *schemas) schema(t reflect.Type, tag reflect.StructTag) object {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[accel.SettingValue]():
		return object{"type": []string{"string", "number", "boolean"}}
	case reflect.TypeFor[accel.Portion]():
		return object{"type": []string{"string", "integer"}}
	case reflect.TypeFor[yamlfile.Switch](): // other readers of YAML turn on and off into true and false
		values := []any{true, false}
		for _, v := range strings.Split(tag.Get("enum"), ",") {
			values = append(values, v)
		}
		return object{"enum": values}
	case reflect.TypeFor[json.RawMessage]():
		return g.reference(reflect.TypeFor[accel.Definition]())
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return g.reference(t)
	case reflect.Slice:
		return object{"type": "array", "items": g.schema(t.Elem(), "")}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.schema(t.Elem(), "")}
	case reflect.Interface:
		return object{}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return g.text(t, tag)
	}
	return object{"type": "integer"}
}

// text returns the schema of a text.
func (g *schemas) text(t reflect.Type, tag reflect.StructTag) object {
	s := object{"type": "string"}
	switch {
	case tag.Get("form") == "duration":
		s["pattern"] = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))*$`
	case tag.Get("enum") != "":
		s["enum"] = strings.Split(tag.Get("enum"), ",")
	case t.PkgPath() != "":
		if values := slices.Clone(g.of(t.PkgPath()).values[t.Name()]); len(values) > 0 {
			if t == reflect.TypeFor[accel.SourceType]() { // those that need no entry
				values = slices.DeleteFunc(values, func(v string) bool {
					return accel.SourceType(v) == accel.SourceLoaded || accel.SourceType(v) == accel.SourceStore ||
						accel.SourceType(v) == accel.SourceInstalled
				})
			}
			s["enum"] = values
		}
	}
	return s
}

// Undescribed returns the fields of what people write that have no comment.
func Undescribed(root string) []string {
	g := &schemas{comments: newComments(root), definitions: object{}}
	for _, t := range []reflect.Type{
		reflect.TypeFor[agent.ConfigFile](), reflect.TypeFor[replica.Config](), reflect.TypeFor[accel.Definition](),
		reflect.TypeFor[policyFile](),
	} {
		g.reference(t)
	}
	slices.Sort(g.undescribed)
	return slices.Compact(g.undescribed)
}
