package accel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is an AcceleratorPolicy of a cluster: what it asks of the nodes that it selects. Nodes act on it by
// themselves; the controller says when.
type Policy struct {
	Name string `json:"name"`
	// Created decides between policies of one priority.
	Created time.Time  `json:"created"`
	Spec    PolicySpec `json:"spec"`
	// Named are the definitions of DefinitionsFrom, as the controller has last found them well.
	Named []NamedDefinition `json:"named,omitempty"`
}

// PolicySpec is what people write.
type PolicySpec struct {
	// NodeSelector are labels that a node must have; none selects every node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Priority decides which of several policies holds for a kind on a node: the higher one, of equals the older one.
	Priority int `json:"priority,omitempty"`
	// Kinds overrides definitions, by kind. The policy holds for the kinds named here, also with nothing to override.
	Kinds map[string]KindConfig `json:"kinds,omitempty"`
	// Definitions are definitions of kinds, whole, as a file in definitions.d has them. A node's own file of a kind
	// wins.
	Definitions []json.RawMessage `json:"definitions,omitempty"`
	// DefinitionsFrom names definitions that are in config maps. The controller reads them; those of Definitions go
	// before them.
	DefinitionsFrom []DefinitionSource `json:"definitionsFrom,omitempty"`
	// Upgrade orders the upgrades of the drivers of Kinds; without it each node replaces its driver when it can.
	Upgrade *Rollout `json:"upgrade,omitempty"`
	// Partition keeps pods without accelerators away from nodes that have some, or lets them be preempted.
	Partition *Partition `json:"partition,omitempty"`
	// Validation runs pods that compute on the accelerators of a node when its driver has become another one.
	Validation *Validation `json:"validation,omitempty"`
	// DryRun changes nothing: the status says what would change.
	DryRun bool `json:"dryRun,omitempty"`
}

// DefinitionSource names a config map in the namespace of the agents.
type DefinitionSource struct {
	ConfigMap string `json:"configMap"`
	// Key is the one that holds the definition; empty: each key that ends with ".yaml" holds one.
	Key string `json:"key,omitempty"`
}

// NamedDefinition is a definition that was found by name, as it was written.
type NamedDefinition struct {
	Name string `json:"name"` // "<config map>/<key>"
	Text string `json:"text"`
}

// DefinitionsAnnotation is the annotation of a policy that changes with its named definitions: who follows the metadata
// alone reads the policy again then.
const DefinitionsAnnotation = "acceld.dev/definitions"

// Rollout are the limits within which nodes replace their drivers.
type Rollout struct {
	// MaxParallel is how many nodes may be at it at a time; 1 when 0.
	MaxParallel int `json:"maxParallel,omitempty"`
	// MaxUnavailable is how many nodes may be without accelerators at a time, whatever the cause, such as 3 or "25%",
	// of which the whole part counts and at least 1; no limit of its own when empty.
	MaxUnavailable Portion `json:"maxUnavailable,omitempty"`
	// StopAfter is how many nodes may fail before no other one begins; 1 when 0.
	StopAfter int `json:"stopAfter,omitempty"`
	// Timeout is how long a node may take before it counts as failed, such as "1h"; empty is no limit.
	Timeout string `json:"timeout,omitempty"`
	// Windows are the times in which nodes may begin; none is always.
	Windows []RolloutWindow `json:"windows,omitempty"`
	// Canary are nodes that come before all others.
	Canary *Canary `json:"canary,omitempty"`
	// Paused lets no other node begin.
	Paused bool `json:"paused,omitempty"`
	// Cordon keeps new pods from a node while it is at it.
	Cordon bool `json:"cordon,omitempty"`
	// Drain evicts the node's pods before, which implies Cordon.
	Drain *Drain `json:"drain,omitempty"`
	// SkipLabels are keys of labels; a node that has one of them as "true" is left out.
	SkipLabels []string `json:"skipLabels,omitempty"`
}

