package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/test/admission"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

const agents = stage.Namespace

// eduPolicy asks for a version of the edu driver; more are further lines of its spec.
func eduPolicy(version, more string) []byte {
	return fmt.Appendf(nil, `apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: edu}
spec:
  kinds:
    qemu-edu: {driver: {version: %q}}
%s`, version, more)
}

// policyState waits until the condition Ready of the policy has a reason.
func policyState(t *testing.T, n *bed.Node, reason string, d time.Duration) {
	t.Helper()
	_, err := n.Kubectl(stage.Within(t, d), nil, "wait", "acceleratorpolicy/edu", "--timeout="+d.String(),
		`--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=`+reason)
	text, _ := n.Kubectl(stage.Within(t, soon), nil, "get", "acceleratorpolicies", "-o", "wide")
	t.Logf("\n%s", text)
	if err != nil {
		whole, _ := n.Kubectl(stage.Within(t, soon), nil, "get", "acceleratorpolicy/edu", "-o", "yaml")
		t.Fatalf("%v\n%s", err, whole)
	}
}

// watchFleet looks at every version of every node: no two may be at it at a time.
func watchFleet(t *testing.T, n *bed.Node) (order func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	list, err := clientset.Of(n).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	stage.Check(t, err)
	w, err := clientset.Of(n).CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	stage.Check(t, err)
	var mu sync.Mutex
	var seen []string
	words := map[string]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			node, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			word := node.Annotations[accel.ReportAnnotation+stage.Kind]
			mu.Lock()
			if word != words[node.Name] && strings.HasPrefix(word, "upgrading") {
				seen = append(seen, node.Name+" "+word)
			}
			words[node.Name] = word
			acting := 0
			for _, x := range words {
				if strings.HasPrefix(x, "upgrading") {
					acting++
				}
			}
			mu.Unlock()
			if acting > 1 {
				t.Errorf("%d nodes are at it at a time: %v", acting, words)
			}
		}
	}()
	t.Cleanup(func() { w.Stop(); cancel(); <-done })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), seen...)
	}
}

