package policy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// ValidationNamespace is where the pods that validate nodes run. The controller may create pods nowhere else.
const ValidationNamespace = "acceld-validation"

// Marks of a validation.
const (
	// validationLabel is the label of a node with the outcome, validationAnnotation its annotation with the details.
	// The kind follows the dash.
	validationLabel      = kube.Prefix + "validation-"
	validationAnnotation = kube.Prefix + "validation-"
	validationSelector   = "app.kubernetes.io/name=acceld-validation"
	validationClass      = "acceld-validation" // a PriorityClass that preempts nobody
)

const (
	validationTimeout  = 5 * time.Minute  // if the policy sets none
	validationParallel = 4                // if the policy sets none
	unscheduled        = 30 * time.Second // how long a pod may stay unscheduled
	skippedFor         = 10 * time.Minute // how soon a skipped validation is tried again
)

// outcome is the outcome of a validation.
type outcome string

const (
	validationPassed  outcome = "passed"
	validationFailed  outcome = "failed"
	validationSkipped outcome = "skipped"
)

// validated is the annotation of a node about the last validation of a kind.
type validated struct {
	// Of identifies the driver and the workload that were validated.
	Of      string    `json:"of"`
	Outcome outcome   `json:"outcome"`
	Why     string    `json:"why,omitempty"`
	At      time.Time `json:"at"`
	// Alone is the result of the check without the resource; empty if there was none.
	Alone string `json:"alone,omitempty"`
}

func (n *Node) validated(kind string) (v validated) {
	text := n.Annotations.get(validationAnnotation + kind)
	if len(text) > maxMarks || json.Unmarshal([]byte(text), &v) != nil {
		return validated{} // the node is validated again
	}
	return v
}

// check is what a pod of a validation does.
type check string

const (
	checkAlone  check = "alone"  // runs without the resource, in a privileged container
	checkDevice check = "device" // runs on a device that was allocated to it
)

// task is a kind on a node that must be validated.
type task struct {
	node     *Node
	kind     string
	workload accel.Workload
	timeout  time.Duration
	of       string
}

// pod returns the name of the pod of a check.
func (x task) pod(does check) string {
	sum := sha256.Sum256([]byte(x.node.Name + "\n" + x.kind))
	return "validate-" + string(does) + "-" + hex.EncodeToString(sum[:8])
}

// offer names the resource of the task on its node, as "node resource".
func (x task) offer() string { return x.node.Name + " " + x.workload.Resource }

// of identifies a driver and a workload.
func of(n *Node, kind string, w accel.Workload) string {
	b, err := json.Marshal(w)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return cmp.Or(n.Labels.get(kube.Prefix+kind+".driver-version"), "unknown") + " " + hex.EncodeToString(sum[:4])
}

// tasks returns what to validate now: the kinds for which policies ask for validation, on nodes where they serve.
// asked has every kind for which policies ask, as "node kind".
func (v view) tasks(verdicts []*verdict, held map[string]bool) (all []task, asked map[string]bool, parallel int) {
	asked, parallel = map[string]bool{}, validationParallel
	for _, d := range verdicts {
		p := d.policy
		if p.Spec.Validation == nil || p.Spec.DryRun || p.DeletionTimestamp != nil || p.broken("validation") {
			continue
		}
		if n := p.Spec.Validation.MaxParallel; n > 0 {
			parallel = min(parallel, n)
		}
		timeout, err := time.ParseDuration(p.Spec.Validation.Timeout)
		if err != nil {
			timeout = validationTimeout
		}
		for name, kinds := range d.members {
			n := v.nodes[name]
			for _, kind := range kinds {
				w, wanted := p.Spec.Validation.Workloads[kind]
				asked[name+" "+kind] = asked[name+" "+kind] || wanted
				if wanted && !held[name] && n.up() && !n.away(p, kind) && n.serves(kind) &&
					!n.upgradeReport(kind).Acts() {
					all = append(all, task{n, kind, w, timeout, of(n, kind, w)})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b task) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.kind, b.kind))
	})
	return all, asked, parallel
}

