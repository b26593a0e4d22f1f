package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// configMap holds the fields that are read of a config map.
type configMap struct {
	kube.Meta `json:"metadata"`
	Data      map[string]string `json:"data,omitempty"`
}

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
			if why := from.Refuses(x); err == nil && why != "" {
				err = errors.New(why)
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

// digest identifies definitions; it is empty if there are none.
func digest(named []accel.NamedDefinition) string {
	if len(named) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, x := range named {
		fmt.Fprintf(sum, "%q %q\n", x.Name, x.Text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