// workload is one pod for each device, of which one may be away at a time.
const workload = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: compute, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: compute}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: compute, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: compute}}
  template:
    metadata: {labels: {app: compute}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: compute
        image: %s
        args: ["-expect", "1", "-hold", "2h"]
        resources: {limits: {%s: 1}}
`

// fleet is two nodes of one cluster.
type fleet struct {
	first *bed.Node
	nodes []*bed.Node
	s     *stage.Stage
	image string
	order func() []string
}

// TestPolicy: two nodes of one cluster replace their driver one after the other under a workload with a disruption
// budget, as a policy orders, with the controller as its pods, which have the rights of the manifests, and the agents
// held to their nodes. Its parts build on each other.
func TestPolicy(t *testing.T) {
	first, second, s := stage.StartPair(t, bed.Options{Accelerators: 1})
	f := &fleet{first: first, nodes: []*bed.Node{first, second}, s: s}
	f.prepare(t)
	stage.Check(t, s.Deploy(t.Context(), first))
	f.served(t, stage.Version)
	stage.StartController(t, first, s, "")
	f.order = watchFleet(t, first)
	inOrder(t, first, f.image,
		f.part("one after the other, under a Deployment", underDeployment),
		f.part("a version that computes wrongly", wrongVersion),
		f.part("one after the other, under a DaemonSet", underDaemonSet),
	)
}

// part is a part of a test about the fleet.
func (f *fleet) part(name string, do func(*testing.T, *fleet)) part {
	return part{name, func(t *testing.T, _ *bed.Node, _ string) { do(t, f) }}
}

// prepare puts the sources of three versions of the driver on the nodes, and one of them built.
func (f *fleet) prepare(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		for _, version := range []string{stage.VersionWrong, stage.Version2, stage.Version} {
			stage.Check(t, f.s.SourceOf(t.Context(), n.Guest, version))
			stage.Check(t, f.s.Store(t.Context(), n.Guest, version))
		}
	}
	var err error
	f.image, err = f.s.Workload(t.Context(), f.first)
	stage.Check(t, err)
}

// served waits until both nodes serve a version of the driver, and the scheduler knows their devices.
func (f *fleet) served(t *testing.T, version string) {
	t.Helper()
	for _, n := range f.nodes {
		serves(t, n.Guest, version)
		stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 1))
	}
}

// seen is how many upgrades have begun.
func (f *fleet) seen() int { return len(f.order()) }

// uncordoned checks that no node is left cordoned or says something.
func (f *fleet) uncordoned(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		node, err := clientset.Of(f.first).CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
		stage.Check(t, err)
		if node.Spec.Unschedulable || node.Annotations[accel.ReportAnnotation+stage.Kind] != "" {
			t.Errorf("%s is left cordoned or says something: %v", n.Name(), node.Annotations)
		}
	}
}

// limits are those of every policy here.
const limits = "  upgrade: {maxParallel: 1, maxUnavailable: 1, stopAfter: 1, drain: {podSelector: {app: compute}}}\n"

// underDeployment: pods leave the node before its driver is replaced, within their budget. the controller's leader is
// killed meanwhile; the other one goes on, and no limit is passed.
func underDeployment(t *testing.T, f *fleet) {
	apply(t, f.first, fmt.Appendf(nil, workload, f.image, stage.Resource))
	available := func() {
		t.Helper()
		_, err := f.first.Kubectl(stage.Within(t, 3*time.Minute), nil, "wait", "deployment/compute",
			"--for=jsonpath={.status.availableReplicas}=2", "--timeout=3m")
		stage.Check(t, err)
	}
	available()
	timed(t, "policy applied -> both nodes serve version 2.0.0, one after the other", func() {
		apply(t, f.first, eduPolicy(stage.Version2, limits))
		for ctx := stage.Within(t, 3*time.Minute); f.seen() == 0; {
			stage.Check(t, ctx.Err())
			time.Sleep(50 * time.Millisecond)
		}
		pod, err := stage.KillController(stage.Within(t, soon), f.first)
		stage.Check(t, err)
		t.Logf("killed while a node is at it: %s, which was the leader", pod)
		for _, n := range f.nodes {
			serves(t, n.Guest, stage.Version2)
		}
		now, err := stage.Leader(stage.Within(t, soon), f.first)
		if err != nil || now == pod {
			t.Errorf("the leader: %q %v", now, err)
		}
	})
	policyState(t, f.first, "AllReady", 2*time.Minute)
	if f.seen() != 2 {
		t.Errorf("%v, want each node once", f.order())
	}
	available()
	f.uncordoned(t)
}

// wrongVersion stops after the first node, which takes it back.
func wrongVersion(t *testing.T, f *fleet) {
	begun, before := f.seen(), map[string]string{}
	for _, n := range f.nodes {
		before[n.Name()] = facts(t, n.Guest)
	}
	timed(t, "a version that computes wrongly -> stopped after one node, taken back", func() {
		apply(t, f.first, eduPolicy(stage.VersionWrong, limits))
		policyState(t, f.first, "Stopped", 6*time.Minute)
	})
	touched := 0
	for _, n := range f.nodes {
		serves(t, n.Guest, stage.Version2)
		if facts(t, n.Guest) != before[n.Name()] {
			touched++
		}
	}
	if touched != 1 || f.seen() != begun+1 {
		t.Errorf("%d nodes were touched, want 1: %v", touched, f.order())
	}
	apply(t, f.first, eduPolicy(stage.Version2, "")) // back to what serves, and nothing is ordered any more
	policyState(t, f.first, "AllReady", 2*time.Minute)
}

// daemons is a pod on each node that keeps the node's device.
const daemons = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemons, namespace: default}
spec:
  selector: {matchLabels: {app: daemons}}
  template:
    metadata: {labels: {app: daemons}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: compute
        image: %s
        args: ["-expect", "1", "-hold", "2h"]
        resources: {limits: {%s: 1}}
`

// holding returns the DaemonSet's pod of each node, when each runs.
func (f *fleet) holding(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	for ctx := stage.Within(t, 3*time.Minute); ; time.Sleep(200 * time.Millisecond) {
		pods, err := clientset.Of(f.first).CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=daemons"})
		stage.Check(t, err)
		by := map[string]corev1.Pod{}
		for _, p := range pods.Items {
			if s := p.Status; s.Phase == corev1.PodRunning && p.DeletionTimestamp == nil &&
				len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].Ready {
				by[p.Spec.NodeName] = p
			}
		}
		if len(by) == len(f.nodes) {
			return by
		}
	}
}