// RolloutWindow is a time of the day on some days of the week.
type RolloutWindow struct {
	// Days are "Mon" to "Sun"; none is every day.
	Days []string `json:"days,omitempty"`
	// From and To are times of the day such as "22:00"; with To not after From the window ends on the next day.
	From string `json:"from"`
	To   string `json:"to"`
	// TimeZone is a name of the time zone database such as "Europe/Berlin"; UTC when empty.
	TimeZone string `json:"timeZone,omitempty"`
}

// Canary selects the nodes that come first.
type Canary struct {
	NodeSelector map[string]string `json:"nodeSelector"`
}

// Drain says which pods leave a node before its driver is replaced. Pods of DaemonSets and static pods stay, and
// disruption budgets are heeded for as long as it takes.
type Drain struct {
	// PodSelector are labels of the pods to evict; none is all.
	PodSelector map[string]string `json:"podSelector,omitempty"`
	// WaitFor are labels of pods, such as those of jobs, that may end by themselves; none is nobody.
	WaitFor map[string]string `json:"waitFor,omitempty"`
	// WaitTimeout is how long those are waited for before they are evicted too, such as "12h"; empty is no limit.
	WaitTimeout string `json:"waitTimeout,omitempty"`
}

// Partition separates pods that use accelerators from others on the nodes of a policy that have a kind of it.
type Partition struct {
	// Taints are put on the nodes: pods that do not tolerate them go elsewhere.
	Taints []Taint `json:"taints,omitempty"`
	// PriorityClasses are made: pods of the high one preempt those of the low one.
	PriorityClasses *PriorityClasses `json:"priorityClasses,omitempty"`
}

// Validation proves nodes by pods, as workloads would run on them.
type Validation struct {
	// Workloads are what runs, by kind.
	Workloads map[string]Workload `json:"workloads"`
	// MaxParallel is how many nodes are validated at a time; 4 when 0.
	MaxParallel int `json:"maxParallel,omitempty"`
	// Timeout is how long a pod may take, such as "5m", which it is when empty.
	Timeout string `json:"timeout,omitempty"`
}

// Workload is a program that ends well when it could compute on an accelerator.
type Workload struct {
	Image   string   `json:"image"`
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Resource is the extended resource of which the pod asks for one.
	Resource string `json:"resource"`
	// Alone runs it first in a privileged pod that asks for none, while no device of the node is in use: what fails
	// there is the driver.
	Alone bool `json:"alone,omitempty"`
}

// Taint is a taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"` // NoSchedule, PreferNoSchedule or NoExecute
}

// PriorityClasses are two classes of priority.
type PriorityClasses struct {
	High PriorityClass `json:"high"`
	Low  PriorityClass `json:"low"`
}

// PriorityClass is one of them.
type PriorityClass struct {
	Name  string `json:"name"`
	Value int32  `json:"value"`
}

// Portion is a number such as "3" or a share such as "25%"; empty is none.
type Portion string

// UnmarshalJSON takes numbers too.
func (s *Portion) UnmarshalJSON(b []byte) error {
	var n int
	if json.Unmarshal(b, &n) == nil {
		*s = Portion(strconv.Itoa(n))
		return nil
	}
	return json.Unmarshal(b, (*string)(s))
}

// Of is the share of total: the whole part of it and at least 1; 0 for an empty one, and for one that says nothing.
func (s Portion) Of(total int) int {
	percent, share := strings.CutSuffix(string(s), "%")
	n, err := strconv.Atoi(percent)
	switch {
	case err != nil || n <= 0:
		return 0
	case share:
		return max(1, total*min(n, 100)/100)
	}
	return n
}

// Selects reports whether labels are those of a node that the policy selects.
func (s PolicySpec) Selects(labels map[string]string) bool { return Has(labels, s.NodeSelector) }

// Has reports whether labels have every one of selector.
func Has(labels, selector map[string]string) bool {
	for key, value := range selector {
		if have, there := labels[key]; !there || have != value {
			return false
		}
	}
	return true
}

// PolicyConflict is a kind for which a policy does not hold on a node because another one does that is not of a higher
// priority: nobody decided between the two.
type PolicyConflict struct {
	Kind          string
	Policy, Other string
}

