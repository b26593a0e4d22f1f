package bed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/test/vm/cluster"
)

// Node is a guest with systemd and, unless it was started without, a Kubernetes cluster of which it is the only node.
type Node struct {
	*Guest
	plane *cluster.Plane
	// host is the node that runs the control plane, nil for the one that does.
	host *Node

	joined struct {
		sync.Mutex
		nodes []*Node
	}
}

// NodeName is the name in the cluster of the node that was started with it.
const NodeName = "bed-node"

// Name is the node's name in the cluster.
func (n *Node) Name() string { return n.member.Hostname }

// Client is the bed's own client; package clientset has the usual one.
func (n *Node) Client() *cluster.Client { return n.plane.Client() }

// REST is the admin's configuration for other clients.
func (n *Node) REST() *rest.Config { return n.plane.REST() }

// Kubeconfig is the admin's client configuration file.
func (n *Node) Kubeconfig() string { return n.plane.Kubeconfig() }

// Plane is the control plane, or nil without Kubernetes.
func (n *Node) Plane() *cluster.Plane { return n.plane }

// Stop takes everything down at once.
func (n *Node) Stop() {
	if n.plane != nil && n.host == nil {
		n.plane.Stop()
	}
	n.Guest.Stop()
}

// Reboot restarts the guest and, in a cluster that it can reach, waits until the node is ready again by its own word.
func (n *Node) Reboot(ctx context.Context, r Reboot) error {
	since := time.Now()
	if err := n.Guest.Reboot(ctx, r); err != nil {
		return err
	}
	if r.NetworkCut {
		return nil
	}
	if err := n.waitUp(ctx, since); err != nil || n.plane == nil {
		return err
	}
	return n.waitBoot(ctx)
}

// waitBoot waits until the kubelet has reported this boot. The kubelet renews its lease first, while the
// node's object still has the allocatable resources of the previous boot.
func (n *Node) waitBoot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	boot, err := n.ReadFile(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	return n.WaitNode(ctx, "the kubelet reports this boot", func(node *corev1.Node) bool {
		return node.Status.NodeInfo.BootID == strings.TrimSpace(string(boot))
	})
}

// WaitReady waits until the kubelet says, from now on, that the node is ready.
func (n *Node) WaitReady(ctx context.Context) error { return n.waitUp(ctx, time.Now()) }

