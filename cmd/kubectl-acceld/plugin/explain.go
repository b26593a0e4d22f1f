package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// found is what there is to know about a pod.
type found struct {
	pod    corev1.Pod
	events []corev1.Event
	nodes  []corev1.Node
	// pods are those that have not ended. Unread says why they, or the nodes, or the events are not known.
	pods   []corev1.Pod
	unread []error
}

// explainPod reads and prints why a pod waits or has failed.
func explainPod(ctx context.Context, r reader, out io.Writer, namespace, name string) error {
	p, err := r.pod(ctx, namespace, name)
	if err != nil {
		return err
	}
	f := found{pod: p}
	note := func(err error) {
		if err != nil {
			f.unread = append(f.unread, err)
		}
	}
	f.events, err = r.events(ctx, p)
	note(err)
	if p.Spec.NodeName == "" {
		f.nodes, err = r.nodes(ctx)
		note(err)
		f.pods, err = r.pods(ctx)
		note(err)
	}
	for _, line := range f.explain() {
		fmt.Fprintln(out, clean(line))
	}
	return nil
}

// asked returns how much of extended resources a pod asks for: what its containers have at the same time, or one init
// container if that is more.
func asked(p corev1.Pod) map[string]int64 {
	all := map[string]int64{}
	amounts := func(c corev1.Container, take func(name string, n int64)) {
		for name, q := range c.Resources.Limits {
			domain, _, extended := strings.Cut(string(name), "/")
			if extended && domain != "kubernetes.io" && q.Value() > 0 {
				take(string(name), q.Value())
			}
		}
	}
	for _, c := range p.Spec.Containers {
		amounts(c, func(name string, n int64) { all[name] += n })
	}
	for _, c := range p.Spec.InitContainers {
		amounts(c, func(name string, n int64) { all[name] = max(all[name], n) })
	}
	return all
}

// explain says what is known, the most telling first.
func (f found) explain() []string {
	p := f.pod
	lines := []string{fmt.Sprintf("pod %s/%s is %s%s", p.Namespace, p.Name, strings.ToLower(cmp.Or(string(p.Status.Phase),
		"of unknown state")), where(p))}
	want := asked(p)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		lines = append(lines, fmt.Sprintf("it asks for %d of %s", want[name], name))
	}
	for _, c := range p.Spec.ResourceClaims {
		lines = append(lines, fmt.Sprintf("it has the claim %q: kubectl -n %s describe resourceclaims says what is allocated",
			c.Name, p.Namespace))
	}
	if len(want)+len(p.Spec.ResourceClaims) == 0 {
		lines = append(lines, "it asks for no device: neither for an extended resource nor by a claim")
	}
	if p.Status.Reason != "" {
		lines = append(lines, fmt.Sprintf("the kubelet says %s: %s", p.Status.Reason, p.Status.Message))
	}
	lines = append(lines, f.containers()...)
	if p.Spec.NodeName == "" {
		lines = append(lines, f.unscheduled(want)...)
	}
	lines = append(lines, f.warnings()...)
	for _, err := range f.unread {
		lines = append(lines, "not known: "+err.Error())
	}
	return lines
}

func where(p corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return ", on no node yet"
	}
	return " on node " + p.Spec.NodeName
}

// containers says why containers do not run, such as the refusal of the hook.
func (f found) containers() (lines []string) {
	for _, c := range slices.Concat(f.pod.Status.InitContainerStatuses, f.pod.Status.ContainerStatuses) {
		for _, w := range []*corev1.ContainerStateWaiting{c.State.Waiting} {
			if w != nil && w.Reason != "" {
				lines = append(lines, strings.TrimSuffix(fmt.Sprintf("container %q waits: %s: %s", c.Name, w.Reason, w.Message), ": "))
			}
		}
		for _, e := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if e != nil && e.ExitCode != 0 {
				lines = append(lines, strings.TrimSuffix(fmt.Sprintf("container %q has failed: %s, exit code %d: %s", c.Name, e.Reason,
					e.ExitCode, e.Message), ": "))
			}
		}
		for _, r := range c.AllocatedResourcesStatus {
			for _, d := range r.Resources {
				if d.Health == corev1.ResourceHealthStatusUnhealthy {
					lines = append(lines, fmt.Sprintf("container %q has device %q of %s, which is unhealthy", c.Name, d.ResourceID, r.Name))
				}
			}
		}
	}
	return lines
}

