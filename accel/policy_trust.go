package accel

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
)

// PolicyTrust is what a host lets policies of the cluster bring, as its own configuration says. Whoever may write a
// policy, or has the controller's token, would otherwise be root on every node.
type PolicyTrust string

// The values of PolicyTrust.
const (
	PolicyTrustOff  PolicyTrust = "off"  // no definitions
	PolicyTrustData PolicyTrust = "data" // definitions without privileged fields; the default
	PolicyTrustAll  PolicyTrust = "all"  // whatever a file of the host may contain
)

// Privileged returns the fields of def that make acceld do something on the host as root, each as
// "<field>: <what it does>". In the structs they have the tag "privileged", and "unless" if that depends on the text
// (see [harmless]). Everything else only describes devices.
func (def *Definition) Privileged() []string { return privileged(reflect.ValueOf(def), "") }

// Privileged returns the fields of an override that make acceld do something on the host as root, as
// [Definition.Privileged] does.
func (k KindConfig) Privileged() []string { return privileged(reflect.ValueOf(k), "") }

// Definition says why the host does not take a definition of a policy; empty if it does. The definition is then
// confined, unless the host takes everything. Pinned means that the policy itself decides the text. Who copies text
// into the policy's status brings no privileged field.
func (t PolicyTrust) Definition(def *Definition, pinned bool) string {
	if t == PolicyTrustOff {
		return "this host takes no definitions from the cluster (policies.definitions: off)"
	}
	if t == PolicyTrustAll && pinned {
		return ""
	}
	def.Confined = true
	fields := def.Privileged()
	for i, m := range def.Match {
		if ofTheHost(m.Class) {
			fields = append(fields, fmt.Sprintf("match[%d].class: recognises what the host itself needs", i))
		}
	}
	if t == PolicyTrustAll && len(fields) > 0 {
		return "without a digest in definitionsFrom this host does not take from the cluster " +
			strings.Join(fields, ", ")
	}
	return t.refusal(fields)
}

// Override says why the host does not take an override of a policy; empty if it does.
func (t PolicyTrust) Override(k KindConfig) string { return t.refusal(k.Privileged()) }

func (t PolicyTrust) refusal(fields []string) string {
	if t == PolicyTrustAll || len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("this host does not take from the cluster (policies.definitions: %s) %s", t,
		strings.Join(fields, ", "))
}

// privileged walks v, whose path is field.
func privileged(v reflect.Value, field string) (out []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out = privileged(v.Elem(), field)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, does := joinField(field, FieldName(f)), f.Tag.Get("privileged")
			switch rule := f.Tag.Get("unless"); {
			case does == "":
				out = append(out, privileged(v.Field(i), name)...)
			case rule != "":
				out = append(out, harmful(v.Field(i), rule, name, does)...)
			case !unset(v.Field(i)):
				out = append(out, name+": "+does)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, privileged(v.Index(i), fmt.Sprintf("%s[%d]", field, i))...)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			out = append(out, privileged(v.MapIndex(key), joinField(field, key.String()))...)
		}
	}
	return out
}

// harmful returns those texts of a field that are privileged by the rule of its tag "unless".
func harmful(v reflect.Value, rule, field, does string) (out []string) {
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			out = append(out, harmful(v.Index(i), rule, fmt.Sprintf("%s[%d]", field, i), does)...)
		}
		return out
	}
	if text := v.String(); text == "" || harmless(rule, text) {
		return nil
	}
	return []string{field + ": " + does}
}

// harmless reports whether a text leads only to the device itself, by a rule:
//
//	own       attributes and nodes of the device: relative to its function, or named by its address
//	numbered  a directory in sysfs named by the number of the device's own node
//	dev       a path below /dev
//
// The texts of own and numbered lead where the machine's links do; a confined definition is held to the device there.
func harmless(rule, text string) bool {
	switch rule {
	case "own":
		return !slices.ContainsFunc(Alternatives(text), func(one string) bool {
			return path.IsAbs(one) && !strings.Contains(one, AddressTemplate)
		})
	case "numbered":
		return strings.Contains(text, "{{.Number}}")
	case "dev":
		return strings.HasPrefix(text, "/dev/") && path.Clean(text) == text
	}
	return false
}

// ofTheHost reports whether PCI functions of a class are what a host needs for itself, and not accelerators: by base
// class, or by subclass (PCI Code and ID Assignment Specification 1.16).
func ofTheHost(class string) bool {
	return slices.ContainsFunc([]string{
		"01", "02", "06", "07", "09", "0c", "0d", // storage, network, bridges, serial ports, input, USB and SMBus, radio
		"0501", "0502", // flash, memory on CXL
		"0805", "0806", // SD cards, the IOMMU
	}, func(prefix string) bool { return strings.HasPrefix(class, prefix) })
}

// unset reports whether a field says nothing: a switch that is off does not either.
func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil() || v.Elem().Kind() == reflect.Bool && v.Elem().IsZero()
	}
	return v.IsZero()
}
