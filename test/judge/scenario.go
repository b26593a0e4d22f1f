package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed scenarios.yaml
var builtIn []byte

// Scenario is a row of the table.
type Scenario struct {
	Name string `json:"name"`
	// What is the sentence in the table.
	What  string `json:"what"`
	Steps []Step `json:"steps"`
}

// Step does one thing. Do names the verb; the other fields are what verbs take.
type Step struct {
	Do string `json:"do"`
	// What is acted on: subject, kubelet, runtime.
	What string `json:"what,omitempty"`
	// Slot is that of a device, from 0.
	Slot int `json:"slot,omitempty"`
	// Count is how many devices are offered, how many pods are run, or how often something is done. Missing says how
	// many devices fewer than all are offered.
	Count   int `json:"count,omitempty"`
	Missing int `json:"missing,omitempty"`
	// Error is a PCIe error as QEMU names it, such as DLP or POISON_TLP.
	Error string `json:"error,omitempty"`
	// Within is how long it may take; a minute unless set.
	Within metav1.Duration `json:"within,omitzero"`
}

func (s Step) within() time.Duration {
	if s.Within.Duration > 0 {
		return s.Within.Duration
	}
	return time.Minute
}

func readScenarios(file string) ([]*Scenario, error) {
	text, name := builtIn, "the built-in scenarios"
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("cannot read scenarios: %w", err)
		}
		name = fmt.Sprintf("%q", file)
	}
	var all []*Scenario
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", name, err)
	}
	for _, s := range all {
		if err := s.problem(); err != nil {
			return nil, fmt.Errorf("cannot use %s: scenario %q: %w", name, s.Name, err)
		}
	}
	return all, nil
}

func (s *Scenario) problem() error {
	if s.Name == "" || s.What == "" || len(s.Steps) == 0 {
		return errors.New("want name, what and steps")
	}
	known := verbs()
	for i, step := range s.Steps {
		v, ok := known[step.Do]
		if !ok {
			return fmt.Errorf("steps[%d]: %q is no verb: want one of %s", i, step.Do,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if len(v.what) > 0 && !slices.Contains(v.what, step.What) {
			return fmt.Errorf("steps[%d]: %s: what is %q: want one of %s", i, step.Do, step.What, strings.Join(v.what, ", "))
		}
		if v.what == nil && step.What != "" {
			return fmt.Errorf("steps[%d]: %s takes no what", i, step.Do)
		}
	}
	return nil
}
