package accel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is an AcceleratorPolicy of a cluster: the configuration for the nodes that it selects. Nodes apply it
// themselves; the controller decides when.
type Policy struct {
	Name string `json:"name"`
	// Created breaks ties between policies of the same priority.
	Created time.Time  `json:"created"`
	Spec    PolicySpec `json:"spec"`
	// Named holds the definitions of DefinitionsFrom, in the last valid version that the controller found.
	Named []NamedDefinition `json:"named,omitempty"`
}

// PolicySpec is what users write.
type PolicySpec struct {
	// NodeSelector lists labels that a node must have; empty selects every node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Priority decides which of several policies applies to a kind on a node: the highest one, and of equals the
	// oldest.
	Priority int `json:"priority,omitempty"`
	// Kinds overrides definitions, by kind. The policy applies to every kind named here, even one without overrides.
	Kinds map[string]KindConfig `json:"kinds,omitempty"`
	// Definitions are complete definitions of kinds, in the format of a file in definitions.d. A node's own file for
	// a kind takes precedence.
	Definitions []json.RawMessage `json:"definitions,omitempty"`
	// DefinitionsFrom names definitions in config maps. The controller reads them; those in Definitions take
	// precedence.
	DefinitionsFrom []DefinitionSource `json:"definitionsFrom,omitempty"`
	// Upgrade orders the driver upgrades of Kinds; without it each node replaces its driver when it can.
	Upgrade *Rollout `json:"upgrade,omitempty"`
	// Partition keeps pods without accelerators off nodes that have accelerators, or makes them preemptible.
	Partition *Partition `json:"partition,omitempty"`
	// Validation runs pods that compute on a node's accelerators after its driver has changed.
	Validation *Validation `json:"validation,omitempty"`
	// Repair limits how nodes repair devices of Kinds; without it each node repairs as its definitions say.
	Repair *RepairBudget `json:"repair,omitempty"`
	// History keeps what devices of Kinds have been through in the cluster; without it only hosts do.
	History *DeviceHistory `json:"history,omitempty"`
	// DryRun changes nothing; the status says what would change.
	DryRun bool `json:"dryRun,omitempty"`
}

// DefinitionSource names a config map in the namespace of the agents.
type DefinitionSource struct {
	// ConfigMap is the name of the config map.
	ConfigMap string `json:"configMap"`
	// Key is the key that holds the definition. If it is empty, every key that ends with ".yaml" holds one.
	Key string `json:"key,omitempty"`
	// Digest pins the text of the key: "sha256:" and 64 hexadecimal digits. Nodes take no other text, whoever writes
	// it into the status of the policy.
	Digest string `json:"digest,omitempty"`
}

// names reports whether the source names the definition.
func (f DefinitionSource) names(definition string) bool {
	of, key, _ := strings.Cut(definition, "/")
	return of == f.ConfigMap && (f.Key == key || f.Key == "")
}

// Refuses says why the text of a named definition is not what the source names; empty if it is, as far as can be
// known.
func (f DefinitionSource) Refuses(n NamedDefinition) string {
	sum := sha256.Sum256([]byte(n.Text))
	if is := "sha256:" + hex.EncodeToString(sum[:]); f.Digest != "" && f.Digest != is {
		return fmt.Sprintf("it has the digest %s, and the policy pins %s", is, f.Digest)
	}
	return ""
}

// Names reports whether the policy names a definition, "<config map>/<key>".
func (s PolicySpec) Names(definition string) bool {
	return slices.ContainsFunc(s.DefinitionsFrom, func(f DefinitionSource) bool { return f.names(definition) })
}

// Pins reports whether the policy itself decides the text of a definition that it names, or says why the text cannot be
// the one that it means. If several sources name the definition, each of them must accept it.
func (s PolicySpec) Pins(n NamedDefinition) (pinned bool, why string) {
	for _, f := range s.DefinitionsFrom {
		if !f.names(n.Name) {
			continue
		}
		if why = f.Refuses(n); why != "" {
			return false, why
		}
		pinned = pinned || f.Digest != ""
	}
	return pinned, ""
}

