package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

//go:embed rivals.yaml
var rivalsYAML []byte

// rival is another operator that deals with drivers or devices.
type rival struct {
	Name  string   `json:"name"`
	Kinds []string `json:"kinds"` // prefixes of kinds
	Sets  []string `json:"sets"`  // words in the name of a DaemonSet
}

func rivalTable() ([]rival, error) {
	var all []rival
	if err := yaml.UnmarshalStrict(rivalsYAML, &all); err != nil {
		return nil, fmt.Errorf("cannot read the table of other operators: %v", err)
	}
	return all, nil
}

// daemonSet holds the fields that are read of a DaemonSet.
type daemonSet struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		Template struct {
			Spec struct {
				NodeSelector map[string]string `json:"nodeSelector,omitempty"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// Same reports whether two versions of a DaemonSet are equal for this package.
func (s *daemonSet) Same(o *daemonSet) bool {
	a, b := s.Spec.Template.Spec.NodeSelector, o.Spec.Template.Spec.NodeSelector
	return len(a) == len(b) && accel.Has(a, b)
}

// recognise returns a function that finds the operator that serves a kind on a node.
func recognise(table []rival, sets map[string]*daemonSet) func(*Node, string) string {
	type found struct {
		rival
		set *daemonSet
	}
	var present []found
	for _, r := range table {
		for _, s := range sets {
			if slices.ContainsFunc(r.Sets, func(part string) bool {
				return strings.Contains(s.Name, part)
			}) {
				present = append(present, found{r, s})
			}
		}
	}
	slices.SortFunc(present, func(a, b found) int { return strings.Compare(a.set.Key(), b.set.Key()) })
	return func(n *Node, kind string) string {
		for _, f := range present {
			served := slices.ContainsFunc(f.Kinds, func(prefix string) bool { return strings.HasPrefix(kind, prefix) })
			if served && n.Labels.has(f.set.Spec.Template.Spec.NodeSelector) {
				return fmt.Sprintf("%s: DaemonSet %s serves %s", f.Name, f.set.Key(), kind)
			}
		}
		return ""
	}
}