// Kubectl runs the real kubectl as the admin.
func (n *Node) Kubectl(ctx context.Context, input io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.bed.Program("kubectl"), append([]string{"--kubeconfig", n.Kubeconfig()},
		args...)...)
	cmd.Stdin = input
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("cannot run kubectl %q: %w: %s", args[0], err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Apply applies manifests.
func (n *Node) Apply(ctx context.Context, manifest []byte) error {
	_, err := n.Kubectl(ctx, bytes.NewReader(manifest), "apply", "-f", "-")
	return err
}

// Delete deletes what manifests describe and waits until it is gone.
func (n *Node) Delete(ctx context.Context, manifest []byte) error {
	_, err := n.Kubectl(ctx, bytes.NewReader(manifest), "delete", "--wait", "--ignore-not-found", "-f", "-")
	return err
}

// Bed is the test bed that the node is part of.
func (n *Node) Bed() *Bed { return n.bed }

// PodLog is what a pod's only container said.
func (n *Node) PodLog(ctx context.Context, namespace, name string) (string, error) {
	log, err := n.Client().Log(ctx, namespace, name)
	if err != nil {
		return "", fmt.Errorf("cannot read the log of pod %q: %w", namespace+"/"+name, err)
	}
	return string(log), nil
}

// WaitNode waits until the node's object satisfies a predicate; what names it in the error.
func (n *Node) WaitNode(ctx context.Context, what string, satisfied func(*corev1.Node) bool) error {
	nodes := cluster.Core("nodes", "")
	var last *corev1.Node
	err := wait(ctx,
		func() (string, bool, error) {
			var list corev1.NodeList
			err := n.Client().List(ctx, nodes, metav1.ListOptions{FieldSelector: byName(n.Name())}, &list)
			if err != nil {
				return "", false, err
			}
			for i := range list.Items {
				last = &list.Items[i]
				if satisfied(last) {
					return "", true, nil
				}
			}
			return list.ResourceVersion, false, nil
		},
		func(version string) (watch.Interface, error) {
			return n.Client().Watch(ctx, nodes,
				metav1.ListOptions{FieldSelector: byName(n.Name()), ResourceVersion: version})
		},
		func(e watch.Event) bool {
			node, ok := e.Object.(*corev1.Node)
			if ok {
				last = node
			}
			return ok && e.Type != watch.Deleted && satisfied(node)
		})
	if err != nil {
		return fmt.Errorf("cannot see that %s: %w; the node is %s", what, err, describeNode(last))
	}
	return nil
}

func describeNode(node *corev1.Node) string {
	if node == nil {
		return "not registered"
	}
	return fmt.Sprintf("%+v, labels %v, taints %v", node.Status.Conditions, node.Labels, node.Spec.Taints)
}

func byName(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// wait lists, then watches from there, and starts over when the watch ends; an API server that is away is waited for.
func wait(ctx context.Context, list func() (string, bool, error), open func(string) (watch.Interface, error),
	done func(watch.Event) bool,
) error {
	var lastErr error
	for {
		version, ok, err := list()
		if ok {
			return nil
		}
		if err == nil {
			var w watch.Interface
			if w, err = open(version); err == nil {
				ok = drain(ctx, w, done)
				w.Stop()
			}
			if ok {
				return nil
			}
		}
		if err != nil {
			lastErr = err
		}
		select {
		case <-ctx.Done():
			if lastErr != nil {
				return fmt.Errorf("%w (last error: %v)", context.Cause(ctx), lastErr)
			}
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func drain(ctx context.Context, w watch.Interface, done func(watch.Event) bool) bool {
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				return false
			}
			if done(e) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// WaitPod waits until a pod is in a phase.
func (n *Node) WaitPod(ctx context.Context, namespace, name string, phase corev1.PodPhase) error {
	return n.WaitPodUntil(ctx, namespace, name, string(phase), func(p *corev1.Pod) bool {
		if p.Status.Phase != phase {
			return false
		}
		if phase != corev1.PodRunning {
			return true
		}
		for _, c := range p.Status.ContainerStatuses {
			if !c.Ready {
				return false
			}
		}
		return len(p.Status.ContainerStatuses) > 0
	})
}

// WaitPodUntil waits until a pod is as what says.
func (n *Node) WaitPodUntil(ctx context.Context, namespace, name, what string, is func(*corev1.Pod) bool) error {
	pods := cluster.Core("pods", namespace)
	var last *corev1.Pod
	satisfied := func(p *corev1.Pod) bool {
		last = p
		return is(p)
	}
	err := wait(ctx,
		func() (string, bool, error) {
			var l corev1.PodList
			err := n.Client().List(ctx, pods, metav1.ListOptions{FieldSelector: byName(name)}, &l)
			if err != nil {
				return "", false, err
			}
			return l.ResourceVersion, len(l.Items) > 0 && satisfied(&l.Items[0]), nil
		},
		func(version string) (watch.Interface, error) {
			return n.Client().Watch(ctx, pods,
				metav1.ListOptions{FieldSelector: byName(name), ResourceVersion: version})
		},
		func(e watch.Event) bool {
			p, ok := e.Object.(*corev1.Pod)
			return ok && e.Type != watch.Deleted && satisfied(p)
		})
	if err == nil {
		return nil
	}
	if last == nil {
		return fmt.Errorf("cannot wait for pod %q to be %s: %w; it does not exist", name, what, err)
	}
	return fmt.Errorf("cannot wait for pod %q to be %s: %w; it is %+v", name, what, err, last.Status)
}

// WaitLabel waits for a label of the node; an empty value waits until there is no such label.
func (n *Node) WaitLabel(ctx context.Context, key, value string) error {
	return n.WaitNode(ctx, fmt.Sprintf("label %q is %q", key, value), func(node *corev1.Node) bool {
		return node.Labels[key] == value
	})
}

// WaitCondition waits for a condition of the node; an empty reason accepts any.
func (n *Node) WaitCondition(ctx context.Context, kind, status, reason string) error {
	return n.WaitNode(ctx, fmt.Sprintf("condition %q is %q", kind, status), func(node *corev1.Node) bool {
		for _, c := range node.Status.Conditions {
			if string(c.Type) == kind {
				return string(c.Status) == status && (reason == "" || c.Reason == reason)
			}
		}
		return false
	})
}

// WaitAllocatable waits until the node offers exactly this much of an extended resource.
func (n *Node) WaitAllocatable(ctx context.Context, resource string, count int64) error {
	return n.WaitNode(ctx, fmt.Sprintf("%d of %q are allocatable", count, resource), func(node *corev1.Node) bool {
		quantity := node.Status.Allocatable[corev1.ResourceName(resource)]
		return quantity.Value() == count
	})
}

// WaitTaint waits until the node has, or has not, a taint.
func (n *Node) WaitTaint(ctx context.Context, key string, present bool) error {
	return n.WaitNode(ctx, fmt.Sprintf("taint %q present is %v", key, present), func(node *corev1.Node) bool {
		for _, t := range node.Spec.Taints {
			if t.Key == key {
				return present
			}
		}
		return !present
	})
}

// StopAPIServer ends the API server; StartAPIServer brings it back and waits until it is ready.
func (n *Node) StopAPIServer() { n.plane.StopAPIServer() }

// StartAPIServer brings the API server back and waits until it is ready.
func (n *Node) StartAPIServer(ctx context.Context) error { return n.plane.StartAPIServer(ctx) }

// RestartKubelet restarts the kubelet.
func (n *Node) RestartKubelet(ctx context.Context) error {
	return n.systemctl(ctx, "restart", "kubelet")
}

// RestartEngine restarts the container runtime.
func (n *Node) RestartEngine(ctx context.Context) error {
	return n.systemctl(ctx, "restart", string(n.engine))
}

func (n *Node) systemctl(ctx context.Context, verb, unit string) error {
	r, err := n.Run(ctx, "systemctl", verb, unit)
	if err == nil && !r.OK() {
		err = fmt.Errorf("cannot %s %q: %s", verb, unit, strings.TrimSpace(r.Stderr))
	}
	return err
}