// underDaemonSet: a drain leaves the pods of DaemonSets where they are, and one that keeps a device keeps its driver.
// The node that has its slot says who it is, and nobody else begins; no pod is ended. When the policy says that they
// are to be evicted the agent does it, once it has the right, and not the controller: the pod that the DaemonSet makes
// in its place waits for the new driver.
func underDaemonSet(t *testing.T, f *fleet) {
	_, err := f.first.Kubectl(stage.Within(t, 2*time.Minute), nil, "-n", "default", "delete", "deployment/compute",
		"pdb/compute", "--wait", "--cascade=foreground")
	stage.Check(t, err)
	apply(t, f.first, fmt.Appendf(nil, daemons, f.image, stage.Resource))
	before, begun := f.holding(t), f.seen()
	untouched := func() {
		t.Helper()
		for node, now := range f.holding(t) {
			if now.UID != before[node].UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("the pod of %s is %s, before %s", node, now.UID, before[node].UID)
			}
		}
		if f.seen() != begun+1 {
			t.Errorf("these have begun: %v", f.order()[begun:])
		}
		for _, n := range f.nodes {
			sh(t, n.Guest, `test "$(cat /sys/module/edu/version)" = "$1"`, stage.Version2)
		}
	}
	asked := func(holders string) {
		t.Helper()
		p := fmt.Sprintf(
			"  upgrade: {maxParallel: 1, maxUnavailable: 1, drain: {}}\n  kinds: {qemu-edu: {driver: {version: %q, upgrade: {holders: %s}}}}\n",
			stage.Version, holders)
		apply(t, f.first,
			[]byte("apiVersion: acceld.dev/v1alpha1\nkind: AcceleratorPolicy\nmetadata: {name: edu}\nspec:\n"+p))
	}
	// stuck waits until one node has its slot and cannot use it, and returns what it says.
	stuck := func(reason accel.Reason) string {
		t.Helper()
		for ctx := stage.Within(t, 4*time.Minute); ; time.Sleep(300 * time.Millisecond) {
			stage.Check(t, ctx.Err())
			for _, n := range f.nodes {
				m, err := stage.Machine(ctx, n.Guest)
				stage.Check(t, err)
				if u := m.Have[stage.Kind].Driver.Upgrade; u != nil && u.Failure != nil && u.Failure.Reason == reason {
					t.Logf("%s: %s", n.Name(), u.Failure.Message)
					if pod := before[n.Name()].Name; !strings.Contains(u.Failure.Message, "default/"+pod) {
						t.Errorf("%s does not name the pod %s: %s", n.Name(), pod, u.Failure.Message)
					}
					stage.Check(t, n.WaitNode(stage.Within(t, soon), "the condition names the pod",
						func(node *corev1.Node) bool {
							return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
								return string(c.Type) == kube.ConditionType && strings.Contains(c.Message,
									string(reason)) && strings.Contains(c.Message, before[n.Name()].Name)
							})
						}))
					return n.Name()
				}
			}
		}
	}
	asked("refuse")
	first := stuck(accel.InUse)
	untouched()
	asked("evict")
	if node := stuck(accel.APIForbidden); node != first {
		t.Errorf("%s is at it, before %s", node, first)
	}
	untouched()
	rights, err := f.first.Kubectl(t.Context(), nil, "kustomize", f.s.File("packaging/manifests/evict"))
	stage.Check(t, err)
	timed(t, "rights given -> both nodes serve version 1.0.0, one after the other", func() {
		apply(t, f.first, []byte(rights))
		for _, n := range f.nodes {
			serves(t, n.Guest, stage.Version)
		}
	})
	policyState(t, f.first, "AllReady", 2*time.Minute)
	for node, now := range f.holding(t) {
		if now.UID == before[node].UID {
			t.Errorf("the pod of %s is the one that had the old driver's device", node)
		}
	}
	if f.seen() != begun+2 {
		t.Errorf("%v, want each node once", f.order()[begun:])
	}
	f.uncordoned(t)
	stage.Check(t, f.first.Delete(stage.Within(t, 2*time.Minute), eduPolicy(stage.Version, "")))
}