// Settled reports whether the named definitions have the text that the policy pins. After a digest has changed, they
// do not until the controller has copied the new text.
func (p Policy) Settled() bool {
	return !slices.ContainsFunc(p.Named, func(n NamedDefinition) bool {
		_, why := p.Spec.Pins(n)
		return why != ""
	})
}

// NamedDefinition is a definition that was found by name, in its original text.
type NamedDefinition struct {
	Name string `json:"name"` // "<config map>/<key>"
	// Text is the definition, in YAML or JSON.
	Text string `json:"text"`
}

// DefinitionsAnnotation is an annotation of a policy that changes with its named definitions, so that a client that
// watches only metadata knows when to read the policy again.
const DefinitionsAnnotation = "acceld.dev/definitions"

// Rollout limits how nodes replace their drivers.
type Rollout struct {
	// MaxParallel is how many nodes may upgrade at a time; 0 means 1.
	MaxParallel int `json:"maxParallel,omitempty"`
	// MaxUnavailable is how many nodes may be without accelerators at a time, whatever the cause, such as 3 or "25%".
	// A share is rounded down, but is at least 1. Empty sets no such limit.
	MaxUnavailable Portion `json:"maxUnavailable,omitempty"`
	// StopAfter is how many nodes may fail before no further node begins; 0 means 1.
	StopAfter int `json:"stopAfter,omitempty"`
	// Timeout is how long a node may take before it counts as failed, such as "1h"; empty means no limit.
	Timeout string `json:"timeout,omitempty" form:"duration"`
	// Windows are the times in which nodes may begin; empty means always.
	Windows []RolloutWindow `json:"windows,omitempty"`
	// Canary selects nodes that upgrade before all others.
	Canary *Canary `json:"canary,omitempty"`
	// Paused keeps further nodes from beginning.
	Paused bool `json:"paused,omitempty"`
	// Cordon keeps new pods off a node during its upgrade.
	Cordon bool `json:"cordon,omitempty"`
	// Drain evicts the node's pods before the upgrade, and implies Cordon.
	Drain *Drain `json:"drain,omitempty"`
	// SkipLabels are label keys; a node on which one of them is "true" is left out.
	SkipLabels []string `json:"skipLabels,omitempty"`
}

// RolloutWindow is a time range on some days of the week.
type RolloutWindow struct {
	// Days are "Mon" to "Sun"; empty means every day.
	Days []string `json:"days,omitempty"`
	// From and To are times of day such as "22:00". If To is not after From, the window ends on the next day.
	From string `json:"from"`
	To   string `json:"to"`
	// TimeZone is a name from the time zone database such as "Europe/Berlin"; UTC when empty.
	TimeZone string `json:"timeZone,omitempty"`
}

// Canary selects the nodes that upgrade first.
type Canary struct {
	// NodeSelector lists labels of the nodes that upgrade first.
	NodeSelector map[string]string `json:"nodeSelector"`
}

// Drain says which pods leave a node before its driver is replaced. Pods of DaemonSets and static pods stay.
// Disruption budgets are respected for as long as that takes.
type Drain struct {
	// PodSelector lists labels of the pods to evict; empty means all pods.
	PodSelector map[string]string `json:"podSelector,omitempty"`
	// WaitFor lists labels of pods that may end by themselves, such as those of jobs; empty means none.
	WaitFor map[string]string `json:"waitFor,omitempty"`
	// WaitTimeout is how long to wait for them before they are evicted too, such as "12h"; empty means no limit.
	WaitTimeout string `json:"waitTimeout,omitempty" form:"duration"`
}

// Partition separates pods that use accelerators from others, on the nodes of a policy that have one of its kinds.
type Partition struct {
	// Taints are set on the nodes, so that pods that do not tolerate them go elsewhere.
	Taints []Taint `json:"taints,omitempty"`
	// PriorityClasses are created: pods of the high class preempt pods of the low one.
	PriorityClasses *PriorityClasses `json:"priorityClasses,omitempty"`
}

