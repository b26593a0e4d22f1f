package accel

import (
	"fmt"
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
// "<field>: <what it does>". In the structs they have the tag "privileged". Everything else only describes devices.
func (def *Definition) Privileged() []string { return privileged(reflect.ValueOf(def), "") }

// Privileged returns the fields of an override that make acceld do something on the host as root, as
// [Definition.Privileged] does.
func (k KindConfig) Privileged() []string { return privileged(reflect.ValueOf(k), "") }

// Definition says why the host does not take a definition of a policy; empty if it does.
func (t PolicyTrust) Definition(def *Definition) string {
	if t == PolicyTrustOff {
		return "this host takes no definitions from the cluster (policies.definitions: off)"
	}
	return t.refusal(def.Privileged())
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
			switch {
			case does == "":
				out = append(out, privileged(v.Field(i), name)...)
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

// unset reports whether a field says nothing.
func unset(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.IsZero()
}
