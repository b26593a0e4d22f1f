package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/acceld/acceld/accel"
)

// Limits of what is read for a template. A node with all its slices has some hundred kilobytes.
const (
	maxObjects   = 4096
	maxDocuments = 16 << 20 // bytes
)

// anAmount reports whether a text is a quantity that a node or a device may have. The library takes exponents that need
// forever.
func anAmount(text string) bool { return accel.AmountForm().Expr.MatchString(text) }

// ReadNodes reads nodes and slices from YAML or JSON as kubectl prints them: objects, lists, and documents one after
// the other. Objects of other kinds are ignored.
func ReadNodes(data []byte) (nodes []Node, all []Slice, err error) {
	if len(data) > maxDocuments {
		return nil, nil, fmt.Errorf("longer than %d MiB", maxDocuments>>20)
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var document any
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nodes, all, nil
		}
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(document)
		if err != nil {
			return nil, nil, fmt.Errorf("document %d is not an object: %w", n+1, err)
		}
		if err := add(text, "", maxNested, &nodes, &all); err != nil {
			return nil, nil, err
		}
		if n+len(nodes)+len(all) > maxObjects {
			return nil, nil, fmt.Errorf("more than %d objects", maxObjects)
		}
	}
}

// maxNested is how deep lists may be in lists.
const maxNested = 2

// add adds an object, or those of a list. An item of a list may lack its kind. Lists may be nested that deep.
func add(text []byte, kind string, deep int, nodes *[]Node, all *[]Slice) error {
	var object struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("not an object of Kubernetes: %w", err)
	}
	if object.Kind != "" {
		kind = object.Kind
	}
	switch {
	case strings.HasSuffix(kind, "List") && deep == 0:
		return errors.New("lists in lists")
	case strings.HasSuffix(kind, "List"):
		for _, item := range object.Items {
			if len(*nodes)+len(*all) > maxObjects {
				return fmt.Errorf("more than %d objects", maxObjects)
			}
			if err := add(item, strings.TrimSuffix(kind, "List"), deep-1, nodes, all); err != nil {
				return err
			}
		}
	case kind == "Node":
		var n Node
		if err := json.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("not a node: %w", err)
		}
		if err := n.check(); err != nil {
			return fmt.Errorf("node %q: %w", n.Metadata.Name, err)
		}
		*nodes = append(*nodes, n)
	case kind == "ResourceSlice":
		var s Slice
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("not a slice: %w", err)
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("slice %q: %w", s.Metadata.Name, err)
		}
		*all = append(*all, s)
	}
	return nil
}

// check returns what could not be a node of an API server.
func (n Node) check() error {
	if problems := validation.IsDNS1123Subdomain(n.Metadata.Name); len(problems) > 0 {
		return errors.New("its name: " + problems[0])
	}
	for key, value := range n.Metadata.Labels {
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		if len(problems) > 0 {
			return fmt.Errorf("label %q: %s", key, problems[0])
		}
	}
	for _, t := range n.Spec.Taints {
		effects := []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
		problems := slices.Concat(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value))
		if len(problems) > 0 || !slices.Contains(effects, t.Effect) {
			return fmt.Errorf("taint %q cannot be one", t.Key)
		}
	}
	for _, all := range []map[string]string{n.Status.Capacity, n.Status.Allocatable} {
		for name, value := range all {
			if len(validation.IsQualifiedName(name)) > 0 || !anAmount(value) {
				return fmt.Errorf("resource %q: %q is not an amount", name, value)
			}
		}
	}
	return nil
}

// check returns what could not be a slice of acceld's. Slices of other drivers are left out later.
func (s Slice) check() error {
	if problems := validation.IsDNS1123Subdomain(s.Spec.Driver); len(problems) > 0 {
		return errors.New("its driver: " + problems[0])
	}
	if !strings.HasSuffix(s.Spec.Driver, domain) {
		return nil
	}
	if len(s.Spec.Devices) > 128 { // ResourceSliceMaxDevices
		return fmt.Errorf("%d devices", len(s.Spec.Devices))
	}
	for _, d := range s.Spec.Devices {
		if problems := validation.IsDNS1123Label(d.Name); len(problems) > 0 {
			return errors.New("the name of a device: " + problems[0])
		}
		for name, c := range d.Capacity {
			if !anAmount(c.Value) {
				return fmt.Errorf("device %q: %q of %s is not an amount", d.Name, c.Value, name)
			}
		}
	}
	return nil
}
