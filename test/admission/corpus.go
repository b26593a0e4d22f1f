// Package admission has what somebody tries with a stolen token of acceld, and what acceld must be able to do, as
// requests of an API server, and the manifests that decide. Its test asks a real API server; test/kubelet/admission
// asks the library of which the API server is made.
package admission

import (
	"bufio"
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed cases/*.yaml
var cases embed.FS

const (
	// Node is the node of the agent whose token it is.
	Node = "n1"
	// Granted is the name that an admin lets agents use; it is no kind's own (authorizer in dra/policy.yaml).
	Granted = "qemu-edu.acceld.dev/example.com/granted"
	// Image is an image that an admin lets the pods of validations use (validation/policy.yaml).
	Image = "example.com/check"
	// Resource is a resource that an admin lets them use.
	Resource = "qemu.org/edu"

	prefix = "system:serviceaccount:acceld-system:"
)

// Case is one request.
type Case struct {
	Name string
	// User is the account, and Node what its token says; empty if it says nothing.
	User, Node string
	// Operation is CREATE, UPDATE or DELETE.
	Operation   string
	Resource    schema.GroupVersionResource
	Subresource string
	// Before is the object as it is, and Object the one that is written. Nil if there is none.
	Before, Object *unstructured.Unstructured
	// With is what is different in Object.
	With map[string]any
	// Says is part of why it is refused; it must be allowed if that is empty.
	Says string
	// Gated: an API server that does not have the feature drops what must be refused.
	Gated bool
}

// file is a file of cases.
type file struct {
	Bases map[string]base `json:"bases"`
	Cases []row           `json:"cases"`
}

type base struct {
	Resource string         `json:"resource"`
	Sub      string         `json:"sub"`
	Object   map[string]any `json:"object"`
}

type row struct {
	Name   string         `json:"name"`
	As     string         `json:"as"`
	Create string         `json:"create"`
	Update string         `json:"update"`
	Delete string         `json:"delete"`
	Sub    string         `json:"sub"`
	Before map[string]any `json:"before"`
	With   map[string]any `json:"with"`
	Says   string         `json:"says"`
	Gated  bool           `json:"gated"`
}

// Cases returns all cases.
func Cases() ([]Case, error) {
	var all []Case
	for _, who := range []string{"agent", "controller", "topology"} {
		data, err := cases.ReadFile("cases/" + who + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("cannot read the cases: %w", err)
		}
		var f file
		if err := yaml.UnmarshalStrict(data, &f); err != nil {
			return nil, fmt.Errorf("cannot read the cases of %q: %w", who, err)
		}
		for _, r := range f.Cases {
			c, err := r.of(who, f.Bases)
			if err != nil {
				return nil, fmt.Errorf("cannot read the case %q of %q: %w", r.Name, who, err)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

func (r row) of(who string, bases map[string]base) (Case, error) {
	name := cmp.Or(r.Create, r.Update, r.Delete)
	b, known := bases[name]
	if !known {
		return Case{}, fmt.Errorf("there is no base %q", name)
	}
	c := Case{
		User: prefix + "acceld", Node: Node, Subresource: cmp.Or(r.Sub, b.Sub), Says: r.Says, Gated: r.Gated,
		With: r.With,
	}
	switch {
	case who == "controller":
		c.User, c.Node = prefix+"acceld-controller", "n9"
	case r.As == "loose":
		c.Node = ""
	}
	before, err := object(b.Object, r.Before)
	if err != nil {
		return Case{}, err
	}
	after, err := object(before.Object, r.With)
	if err != nil {
		return Case{}, err
	}
	switch {
	case r.Create != "":
		c.Operation, c.Object = "CREATE", after
	case r.Update != "":
		c.Operation, c.Before, c.Object = "UPDATE", before, after
	default:
		c.Operation, c.Before = "DELETE", before
	}
	version := before.GroupVersionKind().GroupVersion()
	if b.Sub != "" { // a kind of its own, of the resource of pods
		version = schema.GroupVersion{Version: "v1"}
	}
	c.Resource = version.WithResource(b.Resource)
	c.Name = fmt.Sprintf("%s: %s %s: %s", who, c.Operation, name, r.Name)
	return c, nil
}

// object returns a copy of o with a merge patch applied (RFC 7386).
func object(o, patch map[string]any) (*unstructured.Unstructured, error) {
	text, err := yaml.Marshal(merged(o, patch))
	if err != nil {
		return nil, err
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(text)
}

func merged(o, patch map[string]any) map[string]any {
	out := maps.Clone(o)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range patch {
		part, deeper := value.(map[string]any)
		switch {
		case value == nil:
			delete(out, key)
		case deeper:
			into, _ := out[key].(map[string]any)
			out[key] = merged(into, part)
		default:
			out[key] = value
		}
	}
	return out
}

// Dirs are the directories of the manifests with policies, below packaging/manifests.
func Dirs() []string {
	return []string{".", "binding", "controller", "dra", "evict", "topology", "validation"}
}

// Policies reads the admission policies of the manifests below the root of the repository.
func Policies(root string) ([]*admissionv1.ValidatingAdmissionPolicy, error) {
	var all []*admissionv1.ValidatingAdmissionPolicy
	for _, dir := range Dirs() {
		files, err := filepath.Glob(filepath.Join(root, "packaging/manifests", dir, "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("cannot list the manifests: %w", err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("cannot read a manifest: %w", err)
			}
			found, err := policies(data)
			if err != nil {
				return nil, fmt.Errorf("cannot read the manifest %q: %w", name, err)
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

func policies(data []byte) (all []*admissionv1.ValidatingAdmissionPolicy, err error) {
	for _, document := range documents(data) {
		p := &admissionv1.ValidatingAdmissionPolicy{}
		if err := yaml.Unmarshal(document, &p.TypeMeta); err != nil {
			return nil, err
		}
		if p.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		if err := yaml.UnmarshalStrict(document, p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func documents(data []byte) (all [][]byte) {
	split := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := split.Read()
		if err != nil {
			return all
		}
		all = append(all, slices.Clone(document))
	}
}
