package kube

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// cluster is a fake API server with a task that keeps node-a up to date.
type cluster struct {
	t   *testing.T
	api *fake.Clientset
	k   *Kube
	// refuse makes the server fail an action if it returns an error.
	mu      sync.Mutex
	refuse  func(clienttesting.Action) error
	changes int
}

// inCluster runs f in its own bubble, with the task running.
func inCluster(t *testing.T, node *corev1.Node, f func(*cluster), configure ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		var objects []runtime.Object
		if node != nil {
			objects = append(objects, node)
		}
		c.api = fake.NewClientset(objects...)
		c.api.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if err := c.refusal(a); err != nil {
				return true, nil, err
			}
			return c.bump(a)
		})
		cfg := Config{
			Client: Client{
				Nodes: c.api.CoreV1().Nodes(), Events: c.api.EventsV1().Events(EventNamespace),
				Version: func(context.Context) (string, error) { return "v1.37.1", nil },
			},
			Node: "node-a", OnChange: func() { c.changes++ },
		}
		for _, g := range configure {
			g(&cfg)
		}
		c.k = New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.k.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}()
		f(c)
	})
}

func (c *cluster) refusal(a clienttesting.Action) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse == nil {
		return nil
	}
	return c.refuse(a)
}

// bump increments the resource version with each patch of a node, as the API server does and the tracker does not.
func (c *cluster) bump(a clienttesting.Action) (bool, runtime.Object, error) {
	if a.GetVerb() != "patch" || a.GetResource().Resource != "nodes" {
		return false, nil, nil
	}
	if _, _, err := clienttesting.ObjectReaction(c.api.Tracker())(a); err != nil {
		return true, nil, err
	}
	n := c.node().DeepCopy() // with its managed fields, which the reaction's answer lacks
	v, _ := strconv.Atoi(n.ResourceVersion)
	n.ResourceVersion = strconv.Itoa(v + 1)
	return true, n, c.api.Tracker().Update(a.GetResource(), n, "")
}

// refusing makes the server answer errors; nil makes it work again.
func (c *cluster) refusing(f func(clienttesting.Action) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = f
}

// after lets time pass.
func (c *cluster) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// node reads the node without the refusals.
func (c *cluster) node() *corev1.Node {
	c.t.Helper()
	o, err := c.api.Tracker().Get(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", "node-a")
	if err != nil {
		c.t.Fatal(err)
	}
	return o.(*corev1.Node)
}

// edit patches the node as somebody else would.
func (c *cluster) edit(patch string) {
	c.t.Helper()
	_, err := c.api.CoreV1().Nodes().Patch(c.t.Context(), "node-a", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// patches returns the patches of nodes since the last call, as "metadata" or "status", and forgets every request.
func (c *cluster) patches() []string {
	var all []string
	for _, a := range c.api.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && a.GetResource().Resource == "nodes" {
			name := p.GetSubresource()
			if name == "" {
				name = "metadata"
			}
			all = append(all, name)
		}
	}
	c.api.ClearActions()
	return all
}

// events returns reason and note of every event.
func (c *cluster) events() []string {
	c.t.Helper()
	list, err := c.api.EventsV1().Events(EventNamespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Type+" "+e.Reason+" "+e.Note)
	}
	return all
}

func (c *cluster) condition() corev1.NodeCondition {
	for _, cond := range c.node().Status.Conditions {
		if cond.Type == ConditionType {
			return cond
		}
	}
	return corev1.NodeCondition{}
}

func freshNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-a", UID: "u-1", ResourceVersion: "1",
		Labels: map[string]string{"kubernetes.io/hostname": "node-a"},
	}}
	// The fake, unlike the API server, tracks owners only of objects that have some.
	f := &metav1.FieldsV1{}
	f.SetRawBytes([]byte(`{"f:metadata":{"f:labels":{"f:kubernetes.io/hostname":{}}}}`))
	n.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: f,
	}}
	n.Spec.Taints = []corev1.Taint{
		{Key: "example.com/x", Effect: corev1.TaintEffectNoExecute},
		{Key: TaintKey, Effect: corev1.TaintEffectNoSchedule},
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady",
	}}
	return n
}