// Governing says which policy holds for which kind on a node with labels: of those that select the node and name the
// kind the one with the highest priority, of equals the oldest, and of those by name. Dry runs hold for nothing.
func Governing(policies []Policy, labels map[string]string) (by map[string]*Policy, conflicts []PolicyConflict) {
	by = map[string]*Policy{}
	for _, p := range Precedence(policies) {
		if p.Spec.DryRun || !p.Spec.Selects(labels) {
			continue
		}
		for _, kind := range slices.Sorted(maps.Keys(p.Spec.Kinds)) {
			switch first := by[kind]; {
			case first == nil:
				by[kind] = p
			case first.Spec.Priority == p.Spec.Priority:
				conflicts = append(conflicts, PolicyConflict{Kind: kind, Policy: p.Name, Other: first.Name})
			}
		}
	}
	return by, conflicts
}

// Precedence returns the policies with the one that goes before all others first.
func Precedence(policies []Policy) []*Policy {
	sorted := make([]*Policy, len(policies))
	for i := range policies {
		sorted[i] = &policies[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.Created.Compare(b.Created),
			cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// Problems returns what is wrong with a policy, each as "<field>: <sentence>". The API server refuses most of it
// already.
func (s PolicySpec) Problems() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
		for _, text := range s.Kinds[kind].Problems() {
			out = append(out, "kinds."+kind+"."+text)
		}
	}
	if s.Upgrade != nil {
		for _, text := range s.Upgrade.problems() {
			out = append(out, "upgrade."+text)
		}
	}
	if s.Partition != nil {
		for i, t := range s.Partition.Taints {
			if !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect) || t.Key == "" {
				out = append(out, fmt.Sprintf("partition.taints[%d]: key %q with effect %q is no taint", i, t.Key,
					t.Effect))
			}
		}
		if c := s.Partition.PriorityClasses; c != nil && c.High.Value <= c.Low.Value {
			out = append(out, fmt.Sprintf("partition.priorityClasses: %d of high is not more than %d of low",
				c.High.Value, c.Low.Value))
		}
	}
	if s.Validation != nil {
		for _, text := range s.Validation.problems(s.Kinds) {
			out = append(out, "validation."+text)
		}
	}
	return out
}

func (r Rollout) problems() []string {
	var out []string
	if r.MaxUnavailable != "" && r.MaxUnavailable.Of(100) == 0 {
		out = append(out, fmt.Sprintf("maxUnavailable: %q is neither a number of at least 1 nor a share such as 25%%",
			r.MaxUnavailable))
	}
	for _, d := range []struct{ field, text string }{
		{"timeout", r.Timeout},
		{"drain.waitTimeout", r.drain().WaitTimeout},
	} {
		if v, err := time.ParseDuration(d.text); d.text != "" && (err != nil || v <= 0) {
			out = append(out, fmt.Sprintf("%s: %q is not a time such as 1h", d.field, d.text))
		}
	}
	for i, w := range r.Windows {
		for _, text := range w.problems() {
			out = append(out, fmt.Sprintf("windows[%d].%s", i, text))
		}
	}
	return out
}

func (r Rollout) drain() Drain {
	if r.Drain == nil {
		return Drain{}
	}
	return *r.Drain
}

func (w RolloutWindow) problems() []string {
	var out []string
	for _, d := range w.Days {
		if _, ok := Weekday(d); !ok {
			out = append(out, fmt.Sprintf("days: %q is not one of Mon, Tue, Wed, Thu, Fri, Sat, Sun", d))
		}
	}
	for _, c := range []struct{ field, text string }{{"from", w.From}, {"to", w.To}} {
		if _, ok := TimeOfDay(c.text); !ok {
			out = append(out, fmt.Sprintf("%s: %q is not a time of the day such as 22:00", c.field, c.text))
		}
	}
	return out
}

// Weekday reads "Mon" to "Sun".
func Weekday(name string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if d.String()[:3] == name {
			return d, true
		}
	}
	return 0, false
}

// TimeOfDay reads a time such as "22:00" as the time since midnight.
func TimeOfDay(text string) (time.Duration, bool) {
	t, err := time.Parse("15:04", text)
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err == nil
}
