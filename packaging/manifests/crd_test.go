package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/kube"
)

// TestSchema compares the schemas with the Go types: the same fields of the same types, all the way down.
func TestSchema(t *testing.T) {
	root := schemaOf(t, kube.PoliciesPath)
	compare(t, "spec", root["spec"].(map[string]any), reflect.TypeFor[accel.PolicySpec]())
	compare(t, "status", root["status"].(map[string]any), reflect.TypeFor[policy.Status]())
	root = schemaOf(t, devices.Path)
	compare(t, "record", root["record"].(map[string]any), reflect.TypeFor[devices.Record]())
}

// schemaOf returns the properties of the definition whose objects are at a path.
func schemaOf(t *testing.T, at string) map[string]any {
	t.Helper()
	var d *definition
	for _, o := range objectsIn(t, "controller") {
		if found, ok := o.(*definition); ok && strings.HasPrefix(found.Name, path.Base(at)+".") {
			d = found
		}
	}
	if d == nil {
		t.Fatalf("no definition for %s", at)
	}
	names := d.Spec["names"].(map[string]any)
	version := d.Spec["versions"].([]any)[0].(map[string]any)
	if path := "/apis/" + d.Spec["group"].(string) + "/" + version["name"].(string) + "/" +
		names["plural"].(string); path != at {
		t.Errorf("they are at %s, read from %s", path, at)
	}
	return version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)
}

// compare checks one field. Fields that only the agent sets are not in the schema, so the API server drops them.
func compare(t *testing.T, at string, schema map[string]any, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int32: "integer",
		reflect.Int64:  "integer",
		reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array",
	}[typ.Kind()]
	switch {
	case typ == reflect.TypeFor[accel.Portion]():
		if schema["x-kubernetes-int-or-string"] != true {
			t.Errorf("%s is not a number or a string", at)
		}
		return
	case typ == reflect.TypeFor[accel.SettingValue]():
		if schema["x-kubernetes-preserve-unknown-fields"] != true || schema["type"] != nil {
			t.Errorf("%s is not a word, a number or a switch", at)
		}
		return
	case typ == reflect.TypeFor[time.Time]():
		want = "string"
	case typ == reflect.TypeFor[json.RawMessage]():
		want = "object"
	}
	if schema["type"] != want {
		t.Errorf("%s is %v in the schema and %s in Go", at, schema["type"], typ)
		return
	}
	if schema["x-kubernetes-preserve-unknown-fields"] == true || typ == reflect.TypeFor[time.Time]() {
		return
	}
	switch typ.Kind() {
	case reflect.Map:
		compare(t, at+"{}", schema["additionalProperties"].(map[string]any), typ.Elem())
	case reflect.Slice:
		compare(t, at+"[]", schema["items"].(map[string]any), typ.Elem())
	case reflect.Struct:
		properties := schema["properties"].(map[string]any)
		var fields []string
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if typ == reflect.TypeFor[accel.Repair]() && name == "by" {
				continue
			}
			if typ == reflect.TypeFor[accel.UpgradePolicy]() && (name == "asked" || name == "by" || name == "digest") {
				continue
			}
			fields = append(fields, name)
			if p, ok := properties[name].(map[string]any); ok {
				compare(t, at+"."+name, p, typ.Field(i).Type)
			}
		}
		slices.Sort(fields)
		if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(properties))); diff != "" {
			t.Errorf("fields of %s (-Go +schema):\n%s", at, diff)
		}
	}
}

// All of the controller's rights: it reads no Secret but its own, and runs nothing.
func TestRightsOfTheController(t *testing.T) {
	got := map[string][]rbacv1.PolicyRule{}
	for _, o := range objectsIn(t, "controller") {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			got[o.Name] = o.Rules
		case *rbacv1.Role:
			got["in the namespace"] = o.Rules
		}
	}
	rule := func(group, resources, verbs string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: strings.Fields(resources),
			Verbs: strings.Fields(verbs),
		}
	}
	want := map[string][]rbacv1.PolicyRule{
		"acceld-controller": {
			rule("acceld.dev", "acceleratorpolicies", "get list watch patch"),
			rule("acceld.dev", "acceleratorpolicies/status", "patch"),
			rule("acceld.dev", "acceleratordevices", "list watch create patch delete"),
			rule("", "nodes", "get list watch patch"), rule("", "nodes/status", "patch"),
			rule("", "pods", "get list watch"),
			rule("", "pods/binding", "create"), rule("", "pods/eviction", "create"),
			rule("apps", "daemonsets", "list watch"),
			rule("scheduling.k8s.io", "priorityclasses", "list watch create delete"),
			rule("events.k8s.io", "events", "create"),
		},
		"in the namespace": {
			rule("coordination.k8s.io", "leases", "create"), rule("coordination.k8s.io", "leases",
				"get update"), rule("", "secrets", "list watch patch"), rule("", "services", "list watch"),
			rule("discovery.k8s.io", "endpointslices", "list watch create patch"),
			rule("", "configmaps", "list watch"),
		},
	}
	want["in the namespace"][1].ResourceNames = []string{"acceld-controller"}
	want["in the namespace"][2].ResourceNames = []string{"acceld-controller-tls"}
	want["in the namespace"][3].ResourceNames = []string{"acceld-controller"}
	want["in the namespace"][4].ResourceNames = []string{"acceld-controller"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// The admission policy covers every write of nodes with the agent's account, and allows what the agent writes.
func TestConfinement(t *testing.T) {
	p, b := find[*admissionv1.ValidatingAdmissionPolicy](t), find[*admissionv1.ValidatingAdmissionPolicyBinding](t)
	account := "system:serviceaccount:" + find[*corev1.Namespace](t).Name + ":" + find[*corev1.ServiceAccount](t).Name
	if *p.Spec.FailurePolicy != admissionv1.Fail || b.Spec.PolicyName != p.Name ||
		!strings.Contains(p.Spec.MatchConditions[0].Expression, `"`+account+`"`) {
		t.Errorf("%+v %+v", p.Spec, b.Spec)
	}
	var text strings.Builder
	for _, v := range p.Spec.Validations {
		text.WriteString(v.Expression)
	}
	for _, written := range []string{
		accel.ReportAnnotation, accel.HistoryAnnotation, kube.OriginAnnotation, kube.ConditionType,
		fmt.Sprint(accel.MaxDeviceReport),
	} {
		if !strings.Contains(text.String()+fmtVariables(p), written) {
			t.Errorf("it does not know %q", written)
		}
	}
}

func fmtVariables(p *admissionv1.ValidatingAdmissionPolicy) string {
	var b strings.Builder
	for _, v := range p.Spec.Variables {
		b.WriteString(v.Expression)
	}
	return b.String()
}