// Validation tests nodes with pods, under the same conditions as workloads.
type Validation struct {
	// Workloads are what to run, by kind.
	Workloads map[string]Workload `json:"workloads"`
	// MaxParallel is how many nodes are validated at a time; 0 means 4.
	MaxParallel int `json:"maxParallel,omitempty"`
	// Timeout is how long a pod may take; "5m" when empty.
	Timeout string `json:"timeout,omitempty" form:"duration"`
}

// Workload is a program that exits with 0 if it could compute on an accelerator.
type Workload struct {
	// Image is the image of the pod.
	Image string `json:"image"`
	// Command replaces the image's entry point.
	Command []string `json:"command,omitempty"`
	// Args replace the image's arguments.
	Args []string `json:"args,omitempty"`
	// Resource is the extended resource that the pod requests one of.
	Resource string `json:"resource"`
	// Alone runs it first in a privileged pod that requests no accelerator, while no device of the node is in use: a
	// failure there is a failure of the driver.
	Alone bool `json:"alone,omitempty"`
}

// Taint is a taint of a node.
type Taint struct {
	// Key is the key of the taint.
	Key string `json:"key"`
	// Value is the value of the taint.
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"` // NoSchedule, PreferNoSchedule or NoExecute
}

// PriorityClasses are Kubernetes priority classes.
type PriorityClasses struct {
	// High is the class of pods with accelerators.
	High PriorityClass `json:"high"`
	// Low is the class of pods without.
	Low PriorityClass `json:"low"`
	// Others are further classes, for a cluster that needs more than two.
	Others []PriorityClass `json:"others,omitempty"`
}

// All returns the classes: high, low, and the others in their order.
func (c *PriorityClasses) All() []PriorityClass {
	return append([]PriorityClass{c.High, c.Low}, c.Others...)
}

// problems returns what is wrong with the classes, each to be put after the name of their field.
func (c *PriorityClasses) problems() []string {
	var out []string
	if c.High.Value <= c.Low.Value {
		out = append(out, fmt.Sprintf(": %d of high is not more than %d of low", c.High.Value, c.Low.Value))
	}
	seen := map[string]bool{c.High.Name: true, c.Low.Name: true}
	for i, x := range c.Others {
		if x.Name == "" || seen[x.Name] {
			out = append(out, fmt.Sprintf(".others[%d].name: %q is empty, or the name of another class", i, x.Name))
		}
		seen[x.Name] = true
	}
	return out
}

// PriorityClass is one of them: its name and value.
type PriorityClass struct {
	// Name is the name of the class.
	Name string `json:"name"`
	// Value is its value: pods with a higher one preempt others.
	Value int32 `json:"value"`
}

// Portion is a number such as "3" or a share such as "25%"; empty sets none.
type Portion string

// UnmarshalJSON accepts numbers too.
func (s *Portion) UnmarshalJSON(b []byte) error {
	var n int
	if json.Unmarshal(b, &n) == nil {
		*s = Portion(strconv.Itoa(n))
		return nil
	}
	return json.Unmarshal(b, (*string)(s))
}

// Of returns the portion of total: a share is rounded down, but is at least 1. It is 0 for an empty or invalid
// portion.
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

// Selects reports whether the policy selects a node with these labels.
func (s PolicySpec) Selects(labels map[string]string) bool { return Has(labels, s.NodeSelector) }

