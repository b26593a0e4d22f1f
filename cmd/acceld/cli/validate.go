package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/vendors"
	"github.com/acceld/acceld/yamlfile"
)

func validateCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE...", Short: "Check configurations, policies, Helm values and definitions before you use them",
		Long: `validate reads files as those who use them do, and reports every error in them, one per line: file, line, field, what is
wrong, what to write. It tells by its content whether a file is a configuration of the agent, an AcceleratorPolicy, the
values of the Helm chart, of which it checks agent.config, or a definition. FILE may be "-" for standard input. Nothing
is changed. acceld-controller --check checks the configuration of the controller.`,
		Args: takes(1, many, "name the files"),
		RunE: func(cmd *cobra.Command, files []string) error {
			unread := *c
			unread.config, unread.asked = "", false // an invalid file must not keep others from being checked
			p, problem := unread.open(cmd)
			if problem != nil {
				return failed(problem)
			}
			known, _, problem := p.Definitions()
			if problem != nil {
				return failed(problem)
			}
			v := validation{
				out: p.out, facts: p.facts(), known: known, from: map[string]string{},
				text: map[string][]byte{},
			}
			for _, file := range files {
				data, err := readNamed(p.in, file)
				if err != nil {
					v.say(file, vendors.Fault{Message: err.Error()})
					continue
				}
				v.any(file, data)
			}
			v.together()
			if v.faults > 0 {
				return exit{exitFailed, fmt.Errorf("%s in %s", count(v.faults, "error"), count(len(files), "file"))}
			}
			for _, kind := range sorted(v.from) {
				v.valid = append(v.valid, fmt.Sprintf("%s: definition %s is valid", v.from[kind], kind))
			}
			for _, text := range v.valid {
				fmt.Fprintln(p.out, text)
			}
			return nil
		},
	}
}

// any checks a file of any kind.
func (v *validation) any(file string, data []byte) {
	documents, faults := yamlfile.Documents(data)
	switch {
	case len(faults) > 0:
		v.print(file, faults)
	case len(documents) == 0:
		v.valid = append(v.valid, file+": it is empty, so every default holds")
	case slices.ContainsFunc(documents, func(d yamlfile.Document) bool {
		return d.Text("apiVersion") != "" || d.Text("kind") != "" && len(d.Keys()) > 0 && slices.Contains(d.Keys(), "spec")
	}):
		v.policies(file, documents)
	case len(documents) == 1 && isDefinition(documents[0]):
		v.file(file, data)
	case len(documents) > 1:
		_, _, faults := yamlfile.One(data)
		v.print(file, faults)
	case isValues(documents[0]):
		v.values(file, documents[0])
	default:
		v.config(file, "", documents[0], "configuration")
	}
}

// print prints faults that have their lines.
func (v *validation) print(file string, faults []yamlfile.Fault) {
	for _, f := range faults {
		v.faults++
		where := file
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", file, f.Line)
		}
		fmt.Fprintf(v.out, "%s: %s\n", where, plain(f.String()))
	}
}

// isDefinition tells a definition by fields that nothing else has.
func isDefinition(d yamlfile.Document) bool {
	return slices.ContainsFunc(d.Keys(), func(key string) bool {
		return slices.Contains([]string{"kind", "match", "driver", "nodes", "health", "metrics"}, key)
	})
}

// chartValues are the values of the Helm chart.
type chartValues struct {
	Global           any `json:"global,omitempty"`
	Registry         any `json:"registry,omitempty"`
	ImagePullSecrets any `json:"imagePullSecrets,omitempty"`
	Agent            struct {
		Image          any              `json:"image,omitempty"`
		Config         agent.ConfigFile `json:"config,omitzero"`
		NodeSelector   any              `json:"nodeSelector,omitempty"`
		Affinity       any              `json:"affinity,omitempty"`
		Tolerations    any              `json:"tolerations,omitempty"`
		PodAnnotations any              `json:"podAnnotations,omitempty"`
		LabelDomains   any              `json:"labelDomains,omitempty"`
		Resources      any              `json:"resources,omitempty"`
		UpdateStrategy any              `json:"updateStrategy,omitempty"`
		Proxy          any              `json:"proxy,omitempty"`
		Env            any              `json:"env,omitempty"`
	} `json:"agent,omitzero"`
	Controller any `json:"controller,omitempty"`
	Confine    any `json:"confine,omitempty"`
	Binding    any `json:"binding,omitempty"`
	DRA        any `json:"dra,omitempty"`
	Evict      any `json:"evict,omitempty"`
	Topology   any `json:"topology,omitempty"`
	Monitoring any `json:"monitoring,omitempty"`
	OpenShift  any `json:"openshift,omitempty"`
	Removal    any `json:"removal,omitempty"`
}

