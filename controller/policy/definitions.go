package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// configMap holds the fields that are read of a config map.
type configMap struct {
	Meta kube.Meta         `json:"metadata"`
	Data map[string]string `json:"data,omitempty"`
}

// ObjectMeta returns the metadata.
func (c *configMap) ObjectMeta() *kube.Meta { return &c.Meta }

// Same reports whether two versions of a config map are equal for this package.
func (c *configMap) Same(o *configMap) bool { return maps.Equal(c.Data, o.Data) }

// maxDefinitions limits how much of a policy's status its definitions take, in bytes: an object of the API has at
// most 1.5 MB.
const maxDefinitions = 512 << 10

// defined are the valid definitions of a policy, and the problems of the others.
type defined struct {
	named    []accel.NamedDefinition
	problems []string
}

// define finds the definitions that a policy names. One that has vanished or become invalid keeps its last valid
// text: a typo must not stop what serves on nodes.
func (c *Controller) define(p *Policy, texts map[string]*configMap) defined {
	var d defined
	kinds := map[string]bool{}
	for i, raw := range p.Spec.Definitions {
		kind, err := c.parse(string(raw))
		if err != nil {
			d.problems = append(d.problems, fmt.Sprintf("definitions[%d]: %v", i, err))
		}
		kinds[kind] = true
	}
	size := 0
	for i, from := range p.Spec.DefinitionsFrom {
		found, problem := c.find(from, texts)
		if problem != "" {
			d.problems = append(d.problems, fmt.Sprintf("definitionsFrom[%d]: %s", i, problem))
		}
		for _, x := range found {
			kind, err := c.parse(x.Text)
			if size += len(x.Text); err == nil && size > maxDefinitions {
				err = fmt.Errorf("the definitions have more than %d bytes together", maxDefinitions)
			}
			if err == nil && kinds[kind] {
				err = fmt.Errorf("the kind %q has another definition in this policy", kind)
			}
			if err != nil {
				d.problems = append(d.problems, fmt.Sprintf("definitionsFrom[%d]: %s: %v", i, x.Name, err))
				continue
			}
			kinds[kind] = true
			d.named = append(d.named, x)
		}
		d.keep(c, p.Status.Definitions, from, texts[c.o.Namespace+"/"+from.ConfigMap], kinds)
	}
	return d
}

// parsed is the result of parsing a definition.
type parsed struct {
	kind string
	err  error
}

// maxParsed is how many results are cached: every change in the cluster causes a pass, and few changes concern
// definitions.
const maxParsed = 256

func (c *Controller) parse(text string) (string, error) {
	x, known := c.parses[text]
	if !known {
		if len(c.parses) >= maxParsed {
			clear(c.parses)
		}
		x.kind, x.err = parseDefinition([]byte(text))
		c.parses[text] = x
	}
	return x.kind, x.err
}

// find returns the definitions that a source names.
func (c *Controller) find(from accel.DefinitionSource, all map[string]*configMap) (found []accel.NamedDefinition,
	problem string,
) {
	m := all[c.o.Namespace+"/"+from.ConfigMap]
	if m == nil {
		return nil, fmt.Sprintf("the namespace %q has no config map %q", c.o.Namespace, from.ConfigMap)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		if key == from.Key || from.Key == "" && strings.HasSuffix(key, ".yaml") {
			found = append(found, accel.NamedDefinition{Name: from.ConfigMap + "/" + key, Text: m.Data[key]})
		}
	}
	if len(found) == 0 {
		problem = fmt.Sprintf("config map %q has no key %q", from.ConfigMap, from.Key)
		if from.Key == "" {
			problem = fmt.Sprintf("config map %q has no key that ends with .yaml", from.ConfigMap)
		}
	}
	return found, problem
}

// keep carries over the definitions that a source yielded before and does not yield now. If the source names a whole
// config map, a key that was removed from it is gone.
func (d *defined) keep(c *Controller, before []accel.NamedDefinition, from accel.DefinitionSource, now *configMap,
	kinds map[string]bool,
) {
	for _, x := range before {
		key, of := strings.CutPrefix(x.Name, from.ConfigMap+"/")
		if of && from.Key == "" && now != nil {
			_, of = now.Data[key]
		}
		if !of || from.Key != "" && key != from.Key || slices.ContainsFunc(d.named, func(y accel.NamedDefinition) bool {
			return y.Name == x.Name
		}) {
			continue
		}
		if kind, err := c.parse(x.Text); err == nil && !kinds[kind] {
			kinds[kind] = true
			d.named = append(d.named, x)
		}
	}
}

// condition says whether the definitions are valid; ok is false if the policy has none.
func (d defined) condition(p *Policy) (c Condition, ok bool) {
	if len(p.Spec.Definitions)+len(p.Spec.DefinitionsFrom) == 0 {
		return Condition{}, false
	}
	if len(d.problems) > 0 {
		return Condition{
			Type: ConditionDefined, Status: "False", Reason: string(accel.DefinitionInvalid),
			Message: shorten(strings.Join(d.problems, "; ")),
		}, true
	}
	return Condition{Type: ConditionDefined, Status: "True", Reason: "Valid"}, true
}

// mark sets the annotation of a policy to the digest of the definitions in its status, so that agents notice a
// change. The status is written first.
func (c *Controller) mark(ctx context.Context, p *Policy) {
	want := ""
	if len(p.Status.Definitions) > 0 {
		sum := sha256.New()
		for _, x := range p.Status.Definitions {
			fmt.Fprintf(sum, "%q %q\n", x.Name, x.Text)
		}
		want = hex.EncodeToString(sum.Sum(nil)[:8])
	}
	if p.Meta.Annotations[accel.DefinitionsAnnotation] == want {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	value := any(want)
	if want == "" {
		value = nil
	}
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": p.Meta.ResourceVersion,
		"annotations":     map[string]any{accel.DefinitionsAnnotation: value},
	}}
	answer := &Policy{}
	if err := c.o.API.Do(ctx, http.MethodPatch, kube.PoliciesPath+"/"+p.Meta.Name, query(), patch, answer); err != nil {
		c.failed(ctx, "marking the definitions of a policy", p.Meta.Name, err)
		return
	}
	c.policies.Put(answer)
}
