package kubelet

import (
	"context"
	"fmt"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// The real kubelet's paths below its --root-dir.
const (
	Registry  = "/var/lib/kubelet/plugins_registry"
	claimsDir = "/var/lib/kubelet"
)

// Claims is the part of one life of a kubelet that a DRA plugin meets: the plugin watcher and the manager of claims.
type Claims struct {
	manager *dra.Manager
	log     klog.Logger
	stop    func()
}

// StartClaims starts that part on pods, with an API server. At its start it deletes every slice of the node.
func StartClaims(pods *Pods, client kubernetes.Interface, node string) (*Claims, error) {
	if err := os.MkdirAll(Registry, 0o750); err != nil {
		return nil, err
	}
	log := klog.Background()
	manager, err := dra.NewManager(log, client, claimsDir)
	if err != nil {
		return nil, fmt.Errorf("cannot make a manager of claims: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	getNode := func(ctx context.Context) (*v1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	}
	if err := manager.Start(ctx, pods.GetActivePods, getNode, ready{}); err != nil {
		stop()
		return nil, fmt.Errorf("cannot start the manager of claims: %w", err)
	}
	watcher := pluginmanager.NewPluginManager(Registry, &record.FakeRecorder{})
	handler, leave := claimsHandler(manager)
	watcher.AddHandler(registration.DRAPlugin, handler)
	go watcher.Run(ctx, ready{}, ctx.Done())
	return &Claims{manager, log, func() { stop(); leave() }}, nil
}

// Stop ends the kubelet as SIGTERM does; what it knows of claims is on the disk.
func (c *Claims) Stop() {
	c.stop()
}

// Prepare makes the claims of a pod ready, as the start of its sandbox does, and returns what its container gets.
func (c *Claims) Prepare(ctx context.Context, pod *v1.Pod) ([]string, error) {
	if err := c.manager.PrepareResources(ctx, pod); err != nil {
		return nil, err
	}
	info, err := c.manager.GetResources(pod, &pod.Spec.Containers[0])
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range info.CDIDevices {
		// A kubelet before 1.37 names a device once more each time that it has it prepared (no resetDevices in
		// cm/dra/claiminfo.go).
		if newest || !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

// Unprepare gives the claims of a pod back.
func (c *Claims) Unprepare(ctx context.Context, pod *v1.Pod) error {
	return c.manager.UnprepareResources(ctx, pod)
}

// Health is the health of the devices of a pod's container with its message, as its status would say.
func (c *Claims) Health(pod *v1.Pod) []string {
	status := pod.Status.DeepCopy()
	updateClaimStatus(c.manager, c.log, pod, status)
	var all []string
	for _, s := range status.ContainerStatuses {
		for _, r := range s.AllocatedResourcesStatus {
			for _, d := range r.Resources {
				text := string(d.Health)
				if d.Message != nil {
					text += ": " + *d.Message
				}
				all = append(all, text)
			}
		}
	}
	return all
}
