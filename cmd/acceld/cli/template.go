package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/kube"
)

// templated are the flags of `acceld template`.
type templated struct {
	node, kubeconfig, name, arch string
	kinds, amounts               map[string]string
	labels, resources            map[string]string
	taints                       []string
}

func templateCommand(c *common) *cobra.Command {
	var format outputFormat
	var f templated
	cmd := &cobra.Command{
		Use: "template [FILE...]", Short: "Print what a node group will have, for autoscalers",
		Long: `template prints what each node of a group will have, so that an autoscaler can create the first one: annotations for
cluster-autoscaler with Cluster API, tags for its clouds, a node and its ResourceSlices.

The template is made from a ready node: from FILEs that kubectl printed (kubectl get node N -o yaml, kubectl get
resourceslices -o yaml; "-" is standard input), or from the API server with --node. Or it is made from definitions, with
--kind KIND=COUNT. It contains nothing that belongs to one node or one device alone. Nothing is changed.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			group, err := f.group(c, cmd, files)
			if err == nil {
				err = writeTemplate(cmd.OutOrStdout(), group, format.json())
			}
			if err != nil {
				return exit{exitFailed, err}
			}
			return nil
		},
	}
	format.flag(cmd, "yaml")
	flags := cmd.Flags()
	flags.StringVar(&f.node, "node", "", "the ready node to read from the API server")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig for --node; empty: the pod's service account")
	flags.StringVar(&f.name, "name", "template", "the name that stands for the nodes of the group")
	flags.StringToStringVar(&f.kinds, "kind", nil, "how many devices of a `KIND=COUNT` a node has")
	flags.StringToStringVar(&f.amounts, "amount", nil,
		"with --kind: how much a device has that only the device says, such as `KIND.memory=80Gi`")
	flags.StringToStringVar(&f.resources, "resource", nil, "with --kind: what else a node has, such as `cpu=96,memory=1Ti`")
	flags.StringToStringVar(&f.labels, "label", nil, "with --kind: a label `KEY=VALUE` of the nodes")
	flags.StringArrayVar(&f.taints, "taint", nil, "with --kind: a taint `KEY=VALUE:EFFECT` of the nodes")
	flags.StringVar(&f.arch, "arch", "", "with --kind: the nodes' architecture, such as amd64")
	return cmd
}

// group makes the template from what the flags and files name.
func (f templated) group(c *common, cmd *cobra.Command, files []string) (dra.NodeGroup, error) {
	sources := 0
	for _, named := range []bool{len(files) > 0, f.node != "", len(f.kinds) > 0} {
		if named {
			sources++
		}
	}
	if sources != 1 {
		return dra.NodeGroup{}, errors.New("name files, or --node, or --kind")
	}
	if len(f.kinds) > 0 {
		return f.planned(c, cmd)
	}
	if len(f.amounts)+len(f.resources)+len(f.labels)+len(f.taints) > 0 || f.arch != "" {
		return dra.NodeGroup{}, errors.New("--amount, --resource, --label, --taint and --arch need --kind")
	}
	var nodes []dra.Node
	var all []dra.Slice
	var err error
	if f.node != "" {
		nodes, all, err = f.asked(cmd)
	} else {
		nodes, all, err = readTemplates(cmd.InOrStdin(), files)
	}
	if err != nil {
		return dra.NodeGroup{}, err
	}
	if len(nodes) != 1 {
		return dra.NodeGroup{}, fmt.Errorf("there are %d nodes; name one", len(nodes))
	}
	return dra.TemplateOf(nodes[0], all, f.name)
}

func readTemplates(in io.Reader, files []string) (nodes []dra.Node, all []dra.Slice, err error) {
	for _, file := range files {
		data, err := readNamed(in, file)
		if err != nil {
			return nil, nil, err
		}
		n, s, err := dra.ReadNodes(data)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot use %q: %w", file, err)
		}
		nodes, all = append(nodes, n...), append(all, s...)
	}
	return nodes, all, nil
}

// asked reads a node and its slices from the API server. What it says is checked like a file.
func (f templated) asked(cmd *cobra.Command) (nodes []dra.Node, all []dra.Slice, err error) {
	client, err := kube.NewClient(f.kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot find the API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	for _, object := range []struct {
		path  string
		query url.Values
	}{
		{"/api/v1/nodes/" + url.PathEscape(f.node), nil},
		{"/apis/resource.k8s.io/v1/resourceslices", url.Values{"fieldSelector": {"spec.nodeName=" + f.node}}},
	} {
		var text json.RawMessage
		if err := client.Documents.Do(ctx, http.MethodGet, object.path, object.query, nil, &text); err != nil {
			return nil, nil, fmt.Errorf("cannot read %s: %w", object.path, err)
		}
		n, s, err := dra.ReadNodes(text)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot use %s: %w", object.path, err)
		}
		nodes, all = append(nodes, n...), append(all, s...)
	}
	return nodes, all, nil
}

// planned makes the template from definitions.
func (f templated) planned(c *common, cmd *cobra.Command) (dra.NodeGroup, error) {
	p, problem := c.open(cmd)
	if problem != nil {
		return dra.NodeGroup{}, errors.New(explain(problem))
	}
	p.printSkipped()
	var node dra.Node
	node.Metadata.Name, node.Metadata.Labels = f.name, f.labels
	node.Status.Allocatable, node.Status.NodeInfo.Architecture = f.resources, f.arch
	for _, text := range f.taints {
		key, rest, _ := strings.Cut(text, "=")
		value, effect, _ := strings.Cut(rest, ":")
		node.Spec.Taints = append(node.Spec.Taints, dra.NodeTaint{Key: key, Value: value, Effect: effect})
	}
	var kinds []dra.Planned
	for _, kind := range sorted(f.kinds) {
		count, err := strconv.Atoi(f.kinds[kind])
		if err != nil {
			return dra.NodeGroup{}, fmt.Errorf("%q of kind %q is not a number of devices", f.kinds[kind], kind)
		}
		def := p.Kinds[kind]
		if def == nil {
			return dra.NodeGroup{}, fmt.Errorf("no definition in force has kind %q", kind)
		}
		kinds = append(kinds, dra.Planned{Definition: def, Count: count, Amounts: map[string]string{}})
	}
	for name, value := range f.amounts {
		kind, amount, _ := strings.Cut(name, ".")
		found := false
		for _, k := range kinds {
			if k.Definition.Kind == kind {
				k.Amounts[amount], found = value, true
			}
		}
		if !found {
			return dra.NodeGroup{}, fmt.Errorf("--amount %s: --kind does not name %q", name, kind)
		}
	}
	return dra.Plan(node, kinds)
}

// writeTemplate prints a template: YAML with the fields in their order, or JSON.
func writeTemplate(out io.Writer, group dra.NodeGroup, asJSON bool) error {
	if asJSON {
		return writeJSON(out, group)
	}
	b, err := json.Marshal(group)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil { // JSON is YAML; this way the fields keep their order
		return err
	}
	blocks(&n)
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	if err := e.Encode(&n); err != nil {
		return err
	}
	return e.Close()
}
