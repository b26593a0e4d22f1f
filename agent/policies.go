package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Policies are the policies of the cluster and the node labels that select among them, as last received. They are
// kept in the state directory, so that an agent without an API server continues with the last ones. Only
// [ReadPolicies] reads that file.
type Policies struct {
	// Labels are the labels of the node.
	Labels map[string]string `json:"labels,omitempty"`
	All    []accel.Policy    `json:"policies"`
}

func policiesFile(stateDir string) string { return path.Join(stateDir, "policies.json") }

// ReadPolicies returns the policies that were kept. known is false if there are none, or none that can be read.
func ReadPolicies(h *host.Host, stateDir string) (p Policies, known bool, problem *accel.Problem) {
	name := policiesFile(stateDir)
	b, err := h.ReadFile(name)
	// a caller without permission does not act on them either
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return Policies{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return Policies{}, false, accel.Problemf(accel.ReasonForError(err, accel.PolicyInvalid),
			"cannot use the policies kept in %q: %v", name, err)
	}
	return p, true, nil
}

// Keep writes p for [ReadPolicies].
func (p Policies) Keep(h *host.Host, stateDir string) *accel.Problem {
	p.Labels = p.selecting()
	b, err := json.Marshal(p)
	if err == nil {
		err = h.MkdirAll(stateDir, 0o755)
	}
	if err == nil {
		err = h.WriteFile(policiesFile(stateDir), b, 0o600)
	}
	if err != nil {
		return accel.Problemf(accel.ReasonForError(err, accel.InternalError),
			"cannot keep the policies of the cluster: %v", err)
	}
	return nil
}

// Equal reports whether p and q mean the same for the node.
func (p Policies) Equal(q Policies) bool {
	a, errA := json.Marshal(Policies{p.selecting(), p.All})
	b, errB := json.Marshal(Policies{q.selecting(), q.All})
	return errA == nil && errB == nil && string(a) == string(b)
}

// selecting returns the node's labels that a policy selects by. Other labels come and go and change nothing.
func (p Policies) selecting() map[string]string {
	asked := map[string]string{}
	for _, x := range p.All {
		for key := range x.Spec.NodeSelector {
			if value, there := p.Labels[key]; there {
				asked[key] = value
			}
		}
	}
	return asked
}

// policyDefinition is a definition of a policy as it was written, with a name for messages.
type policyDefinition struct {
	accel.NamedDefinition
	// Pinned means that the policy itself decides the text. Why says why it is not taken; empty if it is.
	Pinned bool
	Why    string
}

// definitions returns the definitions of the policies that select the node. The policy with the highest precedence
// comes last.
func (p Policies) definitions() []policyDefinition {
	var all []policyDefinition
	for _, x := range slices.Backward(accel.Precedence(p.All)) {
		if x.Spec.DryRun || !x.Spec.Selects(p.Labels) {
			continue
		}
		for _, named := range x.Named {
			if !x.Spec.Names(named.Name) {
				continue // no longer
			}
			pinned, why := x.Spec.Pins(named)
			named.Name = fmt.Sprintf("the policy %q: definition %q", x.Name, named.Name)
			all = append(all, policyDefinition{named, pinned, why})
		}
		for i, raw := range x.Spec.Definitions {
			name := fmt.Sprintf("the policy %q: definitions[%d]", x.Name, i)
			all = append(all, policyDefinition{accel.NamedDefinition{Name: name, Text: string(raw)}, true, ""})
		}
	}
	return all
}

// Apply returns the definitions with the policies' overrides, as far as the host trusts policies. If a policy cannot
// be used for a kind, Apply leaves it out for that kind and returns a problem.
func (p Policies) Apply(defs map[string]*accel.Definition, trust accel.PolicyTrust) (
	map[string]*accel.Definition, []*accel.Problem,
) {
	out := maps.Clone(defs)
	var problems []*accel.Problem
	by, _ := accel.Governing(p.All, p.Labels)
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		k := by[kind].Spec.Kinds[kind]
		if out[kind] == nil {
			continue // not every node has every kind of the cluster
		}
		if why := trust.Override(k); why != "" {
			problems = append(problems,
				accel.Problemf(accel.PolicyRefused, "the policy %q: kinds.%s: %s", by[kind].Name, kind, why))
			continue
		}
		d, misfit := k.Apply(out[kind])
		if texts := k.Problems(); len(texts) > 0 {
			misfit = texts[0]
		}
		if misfit != "" {
			problems = append(problems,
				accel.Problemf(accel.PolicyInvalid, "the policy %q: kinds.%s.%s", by[kind].Name, kind, misfit))
			continue
		}
		out[kind] = d
	}
	return out, problems
}

// InCluster returns the kinds whose devices have their history kept in the cluster, sorted.
func (p Policies) InCluster() (kinds []string) {
	by, _ := accel.Governing(p.All, p.Labels)
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		if by[kind].Spec.History != nil {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Order returns the definitions with the name of the policy that orders their upgrades, and what it asks of the driver.
// Call it after all overrides.
func (p Policies) Order(defs map[string]*accel.Definition) map[string]*accel.Definition {
	by, _ := accel.Governing(p.All, p.Labels)
	out := maps.Clone(defs)
	for kind, policy := range by {
		if out[kind] == nil {
			continue
		}
		if policy.Spec.Repair != nil && out[kind].Repair != nil {
			d, r := *out[kind], *out[kind].Repair
			r.By, d.Repair, out[kind] = policy.Name, &r, &d
		}
		if policy.Spec.Upgrade == nil {
			continue
		}
		d := *out[kind]
		d.Driver.Upgrade.By = policy.Name
		k := policy.Spec.Kinds[kind]
		if _, misfit := k.Apply(out[kind]); misfit == "" && len(k.Problems()) == 0 {
			d.Driver.Upgrade.Digest = policy.DriverDigest(kind)
		}
		out[kind] = &d
	}
	return out
}
