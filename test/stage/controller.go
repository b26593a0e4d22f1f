package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/acceld/acceld/test/vm/bed"
)

const (
	// Namespace is that of the manifests.
	Namespace = "acceld-system"
	// ControllerName is the name of the controller's Deployment, Service, Lease and config map.
	ControllerName = "acceld-controller"
	// controllerPods is the label of the controller's pods.
	controllerPods = "app.kubernetes.io/component=" + ControllerName
)

// Controller applies the manifests of the controller with the image of this tree and waits until its replicas are
// ready: it may do what the manifests say and no more. Config takes the place of the manifests' controller.yaml unless
// it is empty. The namespace is there.
func (s *Stage) Controller(ctx context.Context, n *bed.Node, config string) error {
	image, err := s.ControllerImage(ctx, n)
	if err != nil {
		return err
	}
	more := ""
	if config != "" {
		// Quoted as in Go, a text is the same in YAML.
		more = fmt.Sprintf("patches: [{patch: %q}]\n", fmt.Sprintf(
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}, data: {controller.yaml: %q}}",
			ControllerName, Namespace, config))
	}
	if err := s.applyOver(ctx, n, "packaging/manifests/controller", ControllerName, image, more, ""); err != nil {
		return err
	}
	for _, args := range [][]string{
		{
			"wait", "--for=condition=Established", "crd/acceleratorpolicies.acceld.dev",
			"crd/acceleratordevices.acceld.dev", "--timeout=60s",
		},
		{"-n", Namespace, "rollout", "status", "deployment/" + ControllerName, "--timeout=5m"},
	} {
		if _, err := n.Kubectl(ctx, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// Leader is the name of the controller's pod that holds the lease.
func Leader(ctx context.Context, n *bed.Node) (string, error) {
	lease, err := n.Client().Lease(ctx, Namespace, ControllerName)
	if err != nil {
		return "", fmt.Errorf("cannot read the controller's lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("no replica of the controller is the leader")
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_") // the host's name, which is the pod's, and a random part
	return pod, nil
}

// KillController ends the leader at once, as a crash of its node would as far as the API server can tell, and returns
// its name.
func KillController(ctx context.Context, n *bed.Node) (string, error) {
	pod, err := Leader(ctx, n)
	if err != nil {
		return "", err
	}
	_, err = n.Kubectl(ctx, nil, "-n", Namespace, "delete", "pod", pod, "--grace-period=0", "--force")
	return pod, err
}

// ControllerLog is what the controller's pods look like and have said.
func ControllerLog(ctx context.Context, n *bed.Node) string {
	var all strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-l", controllerPods, "-o", "wide"},
		{"logs", "-l", controllerPods, "--prefix", "--tail=200"},
		{"logs", "-l", controllerPods, "--prefix", "--tail=50", "--previous", "--ignore-errors"},
	} {
		out, err := n.Kubectl(ctx, nil, append([]string{"-n", Namespace}, args...)...)
		all.WriteString(out)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}