// validate runs the pods of validations, records the outcomes, and removes pods that are no longer needed.
func (c *Controller) validate(ctx context.Context, v view, verdicts []*verdict, held map[string]bool, due *due) {
	trials, _ := c.trials.All()
	tasks, asked, parallel := v.tasks(verdicts, held)
	c.forget(ctx, v, asked)
	needed, running, serving := map[string]bool{}, 0, map[string]bool{}
	current := make([]*pod, len(tasks))
	for i, x := range tasks {
		serving[x.offer()] = true
		// The pod with a device is the second step: once it exists, the pod of the first step is not needed.
		for _, does := range []check{checkDevice, checkAlone} {
			p := trials[ValidationNamespace+"/"+x.pod(does)]
			if p == nil || current[i] != nil || p.Annotations["of"] != x.of {
				continue
			}
			current[i], needed[p.Name] = p, true
			if !p.over() {
				running++
			}
		}
	}
	// A node that stops serving starts its wait for devices from zero when it serves again.
	maps.DeleteFunc(c.bare, func(offer string, _ time.Time) bool { return !serving[offer] })
	for _, p := range trials {
		if !needed[p.Name] && p.DeletionTimestamp == nil {
			c.drop(ctx, p)
		}
	}
	for i, x := range tasks {
		last, p := x.node.validated(x.kind), current[i]
		same := last.Of == x.of
		switch {
		case p != nil && same && last.Outcome == validationFailed: // the pod stays, for its log
		case p != nil:
			c.follow(ctx, x, p, due)
		case same && last.Outcome == validationSkipped && due.now.Before(last.At.Add(skippedFor)):
			due.on(last.At.Add(skippedFor))
		case same && (last.Outcome == validationPassed || last.Outcome == validationFailed):
		case running < parallel:
			running++
			c.begin(ctx, x, due)
		}
	}
}

// forget removes the outcomes of validations from nodes for which no policy asks for one any more.
func (c *Controller) forget(ctx context.Context, v view, asked map[string]bool) {
	nodes, _ := c.nodes.All()
	for name, n := range nodes {
		if v.nodes[name] == nil {
			continue // it has come since asked was found out
		}
		labels, annotations := object{}, object{}
		for key := range n.Labels.keys(kube.Prefix) {
			if kind, is := strings.CutPrefix(key, validationLabel); is && !asked[name+" "+kind] {
				labels[key], annotations[validationAnnotation+kind] = nil, nil
			}
		}
		if len(labels) == 0 || ctx.Err() != nil {
			continue
		}
		if _, err := c.patchNode(ctx, n, object{"labels": labels, "annotations": annotations}, nil); err != nil {
			c.failed(ctx, "forgetting a validation", name, err)
		}
	}
}

// begin creates the first pod of a validation, or skips the validation if the node has no free device. The kubelet
// reports its devices to the API server later than the agent reports that it serves, so begin first waits for them.
func (c *Controller) begin(ctx context.Context, x task, due *due) {
	total, used, err := c.devices(ctx, x)
	key := x.offer()
	if err == nil && total == 0 {
		since, known := c.bare[key]
		if !known {
			since = due.now
			c.bare[key] = since
		}
		if left := since.Add(unscheduled).Sub(due.now); left > 0 {
			due.in(min(left, unscheduled/10))
			return
		}
	}
	delete(c.bare, key)
	due.in(settle) // its own writes make no event
	switch {
	case err != nil:
		c.failed(ctx, "looking for a free device", x.node.Name, err)
	case total == 0:
		c.conclude(ctx, x, validated{Outcome: validationSkipped, Why: "the kubelet offers no " + x.workload.Resource})
	case used >= total:
		c.conclude(ctx, x, validated{Outcome: validationSkipped, Why: fmt.Sprintf("all %d of %s are in use", total,
			x.workload.Resource)})
	case x.workload.Alone && used == 0:
		c.create(ctx, x, checkAlone, "")
	case x.workload.Alone:
		c.create(ctx, x, checkDevice, fmt.Sprintf("skipped: %d of %d of %s are in use", used, total,
			x.workload.Resource))
	default:
		c.create(ctx, x, checkDevice, "")
	}
}

// follow acts on the state of a validation's pod.
func (c *Controller) follow(ctx context.Context, x task, p *pod, due *due) {
	if p.DeletionTimestamp != nil {
		return
	}
	age := due.now.Sub(p.CreationTimestamp)
	alone := check(p.Annotations["check"]) == checkAlone
	result, stays := validated{Outcome: validationSkipped, Alone: p.Annotations["alone"]}, false
	switch {
	case p.Status.Phase == "Succeeded" && alone:
		c.create(ctx, x, checkDevice, "passed")
		due.in(settle)
		return
	case p.Status.Phase == "Succeeded":
		result.Outcome = validationPassed
	case p.Status.Phase == "Failed" && (p.ending() == "" || p.disturbed()):
		// the kubelet rejected it, because another pod took the device, or Kubernetes ended it
		result.Why = cmp.Or(strings.TrimSpace(p.Status.Reason+" "+p.Status.Message), p.ending())
	case p.Status.Phase == "Failed":
		result.Outcome, result.Why, stays = validationFailed, p.ending(), true
		if alone {
			result.Alone = "failed"
		}
	case p.Spec.NodeName == "" && age >= unscheduled:
		result.Why = "no device was free: " + p.unscheduled()
	case age >= x.timeout+unscheduled: // a running kubelet ends it earlier
		result.Outcome, result.Why = validationFailed, fmt.Sprintf("it has not ended after %s", x.timeout)
	default:
		for _, d := range []time.Duration{unscheduled, x.timeout + unscheduled} {
			if d > age {
				due.in(d - age)
			}
		}
		return
	}
	if c.conclude(ctx, x, result) && !stays {
		c.drop(ctx, p)
	}
	due.in(settle) // its own writes make no event
}

