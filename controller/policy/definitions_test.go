package policy

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

const mapPath = "/api/v1/namespaces/acceld-system/configmaps/defs"

// TestDefinitionsByName: the definitions that a policy names are in its status and announced, each as it was when
// last valid. Problems are reported.
func TestDefinitionsByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		c, err := New(Options{API: s, Namespace: "acceld-system", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		defer func() { cancel(); <-done }()
		s.edit(policyPath, object{"spec": object{
			"definitions": []any{object{
				"kind": "inline-kind", "resource": "example.com/i",
				"match": []any{object{"vendor": "1234"}},
			}}, "definitionsFrom": []any{object{
				"configMap": "defs",
				"key":       "one.yaml",
			}, object{"configMap": "defs"}},
		}})
		marks := map[string]bool{}
		check := func(what, says string, want ...accel.NamedDefinition) {
			t.Helper()
			wait(10 * time.Second)
			got := status(t, s)
			if diff := cmp.Diff(want, got.Definitions); diff != "" {
				t.Errorf("%s: definitions (-want +got):\n%s", what, diff)
			}
			var cond Condition
			for _, x := range got.Conditions {
				if x.Type == ConditionDefined {
					cond = x
				}
			}
			if (cond.Status == "True") != (says == "") || !strings.Contains(cond.Message, says) {
				t.Errorf("%s: %+v, want %q", what, cond, says)
			}
			marks[annotation(s.get(policyPath), accel.DefinitionsAnnotation)] = true
		}
		const rest = "vendor: example.com\nresource: x\nmatch: [{vendor: \"1234\"}]\n"
		one := accel.NamedDefinition{Name: "defs/one.yaml", Text: "kind: a-a\n" + rest}
		two := accel.NamedDefinition{Name: "defs/two.yaml", Text: "kind: b-b\n" + rest}
		check("no config map", `has no config map "defs"`)
		s.edit(mapPath, object{"metadata": object{"namespace": "acceld-system"}, "data": object{
			"one.yaml": one.Text,
			"notes":    "x",
		}})
		check("one, named twice", `the kind "a-a" has another definition`, one)
		s.edit(policyPath, object{"spec": object{"definitionsFrom": []any{object{"configMap": "defs"}}}})
		check("one", "", one)
		s.edit(mapPath, object{"data": object{"two.yaml": two.Text}})
		check("two", "", one, two)
		writes := len(s.written())
		wait(time.Hour)
		if len(s.written()) != writes {
			t.Errorf("writes while nothing happens: %v", s.written()[writes:])
		}
		s.edit(mapPath, object{"data": object{"two.yaml": "kind: [\n"}})
		check("one is broken", "defs/two.yaml", one, two)
		s.edit(mapPath, object{"data": object{"two.yaml": "kind: inline-kind\n" + rest}})
		check("of a kind that the policy has", `the kind "inline-kind" has another definition`, one, two)
		s.edit(mapPath, object{"data": object{"one.yaml": "tittle: x\n", "two.yaml": nil}})
		check("one is broken, one is gone", `unknown field "tittle"`, one)
		again := accel.NamedDefinition{Name: "defs/one.yaml", Text: "kind: c-c\n" + rest}
		s.edit(mapPath, object{"data": object{"one.yaml": again.Text}})
		check("well again", "", again)
		s.mu.Lock()
		s.put(mapPath, "DELETED", s.objects[mapPath])
		s.mu.Unlock()
		check("the config map is gone", `has no config map "defs"`, again)
		s.edit(policyPath, object{"spec": object{"definitionsFrom": []any{object{
			"configMap": "defs", "key": "one.yaml", "digest": "sha256:0",
		}}}})
		s.edit(mapPath, object{
			"metadata": object{"namespace": "acceld-system"}, "data": object{"one.yaml": one.Text},
		})
		check("another text than is pinned", "and the policy pins sha256:0", again)
		s.edit(policyPath, object{"spec": object{"definitionsFrom": nil}})
		check("none is named", "")
		if len(marks) != 4 { // none, one, two, and the later ones
			t.Errorf("announced as %v", marks)
		}
		s.edit(policyPath, object{"spec": object{"definitions": []any{object{"title": "x"}}}})
		check("a broken one inline", `definitions[0]: kind: "" is not`)
	})
}