// TestPartition: the real scheduler keeps a pod that wants no accelerator away from a node of a policy, and lets one of
// high priority take the place of one of low priority; when the policy goes, so does all of it.
func TestPartition(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	stage.Check(t, s.SourceOf(t.Context(), n.Guest, stage.Version))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	serves(t, n.Guest, stage.Version)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 1))
	stage.StartController(t, n, s, "")
	p := eduPolicy(stage.Version, `  partition:
    taints: [{key: example.com/edu, effect: NoSchedule}]
    priorityClasses: {high: {name: edu-high}, low: {name: edu-low}}
`)
	apply(t, n, p)
	stage.Check(t, n.WaitTaint(stage.Within(t, soon), "example.com/edu", true))
	cpu := fmt.Appendf(nil,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: cpu, namespace: default}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: sleep, image: %q, command: [sleep, \"3600\"]}\n",
		n.Image("bed/busybox:1"))
	apply(t, n, cpu)
	_, err = n.Kubectl(stage.Within(t, soon), nil, "wait", "pod/cpu",
		"--for=jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}=Unschedulable", "--timeout=60s")
	stage.Check(t, err)
	ranked := func(name, class string) []byte {
		return []byte(strings.Replace(string(stage.Pod(name, image, 1, "-expect", "1", "-hold", "2h")), "spec:\n",
			"spec:\n  priorityClassName: "+class+"\n  tolerations: [{key: example.com/edu, operator: Exists}]\n", 1))
	}
	apply(t, n, ranked("low", "edu-low"))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "low", corev1.PodRunning))
	timed(t, "a pod of high priority -> in the place of that of low priority", func() {
		apply(t, n, ranked("high", "edu-high"))
		stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "high", corev1.PodRunning))
	})
	if _, err := clientset.Of(n).CoreV1().Pods("default").Get(t.Context(), "low",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod of low priority is still there: %v", err)
	}
	stage.Check(t, n.Delete(stage.Within(t, soon), p))
	stage.Check(t, n.WaitTaint(stage.Within(t, soon), "example.com/edu", false))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "cpu", corev1.PodRunning))
	for _, class := range []string{"edu-high", "edu-low"} {
		if _, err := clientset.Of(n).SchedulingV1().PriorityClasses().Get(t.Context(), class,
			metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the priority class %q is still there: %v", class, err)
		}
	}
}

