package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// provenPolicy validates the kind with edu-check, and has its definition from a config map.
func provenPolicy(image, args string, alone bool) []byte {
	return fmt.Appendf(nil, `apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: edu}
spec:
  kinds: {qemu-edu: {}}
  definitionsFrom: [{configMap: definitions, key: edu.yaml}]
  validation:
    workloads:
      qemu-edu: {image: %s, args: [%s], resource: qemu.org/edu, alone: %v}
    timeout: 2m
`, image, args, alone)
}

// validationGrant lets the controller run an image, with the resource.
const validationGrant = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: edu-check}
rules:
- {apiGroups: [acceld.dev], resources: [validationimages], resourceNames: [%q], verbs: [use]}
- {apiGroups: [acceld.dev], resources: [validationresources], resourceNames: [qemu.org/edu], verbs: [use]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: edu-check}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edu-check}
subjects: [{kind: ServiceAccount, name: acceld-controller, namespace: acceld-system}]
`

// outcomeOf waits for the outcome of a validation and returns what the node says of it.
func outcomeOf(t *testing.T, n *bed.Node, outcome, why string) {
	t.Helper()
	var text string
	err := n.WaitNode(stage.Within(t, 3*time.Minute), "a validation that is "+outcome, func(node *corev1.Node) bool {
		text = node.Annotations["acceld.dev/validation-"+stage.Kind]
		return node.Labels["acceld.dev/validation-"+stage.Kind] == outcome && strings.Contains(text, why)
	})
	t.Logf("the node says: %s", text)
	stage.Check(t, err)
}

// admissionInForce waits until the API server decides by the admission policy of the validations: it learns of a
// policy some time after it has it, and lets in what comes before. Nothing comes of what is asked here.
func admissionInForce(t *testing.T, n *bed.Node) {
	t.Helper()
	ctx := stage.Within(t, soon)
	for {
		_, err := n.Kubectl(ctx, nil, "run", "stray", "--image=example.com/stray", "--dry-run=server",
			"--namespace="+policy.ValidationNamespace, "--as=system:serviceaccount:acceld-system:acceld-controller")
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the API server lets in a stray pod of the controller: %v", err)
		}
	}
}

// TestValidation: a definition that a policy names in a config map serves, and pods prove the node, without the
// resource and with it; one that fails says why; while all devices are in use nobody is disturbed.
func TestValidation(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	stage.Check(t, s.SourceOf(t.Context(), n.Guest, stage.Version))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	serves(t, n.Guest, stage.Version)
	stage.StartController(t, n, s, "")
	definition := strings.Replace(readFile(t, s.File("vendors/qemu/edu.yaml")), "title: QEMU educational device",
		"title: From a config map", 1)
	// a host takes from the cluster what describes devices, and no source, no setting and no self-test
	for _, privileged := range []string{
		"  sources:\n    - type: build\n      path: /usr/src/edu-{{.DriverVersion}}\n",
		"settings:\n  - name: limitPercent\n    file: limit\n    min: 1\n    max: 100\n",
		"check:\n  file: factorial\n  write: \"10\"\n  want: \"3628800\"\n  sentence: 10! computed by the device's engine\n",
	} {
		if !strings.Contains(definition, privileged) {
			t.Fatalf("the definition has no %q", privileged)
		}
		definition = strings.Replace(definition, privileged, "", 1)
	}
	_, err = n.Kubectl(stage.Within(t, soon), strings.NewReader(definition), "-n", agents, "create", "configmap",
		"definitions", "--from-file=edu.yaml=/dev/stdin")
	stage.Check(t, err)
	good := provenPolicy(image, `"-expect", "1"`, true)
	t.Run("without its manifests", func(t *testing.T) {
		apply(t, n, good)
		outcomeOf(t, n, "skipped", policy.ValidationNamespace)
	})
	t.Run("a definition by name", func(t *testing.T) {
		_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "the definition of the config map",
			func(m accel.Machine) bool {
				return m.Want.Kinds[stage.Kind].Title == "From a config map"
			})
		stage.Check(t, err)
	})
	text, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/validation"))
	stage.Check(t, err)
	apply(t, n, []byte(text))
	admissionInForce(t, n)
	t.Run("without a grant of the image", func(t *testing.T) {
		apply(t, n, provenPolicy(image, `"-expect", "1", "-hold", "0ms"`, false))
		outcomeOf(t, n, "skipped", "no image for validations")
	})
	apply(t, n, fmt.Appendf(nil, validationGrant, image))
	t.Run("not privileged", func(t *testing.T) {
		apply(t, n, provenPolicy(image, `"-expect", "1", "-hold", "0s"`, true))
		outcomeOf(t, n, "passed", "violates PodSecurity")
	})
	_, err = n.Kubectl(stage.Within(t, soon), nil, "label", "--overwrite", "namespace", policy.ValidationNamespace,
		"pod-security.kubernetes.io/enforce=privileged")
	stage.Check(t, err)
	t.Run("passed", func(t *testing.T) {
		timed(t, "asked -> computed alone and with a device", func() {
			apply(t, n, provenPolicy(image, `"-expect", "1", "-hold", "1s"`, true))
			outcomeOf(t, n, "passed", `"alone":"passed"`)
		})
	})
	t.Run("failed", func(t *testing.T) {
		apply(t, n, provenPolicy(image, `"-expect", "5"`, false))
		outcomeOf(t, n, "failed", "exit status")
	})
	t.Run("in use", func(t *testing.T) {
		apply(t, n, stage.Pod("user", image, 1, "-expect", "1", "-hold", "2h"))
		stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", "user", corev1.PodRunning))
		apply(t, n, provenPolicy(image, `"-expect", "1"`, false))
		outcomeOf(t, n, "skipped", "are in use")
		user, err := clientset.Of(n).CoreV1().Pods("default").Get(t.Context(), "user", metav1.GetOptions{})
		stage.Check(t, err)
		if user.Status.Phase != corev1.PodRunning || user.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the pod that had the device: %+v", user.Status)
		}
		remove(t, n, "user")
	})
	stage.Check(t, n.Delete(stage.Within(t, soon), good))
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "no trace of validations", func(node *corev1.Node) bool {
		return node.Labels["acceld.dev/validation-"+stage.Kind] == "" &&
			node.Annotations["acceld.dev/validation-"+stage.Kind] == ""
	}))
}