// DriverDigest identifies what the policy asks of the driver of a kind. It changes with a version, a source, a
// parameter or a definition of the policy, and not with limits, taints or the way in which devices are offered.
func (p Policy) DriverDigest(kind string) string {
	asked := struct {
		Driver      KindDriverOverride
		Definitions []json.RawMessage
		Named       []NamedDefinition
	}{p.Spec.Kinds[kind].Driver, p.Spec.Definitions, p.Named}
	asked.Driver.Upgrade = nil
	b, err := json.Marshal(asked) // it also gives the definitions one form, wherever they were read from
	if err != nil {
		return "unreadable"
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Has reports whether labels contain all of selector.
func Has(labels, selector map[string]string) bool {
	for key, value := range selector {
		if have, there := labels[key]; !there || have != value {
			return false
		}
	}
	return true
}

// PolicyConflict is a kind for which a policy does not apply on a node because of another policy with the same
// priority: the user has not decided between the two.
type PolicyConflict struct {
	Kind          string
	Policy, Other string
}

// Governing returns which policy applies to which kind on a node with these labels. Of the policies that select the
// node and name the kind, it is the one with the highest priority, of equals the oldest, and then the first by name.
// Dry runs never apply.
func Governing(policies []Policy, labels map[string]string) (by map[string]*Policy, conflicts []PolicyConflict) {
	return GoverningBy(policies, func(selector map[string]string) bool { return Has(labels, selector) })
}

// GoverningBy does the same for a node that says whether it has what a selector asks for.
func GoverningBy(policies []Policy, has func(selector map[string]string) bool) (by map[string]*Policy,
	conflicts []PolicyConflict,
) {
	by = map[string]*Policy{}
	for _, p := range Precedence(policies) {
		if p.Spec.DryRun || !has(p.Spec.NodeSelector) {
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

// Precedence returns the policies in order of precedence, the strongest first.
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

// Problems returns the errors in a policy, each as "<field>: <sentence>". The API server already rejects most of
// them.
func (s PolicySpec) Problems() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
		out = append(out, under("kinds."+kind+".", s.Kinds[kind].Problems())...)
		if s.Kinds[kind].Driver.Branch != "" {
			out = append(out, "kinds."+kind+".driver.branch: each host would choose its own version; set driver.version instead")
		}
	}
	if s.Upgrade != nil {
		out = append(out, under("upgrade.", s.Upgrade.problems())...)
	}
	if s.Repair != nil {
		out = append(out, under("repair.", s.Repair.problems())...)
	}
	if s.History != nil {
		out = append(out, under("history.", s.History.problems())...)
	}
	if s.Partition != nil {
		for i, t := range s.Partition.Taints {
			if text := NotOneOf(t.Effect, "NoSchedule", "PreferNoSchedule", "NoExecute"); text != "" {
				out = append(out, fmt.Sprintf("partition.taints[%d].effect: %s", i, text))
			}
			if t.Key == "" {
				out = append(out, fmt.Sprintf("partition.taints[%d].key: is missing: write a domain and a name", i))
			}
		}
		if c := s.Partition.PriorityClasses; c != nil {
			out = append(out, under("partition.priorityClasses", c.problems())...)
		}
	}
	if s.Validation != nil {
		out = append(out, under("validation.", s.Validation.problems(s.Kinds))...)
	}
	return out
}

func (r Rollout) problems() []string {
	var out []string
	if r.MaxUnavailable != "" && r.MaxUnavailable.Of(100) == 0 {
		out = append(out, fmt.Sprintf("maxUnavailable: %q is neither a number of at least 1 nor a share such as 25%%",
			r.MaxUnavailable))
	}
	out = append(out, durationProblem("timeout", r.Timeout, 1, "1h")...)
	if r.Drain != nil {
		out = append(out, durationProblem("drain.waitTimeout", r.Drain.WaitTimeout, 1, "1h")...)
	}
	for i, w := range r.Windows {
		out = append(out, under(fmt.Sprintf("windows[%d].", i), w.problems())...)
	}
	return out
}

func (w RolloutWindow) problems() []string {
	var out []string
	for _, d := range w.Days {
		if _, ok := Weekday(d); !ok {
			out = append(out, "days: "+NotOneOf(d, "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
		}
	}
	for _, c := range []struct{ field, text string }{{"from", w.From}, {"to", w.To}} {
		if _, ok := TimeOfDay(c.text); !ok {
			out = append(out, fmt.Sprintf("%s: %q is not a time of the day such as 22:00", c.field, c.text))
		}
	}
	return out
}

// Weekday parses "Mon" to "Sun".
func Weekday(name string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if d.String()[:3] == name {
			return d, true
		}
	}
	return 0, false
}

// TimeOfDay parses a time such as "22:00" into the time since midnight.
func TimeOfDay(text string) (time.Duration, bool) {
	t, err := time.Parse("15:04", text)
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err == nil
}
