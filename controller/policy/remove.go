package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// RemovalName is the name of the DaemonSet whose pods undo what agents changed on their nodes.
const RemovalName = "acceld-remove"

// definitionPath is the path of the CustomResourceDefinition of policies.
const definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/acceleratorpolicies.acceld.dev"

// recordsPath is the path of the CustomResourceDefinition of the records of devices, which go with it.
const recordsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/acceleratordevices.acceld.dev"

// purgeSelector selects the pods of that DaemonSet.
const purgeSelector = "app.kubernetes.io/component=acceld-purge"

// removal removes acceld from a cluster.
type removal struct {
	*Controller
	sets  *kube.Reflector[purgeSet, *purgeSet]
	purge *kube.Reflector[pod, *pod]
}

// purgeSet is the DaemonSet that restores nodes.
type purgeSet struct {
	kube.Meta `json:"metadata"`
	Status    struct {
		ObservedGeneration     int64 `json:"observedGeneration,omitempty"`
		DesiredNumberScheduled int   `json:"desiredNumberScheduled"`
		NumberReady            int   `json:"numberReady"`
	} `json:"status"`
}

// unrestored says why the node of one of its pods is not restored; empty if it is.
func (p *pod) unrestored() string {
	if p.Status.Conditions.of("Ready").Status == "True" {
		return ""
	}
	for _, c := range p.Status.Inits {
		for _, s := range []containerState{c.State, c.LastState} {
			if s.Terminated != nil && s.Terminated.ExitCode != 0 {
				return strings.TrimSpace(s.Terminated.Message)
			}
		}
	}
	return "it has not begun"
}

// Remove removes acceld from a cluster. It deletes the policies and undoes what they did. When the agents have gone
// and the removal DaemonSet, if there is one, has restored the nodes, Remove clears what agents wrote to the nodes
// and deletes the other objects that they created. The CustomResourceDefinitions go last, and the records of devices
// with theirs. Remove returns nil when nothing is left; when ctx ends first, the error names what is left.
func Remove(ctx context.Context, o Options) error {
	c, err := New(o)
	if err != nil {
		return err
	}
	r := &removal{
		Controller: c,
		sets: reflector[purgeSet](c, "/apis/apps/v1/namespaces/"+o.Namespace+"/daemonsets",
			url.Values{"fieldSelector": {"metadata.name=" + RemovalName}}),
		purge: reflector[pod](c, "/api/v1/namespaces/"+o.Namespace+"/pods",
			url.Values{"labelSelector": {purgeSelector}}),
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, run := range []func(context.Context) error{
		c.nodes.Run, c.policies.Run, c.agents.Run, c.classes.Run,
		r.sets.Run, r.purge.Run,
	} {
		guard.Go(func() { guard.Keep(watching, "what the cluster has", run) })
	}
	var left []string
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot remove all of acceld, what is left: %s",
				strings.Join(append(left, problems(r)...), "; "))
		case <-c.wake:
		}
		if pace.Sleep(ctx, settle) != nil {
			continue
		}
		now := r.pass(ctx)
		if len(now) == 0 {
			return nil
		}
		if !slices.Equal(now, left) {
			c.o.Log.Info("not everything is removed yet", "left", now)
		}
		left = now
		if c.again.Load() {
			time.AfterFunc(time.Second, c.poke)
		}
	}
}

// problems returns why parts of the cluster cannot be read.
func problems(r *removal) []string {
	var out []string
	for what, err := range map[string]error{
		"nodes": r.nodes.Err(), "policies": r.policies.Err(), "agents": r.agents.Err(),
		"priority classes": r.classes.Err(),
		"daemon sets":      r.sets.Err(), "pods": r.purge.Err(),
	} {
		if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			out = append(out, fmt.Sprintf("cannot read %s: %v", what, err))
		}
	}
	slices.Sort(out)
	return out
}

