package accel

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// TemplateKind is the value of a field's "template" tag: it says what the templates in that field can refer to.
type TemplateKind string

// The kinds of template.
const (
	RuntimeTemplate TemplateKind = "runtime" // Go templates over [Runtime]
	DeviceTemplate  TemplateKind = "device"  // {{.Address}} and {{.Number}}
	// PartitionTemplate: {{.Address}}, {{.Name}} and {{.Profile}}
	PartitionTemplate TemplateKind = "partition"
	NodeTemplate      TemplateKind = "node" // {{.Address}} and {{.IOMMUGroup}}
)

// Templates calls visit for every text of def that may be a template, with the path of its field, such as
// "driver.sources[0].path". The text is replaced by what visit returns.
func (def *Definition) Templates(visit func(kind TemplateKind, field, text string) string) {
	templates(reflect.ValueOf(def).Elem(), "", "", visit)
}

// templates walks v. Its path is field, and kind is its tag.
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
			element := reflect.New(v.Type().Elem()).Elem() // a map element cannot be set in place
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

// FieldName returns the name of a struct field in YAML and JSON.
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

// GroupTemplate is what a text has where the number of the device's IOMMU group goes.
const GroupTemplate = "{{.IOMMUGroup}}"

// NodeText fills a template of the kind [NodeTemplate]. An empty group is not filled in: there is none.
func NodeText(text, address, group string) string {
	text = strings.ReplaceAll(text, AddressTemplate, address)
	if group != "" {
		text = strings.ReplaceAll(text, GroupTemplate, group)
	}
	return text
}

// AddressTemplate is what a text has where the address of a device goes.
const AddressTemplate = "{{.Address}}"

// DeviceText fills a template of the kind [DeviceTemplate]; a number of -1 means that there is none.
func DeviceText(text, address string, number int) string {
	text = strings.ReplaceAll(text, AddressTemplate, address)
	if number >= 0 {
		text = strings.ReplaceAll(text, "{{.Number}}", fmt.Sprint(number))
	}
	return text
}

// PartitionText fills a template of the kind [PartitionTemplate].
func PartitionText(text, address, name, profile string) string {
	return strings.NewReplacer("{{.Address}}", address, "{{.Name}}", name, "{{.Profile}}", profile).Replace(text)
}
