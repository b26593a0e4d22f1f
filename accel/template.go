package accel

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// TemplateKind says what the template in a field of a definition is filled with: the value of the tag "template".
type TemplateKind string

// The kinds of template.
const (
	RuntimeTemplate TemplateKind = "runtime" // Go templates over [Runtime]
	DeviceTemplate  TemplateKind = "device"  // {{.Address}} and {{.Number}}
	// PartitionTemplate knows {{.Address}}, {{.Name}} and {{.Profile}}.
	PartitionTemplate TemplateKind = "partition"
)

// Templates calls visit for every text of def that may be a template, with the path of its field, such as
// "driver.sources[0].path". What visit returns is the new text.
func (def *Definition) Templates(visit func(kind TemplateKind, field, text string) string) {
	templates(reflect.ValueOf(def).Elem(), "", "", visit)
}

// templates walks v, whose path is field and whose tag is kind.
func templates(v reflect.Value, field string, kind TemplateKind, visit func(TemplateKind, string, string) string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			templates(v.Elem(), field, kind, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			templates(v.Field(i), joinField(field, FieldName(f)), TemplateKind(f.Tag.Get("template")), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			templates(v.Index(i), fmt.Sprintf("%s[%d]", field, i), kind, visit)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			element := reflect.New(v.Type().Elem()).Elem() // what is in a map cannot be set in its place
			element.Set(v.MapIndex(key))
			templates(element, joinField(field, key.String()), kind, visit)
			v.SetMapIndex(key, element)
		}
	case reflect.String:
		if kind != "" {
			v.SetString(visit(kind, field, v.String()))
		}
	}
}

// FieldName is the name of a struct's field in YAML and JSON.
func FieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func joinField(a, b string) string {
	if a == "" {
		return b
	}
	return a + "." + b
}

// DeviceText fills a template of the kind [DeviceTemplate]; a number of -1 stands for none.
func DeviceText(text, address string, number int) string {
	text = strings.ReplaceAll(text, "{{.Address}}", address)
	if number >= 0 {
		text = strings.ReplaceAll(text, "{{.Number}}", fmt.Sprint(number))
	}
	return text
}

// PartitionText fills a template of the kind [PartitionTemplate].
func PartitionText(text, address, name, profile string) string {
	return strings.NewReplacer("{{.Address}}", address, "{{.Name}}", name, "{{.Profile}}", profile).Replace(text)
}