// isValues tells values by fields that a configuration does not have.
func isValues(d yamlfile.Document) bool {
	return slices.ContainsFunc(d.Keys(), func(key string) bool {
		return slices.Contains([]string{"agent", "controller", "registry", "monitoring", "imagePullSecrets"}, key)
	})
}

func (v *validation) values(file string, d yamlfile.Document) {
	var values chartValues
	if _, faults := d.Read(&values); len(faults) > 0 {
		v.print(file, faults)
		return
	}
	config, there := d.Below("agent", "config")
	if !there {
		v.valid = append(v.valid, file+": the values set no agent.config")
		return
	}
	v.config(file, "agent.config.", config, "agent.config of the values")
}

// config checks a configuration of the agent.
func (v *validation) config(file, prefix string, d yamlfile.Document, what string) {
	c, faults := agent.CheckConfig(d)
	if len(faults) == 0 {
		if _, problem := c.Override(v.known); problem != nil {
			faults = c.Places.Locate([]yamlfile.Fault{yamlfile.FaultOf(problem.Message)})
		}
	}
	for i := range faults {
		if faults[i].Field = prefix + faults[i].Field; faults[i].Field == prefix {
			faults[i].Field = strings.TrimSuffix(prefix, ".")
		}
	}
	v.print(file, faults)
	if len(faults) == 0 {
		v.valid = append(v.valid, fmt.Sprintf("%s: %s is valid", file, what))
	}
}

// policyFile is an AcceleratorPolicy as people write it.
type policyFile struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   any              `json:"metadata"`
	Spec       accel.PolicySpec `json:"spec"`
	Status     any              `json:"status,omitempty"`
}

// policies checks the AcceleratorPolicies of a file; other objects are not looked at.
func (v *validation) policies(file string, documents []yamlfile.Document) {
	found := 0
	for _, d := range documents {
		kind := d.Text("kind")
		if near := accel.Nearest(kind, []string{kube.PolicyKind}); near == "" && kind != kube.PolicyKind {
			continue
		}
		found++
		faults := v.policy(d)
		v.print(file, faults)
		if len(faults) == 0 {
			name := ""
			if meta, ok := d.Below("metadata"); ok {
				name = meta.Text("name")
			}
			v.valid = append(v.valid, fmt.Sprintf("%s: policy %s is valid", file, name))
		}
	}
	if found == 0 {
		v.print(file, []yamlfile.Fault{{Message: "there is no " + kube.PolicyKind + " in it"}})
	}
}

// policy returns what is wrong with one policy.
func (v *validation) policy(d yamlfile.Document) []yamlfile.Fault {
	var p policyFile
	places, faults := d.Read(&p)
	if len(faults) > 0 {
		return faults
	}
	add := func(field, text string) {
		faults = append(faults, yamlfile.Fault{Field: field, Message: text})
	}
	if text := accel.NotOneOf(p.Kind, kube.PolicyKind); text != "" {
		add("kind", text)
	}
	if text := accel.NotOneOf(p.APIVersion, kube.PolicyVersion); text != "" {
		add("apiVersion", text)
	}
	for _, text := range p.Spec.Problems() {
		f := yamlfile.FaultOf(text)
		add("spec."+f.Field, f.Message)
	}
	known := maps.Clone(v.known)
	for i, raw := range p.Spec.Definitions {
		var def accel.Definition
		if err := json.Unmarshal(raw, &def); err != nil {
			add(fmt.Sprintf("spec.definitions[%d]", i), err.Error())
			continue
		}
		for _, f := range vendors.Check(&def) {
			add(fmt.Sprintf("spec.definitions[%d].%s", i, f.Field), f.Message)
		}
		known[def.Kind] = &def
	}
	for _, kind := range sorted(p.Spec.Kinds) {
		def := known[kind]
		switch {
		case def == nil && len(p.Spec.DefinitionsFrom) > 0: // it may be in a config map
		case def == nil:
			names := sorted(known)
			add("spec.kinds."+kind, fmt.Sprintf("no definition has this kind (known: %s)%s", strings.Join(names, ", "),
				accel.DidYouMean(kind, names)))
		default:
			if _, misfit := p.Spec.Kinds[kind].Apply(def); misfit != "" {
				f := yamlfile.FaultOf(misfit)
				add("spec.kinds."+kind+"."+f.Field, f.Message)
			}
		}
	}
	return places.Locate(faults)
}