// pass does what can be done now and returns what is left.
func (r *removal) pass(ctx context.Context) (left []string) {
	nodes, synced := r.nodes.All()
	policies, known := r.policies.All()
	agents, counted := r.agents.All()
	classes, read := r.classes.All()
	sets, set := r.sets.All()
	pods, purged := r.purge.All()
	if !synced || !known || !counted || !read || !set || !purged {
		return []string{"the cluster has not been read yet"}
	}
	if err := r.policies.Err(); err != nil {
		return []string{"policies: " + err.Error()} // the end of the error wakes the caller
	}
	r.again.Store(false)
	left = append(r.policiesGo(ctx, nodes, policies, classes), r.agentsLeft(agents)...)
	left = append(left, notTaken(sets[r.o.Namespace+"/"+RemovalName], pods)...)
	if len(left) > 0 || r.again.Load() {
		return append(left, r.refused()...)
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if ctx.Err() != nil || !traces(nodes[name]) {
			continue
		}
		if err := r.clearNode(ctx, nodes[name]); err != nil {
			r.failed(ctx, "clearing a node", name, err)
			left = append(left, fmt.Sprintf("labels of node %s: %v", name, err))
		}
	}
	if err := r.sweep(ctx); err != nil {
		r.failed(ctx, "removing what agents made", r.o.Namespace, err)
		left = append(left, err.Error())
	}
	return append(left, r.refused()...)
}

// refused says whether a write was refused. The log has the details.
func (r *removal) refused() []string {
	if r.again.Load() {
		return []string{"a write that the API server did not take"}
	}
	return nil
}

// policiesGo deletes policies and undoes the effects of those being deleted. It returns those that still exist.
func (r *removal) policiesGo(ctx context.Context, nodes map[string]*Node, policies map[string]*Policy,
	classes map[string]*class,
) (left []string) {
	v := view{now: time.Now(), nodes: nodes, rivals: func(*Node, string) string { return "" }}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		p := policies[name]
		left = append(left, "the policy "+name)
		if p.DeletionTimestamp != nil {
			v.policies = append(v.policies, p)
			continue
		}
		if err := r.api.delete(ctx, kube.PoliciesPath+"/"+name, ""); err != nil {
			r.failed(ctx, "deleting a policy", name, err)
		}
	}
	r.makeClasses(ctx, v.policies, classes)
	verdicts, held := judge(v), map[string]bool{}
	for _, d := range verdicts {
		r.carryOut(ctx, v, d, verdicts, held, &due{now: v.now})
	}
	r.upkeep(ctx, verdicts, held)
	r.forget(ctx, v, nil)
	for _, d := range verdicts {
		r.mark(ctx, d.policy)
	}
	return left
}

// agentsLeft returns the agents that still run: they would write again what is cleared.
func (r *removal) agentsLeft(agents map[string]*agent) (left []string) {
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		left = append(left, fmt.Sprintf("the agent on node %s (pod %s)", agents[name].Spec.NodeName, name))
	}
	return left
}

// notTaken returns the nodes that are not restored yet, if there is a DaemonSet that restores them.
func notTaken(set *purgeSet, pods map[string]*pod) (left []string) {
	switch {
	case set == nil:
		return nil
	case set.Status.ObservedGeneration < set.Generation:
		return []string{"the nodes: DaemonSet " + RemovalName + " has not begun"}
	case set.Status.NumberReady == set.Status.DesiredNumberScheduled:
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if why := pods[name].unrestored(); why != "" {
			left = append(left, fmt.Sprintf("node %s: %s", pods[name].Spec.NodeName, why))
		}
	}
	if len(left) == 0 {
		left = []string{fmt.Sprintf("%d of %d nodes are taken back", set.Status.NumberReady,
			set.Status.DesiredNumberScheduled)}
	}
	return left
}

