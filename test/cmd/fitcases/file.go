package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/controller/fit"
)

// The names of the cluster that the cases are about.
const (
	prefix    = "gpu.intel.com/"
	telemetry = "telemetry.aware.scheduling."
	namespace = "default"
)

// testCase is one case of a file. What another component does, in "gas" and "why", is not looked at.
type testCase struct {
	ID, Title string
	Nodes     []node
	Pods      []pod
	Flags     struct {
		Allow, Deny bool
		Balance     string
	}
	TilesAny bool `yaml:"tiles_any"`
	Steps    []step
}

type node struct {
	Name, Cards string
	Labels      map[string]string
	Annotations map[string]string
	Alloc       map[string]any
	Inventory   map[string]map[string]any
}

type pod struct {
	Name, Node, Cards, Tiles, Phase string
	Annotations                     map[string]string
	Init, Containers                []map[string]any
}

// step is one step; which one the key says that is there.
type step struct {
	Filter string
	On     []string
	Pass   []string

	Bind, To     string
	Cards, Tiles *string
	Error, Bound bool

	Event, Pod, Node string
	Set              map[string]string
	Unset            []string

	PodLabel, Has, HasNot string

	HTTP        string
	Method      string
	ContentType string `yaml:"content_type"`
	Raw         *string
	Body        map[string]any
	Status      int
	Answer      map[string]any
}

func parse(data []byte) ([]testCase, error) {
	var file struct{ Cases []testCase }
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if len(file.Cases) == 0 {
		return nil, errors.New("there are no cases")
	}
	return file.Cases, nil
}

// rules are those that a case asks for.
func (c *testCase) rules() (fit.Rules, error) {
	return fit.Rules{
		Prefix: prefix, Cards: []string{"xe", "i915"}, Tiles: "tiles", NodeWide: []string{"*_monitoring"},
		Allow: c.Flags.Allow, Deny: c.Flags.Deny, Balance: c.Flags.Balance,
	}.Complete()
}

// quantities reads amounts as a manifest has them: numbers or text.
func quantities(amounts map[string]any) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for name, value := range amounts {
		text := fmt.Sprint(value)
		if f, ok := value.(float64); ok {
			text = strings.TrimSuffix(fmt.Sprintf("%f", f), ".000000")
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, text, err)
		}
		out[corev1.ResourceName(prefix+name)] = q
	}
	return out, nil
}

// label spells out the short form of a label.
func label(key string) string {
	if rest, ok := strings.CutPrefix(key, "tas/"); ok {
		return telemetry + "policy/" + rest
	}
	return key
}

// object is the node as the API server has it.
func (n *node) object() (*corev1.Node, error) {
	alloc, err := quantities(n.Alloc)
	if err != nil {
		return nil, err
	}
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Labels: map[string]string{},
			Annotations: maps.Clone(n.Annotations),
		},
		Status: corev1.NodeStatus{Capacity: alloc, Allocatable: alloc},
	}
	if n.Cards != "" {
		out.Labels[prefix+"gpu-numbers"] = n.Cards
	}
	for key, value := range n.Labels {
		out.Labels[label(key)] = value
	}
	if n.Inventory == nil {
		return out, nil
	}
	var cards []fit.Card
	for name, amounts := range n.Inventory {
		has := map[string]resource.Quantity{}
		list, err := quantities(amounts)
		if err != nil {
			return nil, err
		}
		for full, q := range list {
			has[strings.TrimPrefix(string(full), prefix)] = q
		}
		cards = append(cards, fit.Card{Name: name, Has: has})
	}
	text, err := json.Marshal(cards)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[fit.InventoryAnnotation] = string(text)
	return out, err
}

// object is the pod as the API server has it.
func (p *pod) object() (*corev1.Pod, error) {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: p.Name, UID: types.UID("uid-" + p.Name), Annotations: maps.Clone(p.Annotations),
			Labels: map[string]string{},
		},
		Spec:   corev1.PodSpec{NodeName: p.Node},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if p.Node != "" {
		out.Status.Phase = corev1.PodRunning
	}
	if p.Phase != "" {
		out.Status.Phase = corev1.PodPhase(p.Phase)
	}
	if p.Cards != "" {
		out.Annotations["gas-ts"], out.Annotations["gas-container-cards"] = "1", p.Cards
	}
	if p.Tiles != "" {
		out.Annotations["gas-container-tiles"] = p.Tiles
	}
	for i, amounts := range p.Init {
		c, err := container(fmt.Sprintf("i%d", i), amounts)
		if err != nil {
			return nil, err
		}
		out.Spec.InitContainers = append(out.Spec.InitContainers, c)
	}
	for i, amounts := range p.Containers {
		c, err := container(fmt.Sprintf("c%d", i), amounts)
		if err != nil {
			return nil, err
		}
		out.Spec.Containers = append(out.Spec.Containers, c)
	}
	return out, nil
}

// container reads amounts and, for an init container, whether it goes on running.
func container(name string, amounts map[string]any) (corev1.Container, error) {
	out := corev1.Container{Name: name}
	amounts = maps.Clone(amounts)
	if policy, ok := amounts["restartPolicy"].(string); ok {
		always := corev1.ContainerRestartPolicy(policy)
		out.RestartPolicy = &always
		delete(amounts, "restartPolicy")
	}
	list, err := quantities(amounts)
	out.Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	return out, err
}
