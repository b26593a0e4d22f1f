package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/kube"
)

// kindRow is one kind of accelerator on a node, by the labels that its agent writes.
type kindRow struct{ name, count, driver, product, memory string }

// kindsOf returns the kinds on a node, sorted by name.
func kindsOf(n corev1.Node) (all []kindRow) {
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		name, own := strings.CutPrefix(key, kube.Prefix)
		kind, isCount := strings.CutSuffix(name, ".count")
		if !own || !isCount {
			continue
		}
		of := func(feature string) string { return n.Labels[kube.Prefix+kind+"."+feature] }
		all = append(all, kindRow{kind, of("count"), of("driver-version"), of("product"), of("memory")})
	}
	return all
}

// readiness returns the condition of a node about its accelerators: whether it has one, its status, and why it is not
// true.
func readiness(n corev1.Node) (known bool, ready, why string) {
	for _, c := range n.Status.Conditions {
		if c.Type != kube.ConditionType {
			continue
		}
		if ready = string(c.Status); ready != string(corev1.ConditionTrue) {
			why = strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
		}
		return true, ready, why
	}
	return false, "unknown", ""
}

// concerned returns the nodes that have accelerators or an agent, sorted by name.
func concerned(all []corev1.Node) []corev1.Node {
	all = slices.DeleteFunc(slices.Clone(all), func(n corev1.Node) bool {
		known, _, _ := readiness(n)
		return !known && len(kindsOf(n)) == 0
	})
	slices.SortFunc(all, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// nodes lists the nodes with accelerators.
func nodes(ctx context.Context, r reader, out io.Writer, _ []string) error {
	all, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"NODE", "READY", "KIND", "DEVICES", "DRIVER", "PRODUCT", "WHY NOT"}}
	for _, n := range concerned(all) {
		_, ready, why := readiness(n)
		kinds := kindsOf(n)
		if len(kinds) == 0 {
			kinds = []kindRow{{name: "none", count: "0"}}
		}
		for _, k := range kinds {
			rows = append(rows, []string{n.Name, ready, k.name, k.count, cmp.Or(k.driver, "unknown"), cmp.Or(k.product, "unknown"), why})
		}
	}
	if len(rows) == 1 {
		fmt.Fprintln(out, "no node says anything about accelerators: is the agent installed?")
		return nil
	}
	table(out, rows)
	return nil
}

// status sums up the cluster.
func status(ctx context.Context, r reader, out io.Writer, _ []string) error {
	all, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	all = concerned(all)
	ready, kinds, bad := 0, map[string]int{}, [][]string{{"NODE NOT READY", "WHY"}}
	for _, n := range all {
		for _, k := range kindsOf(n) {
			devices := 0
			_, _ = fmt.Sscan(k.count, &devices) // what is no number counts none
			kinds[k.name] += devices
		}
		switch _, is, why := readiness(n); is {
		case string(corev1.ConditionTrue):
			ready++
		default:
			bad = append(bad, []string{n.Name, cmp.Or(why, "its agent has not said")})
		}
	}
	fmt.Fprintf(out, "nodes with accelerators or an agent: %d, ready: %d\n", len(all), ready)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(out, "%s: %d devices\n", clean(kind), kinds[kind])
	}
	if pods, err := r.pods(ctx); err != nil {
		fmt.Fprintf(out, "pods that wait: unknown (%s)\n", clean(err.Error()))
	} else {
		waiting := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != "" || len(asked(p)) == 0 })
		fmt.Fprintf(out, "pods that wait for a node and ask for devices: %d\n", len(waiting))
		for _, p := range waiting[:min(len(waiting), 10)] {
			fmt.Fprintf(out, "  kubectl acceld explain %s\n", clean(p.Namespace+"/"+p.Name))
		}
	}
	if len(bad) > 1 {
		fmt.Fprintln(out)
		table(out, bad)
	}
	return nil
}
