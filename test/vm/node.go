package vm

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/vm/bed"
)

// Node is a guest with systemd and, unless it was started without, a Kubernetes cluster. Its methods end the test on
// failure.
type Node struct {
	*Guest
	// Cluster is the core of the node: the same methods with a context and an error.
	Cluster *bed.Node
	// Patience bounds every wait for the cluster.
	Patience time.Duration
}

// StartNode starts a ready node. It is stopped when the test ends.
func StartNode(t testing.TB, o Options) *Node {
	t.Helper()
	b := open(t)
	core, err := b.StartNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			report(t, core.Collect)
		}
		core.Stop()
	})
	return &Node{Guest: &Guest{Core: core.Guest, t: t}, Cluster: core, Patience: 2 * time.Minute}
}

// StartPair starts two nodes of one cluster. They are stopped when the test ends.
func StartPair(t testing.TB, o Options) (first, second *Node) {
	t.Helper()
	b := open(t)
	one, two, err := b.StartPair(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			report(t, one.Collect)
			report(t, two.Collect)
		}
		two.Stop()
		one.Stop()
	})
	return &Node{&Guest{one.Guest, t}, one, 2 * time.Minute}, &Node{&Guest{two.Guest, t}, two, 2 * time.Minute}
}

// within gives a wait for the cluster its time.
func (n *Node) within(wait func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), n.Patience)
	defer cancel()
	n.check(wait(ctx))
}

// Kubeconfig is the admin's client configuration file.
func (n *Node) Kubeconfig() string { return n.Cluster.Kubeconfig() }

// Image is the name that a pod gives for an image of the bed's registry. "bed/busybox:1" is always there.
func (n *Node) Image(name string) string { return n.Cluster.Image(name) }

// PushImage stores an image that is busybox with these files on top, and returns the name that a pod gives for it.
func (n *Node) PushImage(name string, files map[string]File, entrypoint ...string) string {
	n.t.Helper()
	ctx, cancel := n.step()
	defer cancel()
	full, err := n.Cluster.PushImage(ctx, name, files, entrypoint...)
	n.check(err)
	return full
}

// Apply applies manifests with the real kubectl.
func (n *Node) Apply(manifest string) {
	n.t.Helper()
	ctx, cancel := n.step()
	defer cancel()
	n.check(n.Cluster.Apply(ctx, []byte(manifest)))
}

// Delete deletes what manifests describe and waits until it is gone.
func (n *Node) Delete(manifest string) {
	n.t.Helper()
	ctx, cancel := n.step()
	defer cancel()
	n.check(n.Cluster.Delete(ctx, []byte(manifest)))
}

// Kubectl runs the real kubectl as the admin and returns its output.
func (n *Node) Kubectl(args ...string) string {
	n.t.Helper()
	ctx, cancel := n.step()
	defer cancel()
	out, err := n.Cluster.Kubectl(ctx, nil, args...)
	n.check(err)
	return out
}

// Wait waits until the node's object satisfies a predicate; what names it when the wait is in vain.
func (n *Node) Wait(what string, satisfied func(*corev1.Node) bool) {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitNode(ctx, what, satisfied) })
}

// WaitLabel waits for a label of the node; an empty value waits until there is no such label.
func (n *Node) WaitLabel(key, value string) {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitLabel(ctx, key, value) })
}

// WaitCondition waits for a condition of the node; an empty reason accepts any.
func (n *Node) WaitCondition(kind, status, reason string) {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitCondition(ctx, kind, status, reason) })
}

// WaitAllocatable waits until the node offers exactly this much of an extended resource.
func (n *Node) WaitAllocatable(resource string, count int64) {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitAllocatable(ctx, resource, count) })
}

// WaitTaint waits until the node has, or has not, a taint.
func (n *Node) WaitTaint(key string, present bool) {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitTaint(ctx, key, present) })
}

// WaitPod waits until a pod is in a phase; a running one must be ready as well.
func (n *Node) WaitPod(namespace, name string, phase corev1.PodPhase) {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitPod(ctx, namespace, name, phase) })
}

// PodLog is what a pod's only container said.
func (n *Node) PodLog(namespace, name string) string {
	n.t.Helper()
	var log string
	n.within(func(ctx context.Context) (err error) {
		log, err = n.Cluster.PodLog(ctx, namespace, name)
		return err
	})
	return log
}

// Reboot restarts the guest with the accelerators that are plugged now and, in a cluster that it can reach, waits until
// the node is ready again by its own word.
func (n *Node) Reboot(r Reboot) {
	n.t.Helper()
	ctx, cancel := n.step()
	defer cancel()
	n.check(n.Cluster.Reboot(ctx, r))
}

// WaitReady waits until the kubelet says, from now on, that the node is ready: the node's object alone says so for up
// to 40 seconds after the kubelet has died.
func (n *Node) WaitReady() {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.WaitReady(ctx) })
}

// StopAPIServer ends the API server; etcd, the guest and everything else go on.
func (n *Node) StopAPIServer() { n.Cluster.StopAPIServer() }

// StartAPIServer brings the API server back and waits until it is ready.
func (n *Node) StartAPIServer() {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.StartAPIServer(ctx) })
}

// RestartKubelet restarts the kubelet.
func (n *Node) RestartKubelet() {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.RestartKubelet(ctx) })
}

// RestartEngine restarts the container runtime.
func (n *Node) RestartEngine() {
	n.t.Helper()
	n.within(func(ctx context.Context) error { return n.Cluster.RestartEngine(ctx) })
}