// traces reports whether a node has leftovers of agents or grants. If the agent of a node runs as a systemd unit, the
// node is left to that agent.
func traces(n *Node) bool {
	origin := n.Annotations.get(kube.OriginAnnotation)
	if origin == kube.OriginUnit {
		return false
	}
	for _, m := range n.Annotations {
		if passing(m.key) {
			return true
		}
	}
	for key := range n.Labels.keys(kube.Prefix) {
		if kube.Ours(key) {
			return true
		}
	}
	return origin != ""
}

// passing reports whether an annotation is part of the handshakes about upgrades and repairs, or what a node says of
// its devices.
func passing(key string) bool {
	return slices.ContainsFunc([]string{
		accel.ReportAnnotation, accel.GrantAnnotation, accel.ServedAnnotation, accel.RepairAnnotation,
		accel.AllowRepairAnnotation, accel.HistoryAnnotation, drainAnnotation,
	}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// clearNode removes everything of acceld from a node. That includes labels that others may write too, unless somebody
// else has written them.
func (r *removal) clearNode(ctx context.Context, n *Node) error {
	whole := &corev1.Node{}
	if err := r.api.get(ctx, nodesPath+"/"+n.Name, nil, whole); err != nil {
		return err
	}
	labels, annotations := object{}, object{}
	for _, key := range kube.Left(whole) {
		labels[key] = nil
	}
	for key := range whole.Annotations {
		if passing(key) {
			annotations[key] = nil
		}
	}
	read := &Node{Identity: kube.Identity{Name: whole.Name, ResourceVersion: whole.ResourceVersion}}
	cleared, err := r.patchNode(ctx, read, object{"labels": labels, "annotations": annotations}, nil)
	if err != nil {
		return err
	}
	return r.clear(ctx, cleared)
}

// sweep deletes the other objects of acceld: leases of builds, the ResourceSlices and DeviceClasses of claims, and the
// PriorityClass of validations.
func (r *removal) sweep(ctx context.Context) error {
	leases := "/apis/coordination.k8s.io/v1/namespaces/" + r.o.Namespace + "/leases"
	const resources = "/apis/resource.k8s.io/v1/"
	// no policies exist at this point
	err := cmp.Or(r.api.delete(ctx, recordsPath, ""), r.api.delete(ctx, definitionPath, ""))
	if err != nil {
		err = fmt.Errorf("cannot delete the definitions of policies and devices: %w", err)
	}
	return errors.Join(
		err,
		r.drop(ctx, leases, func(m *made) bool { return strings.HasPrefix(m.Name, "acceld-") }),
		r.drop(ctx, resources+"resourceslices", func(m *made) bool {
			return strings.HasSuffix(m.Spec.Driver, ofDriver)
		}),
		r.drop(ctx, resources+"deviceclasses", func(m *made) bool {
			// one that an administrator created stays
			return strings.HasSuffix(m.Name, ofDriver) && m.by(kube.FieldManager)
		}),
		r.drop(ctx, classesPath, func(m *made) bool {
			return m.Name == validationClass && m.by(fieldManager)
		}),
	)
}

// ofDriver is the suffix of the names of acceld's drivers for claims, and of their classes.
const ofDriver = ".acceld.dev"

// made holds the fields that are read of an object that acceld may have created.
type made struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Driver string `json:"driver,omitempty"`
	} `json:"spec"`
}

// by reports whether the field manager has written part of the object.
func (m *made) by(name string) bool {
	return slices.ContainsFunc(m.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == name
	})
}

// drop deletes acceld's objects of a collection. If the API server does not serve the collection, there are none.
func (r *removal) drop(ctx context.Context, collection string, ours func(*made) bool) error {
	var list struct {
		Items []made `json:"items"`
	}
	err := r.api.get(ctx, collection, nil, &list)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", collection, err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if !ours(m) {
			continue
		}
		if err := r.api.delete(ctx, collection+"/"+m.Name, ""); err != nil {
			return fmt.Errorf("cannot delete %s/%s: %w", collection, m.Name, err)
		}
	}
	return nil
}