// unscheduled says what each node lacks, by verdict.
func (f found) unscheduled(want map[string]int64) (lines []string) {
	for _, c := range f.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			lines = append(lines, fmt.Sprintf("the scheduler says %s: %s", c.Reason, c.Message))
		}
	}
	if len(want) == 0 || f.nodes == nil {
		return lines
	}
	verdicts := map[string][]string{}
	for _, n := range f.nodes {
		if v := f.verdict(n, want); v != "" {
			verdicts[v] = append(verdicts[v], n.Name)
		}
	}
	if len(verdicts) == 0 {
		for _, n := range concerned(f.nodes) {
			if _, is, why := readiness(n); is != string(corev1.ConditionTrue) && why != "" {
				lines = append(lines, fmt.Sprintf("node %s is not ready for devices: %s", n.Name, why))
			}
		}
		return append(lines, "no node offers what it asks for")
	}
	for _, v := range slices.SortedFunc(maps.Keys(verdicts), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(verdicts[b]), len(verdicts[a])), cmp.Compare(a, b))
	}) {
		names := slices.Sorted(slices.Values(verdicts[v]))
		lines = append(lines, fmt.Sprintf("%d of the nodes, such as %s: %s", len(names), names[0], v))
	}
	return lines
}

// verdict says what keeps the pod from a node that has what it asks for; empty for a node that never has.
func (f found) verdict(n corev1.Node, want map[string]int64) string {
	for name := range want {
		if q := n.Status.Capacity[corev1.ResourceName(name)]; q.IsZero() {
			return ""
		}
	}
	if n.Spec.Unschedulable {
		return "it is cordoned"
	}
	if !labels.SelectorFromSet(f.pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return "it lacks a label that the pod's nodeSelector asks for"
	}
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule && !f.tolerates(t) {
			return fmt.Sprintf("the pod does not tolerate its taint %s", t.ToString())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		free, text := f.free(n, name)
		if free < want[name] {
			if _, is, why := readiness(n); is != string(corev1.ConditionTrue) && why != "" {
				text += "; " + why
			}
			return text
		}
	}
	if f.pods == nil {
		return "it has the devices; whether they are free is not known"
	}
	return "it has enough free devices: the scheduler has another reason, or has not come back yet"
}

func (f found) tolerates(t *corev1.Taint) bool {
	return slices.ContainsFunc(f.pod.Spec.Tolerations, func(o corev1.Toleration) bool {
		return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" && o.Operator == corev1.TolerationOpExists ||
			o.Key == t.Key && (o.Operator == corev1.TolerationOpExists || o.Value == t.Value))
	})
}

// free returns how much of a resource no pod of a node has asked for, and says it.
func (f found) free(n corev1.Node, name string) (free int64, text string) {
	resource := corev1.ResourceName(name)
	capacity, allocatable := n.Status.Capacity[resource], n.Status.Allocatable[resource]
	used := int64(0)
	for _, p := range f.pods {
		if p.Spec.NodeName == n.Name {
			used += asked(p)[name]
		}
	}
	free = allocatable.Value() - used
	text = fmt.Sprintf("%d of %d %s are free", max(0, free), allocatable.Value(), name)
	if sick := capacity.Value() - allocatable.Value(); sick > 0 {
		text += fmt.Sprintf(", and %d more are not healthy", sick)
	}
	return free, text
}

// maxWarnings is how many events are shown.
const maxWarnings = 8

// warnings are the newest events that are no routine.
func (f found) warnings() (lines []string) {
	at := func(e corev1.Event) time.Time {
		newest := e.LastTimestamp.Time
		for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time} {
			if t.After(newest) {
				newest = t
			}
		}
		if e.Series != nil && e.Series.LastObservedTime.After(newest) {
			newest = e.Series.LastObservedTime.Time
		}
		return newest
	}
	routine := func(e corev1.Event) bool { return e.Type != corev1.EventTypeWarning }
	all := slices.DeleteFunc(slices.Clone(f.events), routine)
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return at(b).Compare(at(a)) })
	for _, e := range all[:min(len(all), maxWarnings)] {
		lines = append(lines, fmt.Sprintf("event at %s, %s: %s", at(e).UTC().Format(time.RFC3339), e.Reason, e.Message))
	}
	return lines
}