// TestStolenToken asks what somebody with the token of one agent, or of the controller, may do to a cluster: all
// rights, by the matrix of the API server's own discovery, with everything of the manifests that can be given; and what
// admission leaves of them, with the tokens of real pods. test/admission has the whole corpus of requests.
func TestStolenToken(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	stage.Check(t, s.Source(t.Context(), n.Guest))
	stage.Check(t, s.Deploy(t.Context(), n))
	stage.StartController(t, n, s, "")
	for _, dir := range []string{"dra", "binding", "evict", "topology", "cards", "validation"} {
		text, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/"+dir))
		stage.Check(t, err)
		apply(t, n, []byte(text))
	}
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	// the confined agent writes what it must
	stage.Check(t, n.WaitCondition(stage.Within(t, soon), kube.ConditionType, "True", ""))
	apply(t, n, []byte("apiVersion: v1\nkind: Node\nmetadata: {name: other}\n"))
	t.Cleanup(func() { _, _ = n.Kubectl(context.WithoutCancel(t.Context()), nil, "delete", "node", "other") })
	apply(t, n, eduPolicy(stage.Version, ""))
	ctx := stage.Within(t, 5*time.Minute)
	pods, err := clientset.Of(n).CoreV1().Pods(agents).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=acceld", FieldSelector: "spec.nodeName=" + n.Name()})
	stage.Check(t, err)
	own := tokenConfig(ctx, t, n, "acceld", "--bound-object-kind=Pod", "--bound-object-name="+pods.Items[0].Name)
	leader, err := stage.Leader(ctx, n)
	stage.Check(t, err)
	controller := tokenConfig(ctx, t, n, stage.ControllerName, "--bound-object-kind=Pod", "--bound-object-name="+leader)
	t.Run("rights of an agent", func(t *testing.T) { rights(ctx, t, own, admission.Agent()) })
	t.Run("rights of the controller", func(t *testing.T) { rights(ctx, t, controller, admission.Controller()) })
	bound, loose := clientOf(t, own), clientOf(t, tokenConfig(ctx, t, n, "acceld"))
	for _, c := range stolenPatches(n.Name()) {
		t.Run(c.name, func(t *testing.T) {
			client := bound
			if c.loose {
				client = loose
			}
			_, err := client.CoreV1().Nodes().Patch(ctx, c.node, c.form, []byte(c.patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, c.sub...)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	for _, c := range stolenWrites(bound, loose, clientOf(t, controller), n.Name()) {
		t.Run(c.name, func(t *testing.T) {
			if err := c.try(ctx); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// rights holds what the token of a configuration may do to a table.
func rights(ctx context.Context, t *testing.T, config *rest.Config, want []string) {
	t.Helper()
	got, err := admission.Allowed(ctx, config, agents, policy.ValidationNamespace, "default", "kube-system")
	stage.Check(t, err)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// stolenWrite is one write with a stolen token, of which nothing comes; it is allowed when it says nothing.
type stolenWrite struct {
	name, says string
	try        func(ctx context.Context) error
}

// stolenWrites are writes that RBAC allows: admission decides them by what the token says of its pod.
func stolenWrites(bound, loose, controller *kubernetes.Clientset, own string) []stolenWrite {
	return append(stolenLeases(bound, loose, controller, own), append(stolenEvents(bound, loose, own),
		stolenPolicies(controller, bound)...)...)
}

func stolenLeases(bound, loose, controller *kubernetes.Clientset, own string) []stolenWrite {
	write := func(c *kubernetes.Clientset, name, holder string) func(context.Context) error {
		return func(ctx context.Context) error {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
			l.Spec.HolderIdentity = &holder
			_, err := c.CoordinationV1().Leases(agents).Create(ctx, l,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	const build = "acceld-build-0123456789abcdef"
	return []stolenWrite{
		{"a build", "", write(bound, build, own)},
		{"a build of another node", "for that node only", write(bound, build, "other")},
		{"a build of no node", "names no node", write(loose, build, own)},
		{"a build of the controller", "its own election only", write(controller, build, own)},
		{"a lease of somebody", "leases of builds only", write(bound, "somebody", own)},
		{"the controller's lease", "leases of builds only", func(ctx context.Context) error {
			l, err := bound.CoordinationV1().Leases(agents).Get(ctx, stage.ControllerName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			l.Spec.HolderIdentity = &own
			_, err = bound.CoordinationV1().Leases(agents).Update(ctx, l,
				metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
	}
}

func stolenEvents(bound, loose *kubernetes.Clientset, own string) []stolenWrite {
	write := func(c *kubernetes.Clientset, node, reporter string) func(context.Context) error {
		return func(ctx context.Context) error {
			e := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: node + ".stolen", Namespace: metav1.NamespaceDefault},
				EventTime:  metav1.NowMicro(), ReportingController: reporter, ReportingInstance: node, Action: "Observe",
				Reason: "Ready", Type: corev1.EventTypeNormal,
				Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node},
			}
			_, err := c.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, e,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	return []stolenWrite{
		{"an event", "", write(bound, own, kube.Controller)},
		{"an event of another node", "of that node only", write(bound, "other", kube.Controller)},
		{"an event in the kubelet's name", "its own events only", write(bound, own, "kubelet")},
		{"an event of no node", "names no node", write(loose, own, kube.Controller)},
	}
}

// stolenPolicies are what the two tokens could do to policies and pods.
func stolenPolicies(controller, agent *kubernetes.Clientset) []stolenWrite {
	patch := func(c *kubernetes.Clientset, path, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(kube.PoliciesPath+"/edu"+path).Param("dryRun",
				metav1.DryRunAll).Body([]byte(text)).Do(ctx).Error()
		}
	}
	evict := func(c *kubernetes.Clientset) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.PolicyV1().Evictions(agents).Evict(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Name: "nobody", Namespace: agents},
				DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
			})
		}
	}
	const program = `{"spec":{"definitions":[{"kind":"example-x","probe":{"argv":["/bin/sh"]}}]}}`
	const named = `{"status":{"definitions":[{"name":"evil/x.yaml","text":"kind: example-x"}]}}`
	return []stolenWrite{
		{"the controller's finalizer", "", patch(controller, "", `{"metadata":{"finalizers":["acceld.dev/policy"]}}`)},
		{"a program in a policy", "what a policy asks for", patch(controller, "", program)},
		{"a definition that no policy names", "a config map that the policy names", patch(controller, "/status", named)},
		{"a policy of an agent", "cannot patch", patch(agent, "", `{"spec":{"dryRun":true}}`)},
		{"a slot of an agent", "cannot patch", patch(agent, "/status", `{"status":{"slots":[]}}`)},
		{"an eviction by name", "by its UID", evict(agent)},
		{"an eviction by name with the controller's token", "by its UID", evict(controller)},
	}
}

// stolenPatch is one patch of a node with a stolen token; it is allowed when it says nothing.
type stolenPatch struct {
	name, node  string
	form        types.PatchType
	patch, says string
	sub         []string
	loose       bool
}

func stolenPatches(own string) []stolenPatch {
	merge, strategic := types.MergePatchType, types.StrategicMergePatchType
	status := []string{"status"}
	condition := `{"status":{"conditions":[{"type":%q,"status":"True","reason":"X","message":"x"}]}}`
	of := "may write that node only"
	return []stolenPatch{
		{name: "own label", node: own, form: merge, patch: `{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"7"}}}`},
		{
			name: "own state", node: own, form: merge,
			patch: `{"metadata":{"labels":{"acceld.dev/driver-container-qemu-edu":"pending"}}}`,
		},
		{
			name: "shared label", node: own, form: merge,
			patch: `{"metadata":{"labels":{"feature.node.kubernetes.io/pci-1234.present":"true"}}}`,
		},
		{
			name: "own word", node: own, form: merge,
			patch: `{"metadata":{"annotations":{"acceld.dev/upgrade-qemu-edu":"waiting 2.0.0"}}}`,
		},
		{name: "own cards", node: own, form: merge, patch: `{"metadata":{"annotations":{"acceld.dev/cards":"[]"}}}`},
		{name: "own served", node: own, form: merge, patch: `{"metadata":{"annotations":{"acceld.dev/served-qemu-edu":"x"}}}`},
		{
			name: "own cards with amounts", node: own, form: merge,
			patch: `{"metadata":{"annotations":{"acceld.dev/cards":"[{\"name\":\"c\",\"has\":{\"a/b\":\"1e12\",\"a/c\":\"8Gi\"}}]"}}}`,
		},
		{
			name: "an amount without end", node: own, form: merge, says: "nothing can have",
			patch: `{"metadata":{"annotations":{"acceld.dev/cards":"[{\"name\":\"c\",\"has\":{\"a/b\":\"1E-2147483647\"}}]"}}}`,
		},
		{
			name: "an escaped one", node: own, form: merge, says: "nothing can have",
			patch: `{"metadata":{"annotations":{"acceld.dev/cards":"[{\"name\":\"c\",\"has\":{\"a/b\":\"1\\u0045-2147483647\"}}]"}}}`,
		},
		{
			name: "long cards", node: own, form: merge, says: "longer than what is read",
			patch: `{"metadata":{"annotations":{"acceld.dev/cards":"[` + strings.Repeat(" ", 128<<10) + `]"}}}`,
		},
		{
			name: "a long report", node: own, form: merge, says: "longer than what is read",
			patch: `{"metadata":{"annotations":{"acceld.dev/upgrade-qemu-edu":"waiting ` + strings.Repeat("2", 400) + `"}}}`,
		},
		{
			name: "own condition", node: own, form: strategic, patch: fmt.Sprintf(condition, kube.ConditionType),
			sub: status,
		},
		{
			name: "grant itself", node: own, form: merge,
			patch: `{"metadata":{"annotations":{"acceld.dev/grant-qemu-edu":"2.0.0"}}}`,
			says:  "may not write these annotations",
		},
		{
			name: "somebody's label", node: own, form: merge,
			patch: `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
			says:  "may not write these labels",
		},
		{
			name: "people's label", node: own, form: merge, patch: `{"metadata":{"labels":{"acceld.dev/team":"x"}}}`,
			says: "may not write these labels",
		},
		{
			name: "taint", node: own, form: merge, patch: `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`,
			says: "acceld.dev/not-ready:NoSchedule only",
		},
		{
			name: "startup taint that evicts", node: own, form: merge,
			patch: `{"spec":{"taints":[{"key":"acceld.dev/not-ready","effect":"NoExecute"}]}}`,
			says:  "acceld.dev/not-ready:NoSchedule only",
		},
		{
			name: "startup taint", node: own, form: merge,
			patch: `{"spec":{"taints":[{"key":"acceld.dev/not-ready","effect":"NoSchedule"}]}}`,
		},
		{name: "cordon", node: own, form: merge, patch: `{"spec":{"unschedulable":true}}`, says: "may not cordon"},
		{
			name: "owner", node: own, form: merge,
			patch: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y"}]}}`,
			says:  "owners and finalizers",
		},
		{
			name: "finalizer", node: own, form: merge, patch: `{"metadata":{"finalizers":["example.com/x"]}}`,
			says: "owners and finalizers",
		},
		{
			name: "kubelet's condition", node: own, form: strategic, patch: fmt.Sprintf(condition, "Ready"),
			sub:  status,
			says: "those of its own work only",
		},
		{
			name: "capacity", node: own, form: merge, patch: `{"status":{"capacity":{"example.com/gold":"9"}}}`,
			sub: status, says: "may not write these amounts",
		},
		{
			name: "addresses", node: own, form: merge,
			patch: `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`, sub: status,
			says: "those of its own work only",
		},
		{
			name: "another's label", node: "other", form: merge,
			patch: `{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"7"}}}`, says: of,
		},
		{
			name: "another's word", node: "other", form: merge,
			patch: `{"metadata":{"annotations":{"acceld.dev/upgrade-qemu-edu":"failed 2.0.0 X"}}}`, says: of,
		},
		{
			name: "another's cards", node: "other", form: merge,
			patch: `{"metadata":{"annotations":{"acceld.dev/cards":"[]"}}}`, says: of,
		},
		{
			name: "another's condition", node: "other", form: strategic,
			patch: fmt.Sprintf(condition, kube.ConditionType),
			sub:   status, says: of,
		},
		{name: "another's taint", node: "other", form: merge, patch: `{"spec":{"taints":null}}`, says: of},
		{
			name: "a token of no node", node: own, form: merge,
			patch: `{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"7"}}}`, says: "names no node", loose: true,
		},
	}
}