// ending says how a container of the pod ended; empty if none ran.
func (p *pod) ending() string {
	if p.Status.Reason == "DeadlineExceeded" {
		return "it took too long"
	}
	for _, s := range p.Status.Containers {
		if t := s.State.Terminated; t != nil {
			return fmt.Sprintf("exit status %d: %s", t.ExitCode, cmp.Or(strings.Join(strings.Fields(t.Message), " "),
				t.Reason))
		}
	}
	return ""
}

// disturbed reports whether the pod ended for a reason that says nothing about the node's devices: the node restarted,
// Kubernetes needed its place, or its image did not come.
func (p *pod) disturbed() bool {
	if p.Status.Conditions.of("DisruptionTarget").Status == "True" {
		return true
	}
	ran := false
	for _, s := range p.Status.Containers {
		t := s.State.Terminated
		if t != nil && (t.Reason == "ContainerStatusUnknown" || t.Reason == "Unknown") {
			return true // what the kubelet and containerd say of a container that did not survive a restart of the node
		}
		ran = ran || t != nil || s.State.Running != nil
	}
	switch p.Status.Reason {
	case "Evicted", "NodeShutdown", "Terminated", "Preempting":
		return true
	case "DeadlineExceeded":
		return !ran
	}
	return false
}

// unscheduled returns the scheduler's message.
func (p *pod) unscheduled() string {
	if c := p.Status.Conditions.of("PodScheduled"); c.Status == "False" {
		return c.Message
	}
	return "the scheduler has said nothing"
}

// conclude writes the outcome of a validation to the node and emits an event. It reports whether the outcome is
// written.
func (c *Controller) conclude(ctx context.Context, x task, v validated) bool {
	v.Of, v.At, v.Why = x.of, time.Now().UTC().Truncate(time.Second), shorten(v.Why)
	last := x.node.validated(x.kind)
	if last.Of == v.Of && last.Outcome == v.Outcome && last.Why == v.Why && v.At.Sub(last.At) < skippedFor {
		return true
	}
	b, err := json.Marshal(v)
	if err != nil {
		return false
	}
	if _, err := c.patchNode(ctx, x.node, object{
		"annotations": object{validationAnnotation + x.kind: string(b)},
		"labels":      object{validationLabel + x.kind: v.Outcome},
	}, nil); err != nil {
		c.failed(ctx, "noting a validation", x.node.Name, err)
		return false
	}
	c.o.Log.Info("node validated", "node", x.node.Name, "kind", x.kind, "outcome", v.Outcome, "why", v.Why)
	kind := "Normal"
	if v.Outcome == validationFailed {
		kind = "Warning"
	}
	note := fmt.Sprintf("%s %s: %s", x.kind, x.of, v.Outcome)
	if v.Why != "" {
		note += ": " + v.Why
	}
	about := object{"apiVersion": "v1", "kind": "Node", "name": x.node.Name, "uid": x.node.UID}
	c.emit(ctx, about, kind, "Validation", "Validation"+strings.ToUpper(string(v.Outcome[:1]))+string(v.Outcome[1:]),
		note)
	return true
}

// devices counts the devices that the node offers and those that its pods hold or wait for.
func (c *Controller) devices(ctx context.Context, x task) (total, used int, err error) {
	var n corev1.Node
	if err := c.api.get(ctx, nodesPath+"/"+x.node.Name, nil, &n); err != nil {
		return 0, 0, err
	}
	var list corev1.PodList
	own := url.Values{"fieldSelector": {"spec.nodeName=" + x.node.Name}}
	if err := c.api.get(ctx, "/api/v1/pods", own, &list); err != nil {
		return 0, 0, err
	}
	for _, p := range list.Items {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			used += held(p.Spec.Containers, p.Spec.InitContainers, x.workload.Resource)
		}
	}
	return amount(n.Status.Allocatable, x.workload.Resource), used, nil
}

// amount returns an amount of an extended resource, which is a whole number.
func amount(all corev1.ResourceList, resource string) int {
	q := all[corev1.ResourceName(resource)]
	return int(q.Value())
}

// held returns how many devices a pod holds at most at one time: its containers and sidecars together, or an init
// container and the sidecars that started before it (KEP-753).
func held(containers, inits []corev1.Container, resource string) int {
	sidecars, most := 0, 0
	for _, k := range inits {
		n := amount(k.Resources.Limits, resource)
		most = max(most, sidecars+n)
		if k.RestartPolicy != nil && *k.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += n
		}
	}
	sum := sidecars
	for _, k := range containers {
		sum += amount(k.Resources.Limits, resource)
	}
	return max(sum, most)
}

// drop removes a pod.
func (c *Controller) drop(ctx context.Context, p *pod) {
	if err := c.api.delete(ctx, trialsPath+"/"+p.Name, p.UID); err != nil {
		c.failed(ctx, "removing a pod of a validation", p.Name, err)
	}
}
