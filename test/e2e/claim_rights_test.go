package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// TestClaimRights gives devices out by claims with the rights of the manifests alone, and tries what somebody with an
// agent's stolen token could do with them.
func TestClaimRights(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	stage.Check(t, s.Source(t.Context(), n.Guest))
	stage.Check(t, n.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(byDefinition(t, s)), 0o644))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	timed(t, "no rights -> said", func() {
		_, err := stage.WaitMachine(stage.Within(t, 10*time.Minute), n.Guest, "the missing rights to be said",
			stage.Blocked(accel.APIForbidden))
		stage.Check(t, err)
	})
	text, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/dra"))
	stage.Check(t, err)
	apply(t, n, []byte(text))
	timed(t, "rights given -> offered", func() { offers(t, n, 1) })
	apply(t, n, []byte(otherName))
	classFollows(t, n, s)
	apply(t, n, stage.Claim("one"), stage.ClaimPod("one", image, "resourceClaimName: one", "-expect", "1"))
	stage.Check(t, n.WaitPod(stage.Within(t, 3*time.Minute), "default", "one", corev1.PodSucceeded))
	removeClaims(t, n, "one")
	reaches(t, n.Guest, accel.Ready, soon)
	stolen(t, n)
}

// otherName lets the agents give the kind and its partitions another name of their extended resource, which the
// admission policy leaves to an admin.
const otherName = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: other-name}
rules:
- apiGroups: [acceld.dev]
  resources: [extendedresources]
  resourceNames:
  - qemu-edu.acceld.dev/example.com/edu
  - qemu-edu.acceld.dev/example.com/edu-half
  - qemu-edu.acceld.dev/example.com/edu-quarter
  verbs: [use]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: other-name}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: other-name}
subjects: [{kind: ServiceAccount, name: acceld, namespace: acceld-system}]
`

// classFollows gives the kind another name of its extended resource, and takes it back: its class follows. Then
// somebody writes that name into the class, and the definition says another one: the class is left alone.
func classFollows(t *testing.T, n *bed.Node, s *stage.Stage) {
	t.Helper()
	rename := func(line string) {
		stage.Check(t, n.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(byDefinition(t, s)+line),
			0o644))
	}
	is := func(name string) {
		t.Helper()
		_, err := n.Kubectl(stage.Within(t, soon), nil, "wait", "deviceclass/"+stage.Class,
			"--for=jsonpath={.spec.extendedResourceName}="+name, "--timeout=60s")
		stage.Check(t, err)
	}
	is(stage.Resource)
	rename("rename: example.com/edu\n")
	is("example.com/edu")
	rename("")
	is(stage.Resource)
	_, err := n.Kubectl(stage.Within(t, soon), nil, "patch", "deviceclass", stage.Class, "--type=merge", "-p",
		`{"spec":{"extendedResourceName":"example.com/theirs"}}`)
	stage.Check(t, err)
	rename("rename: example.com/edu\n")
	_, err = stage.WaitMachine(stage.Within(t, soon), n.Guest, "the other name", func(m accel.Machine) bool {
		return m.Want.Kinds[stage.Kind].Rename != ""
	})
	stage.Check(t, err)
	offers(t, n, 1)
	is("example.com/theirs")
	_, err = n.Kubectl(stage.Within(t, soon), nil, "patch", "deviceclass", stage.Class, "--type=merge", "-p",
		`{"spec":{"extendedResourceName":"`+stage.Resource+`"}}`)
	stage.Check(t, err)
	rename("")
	offers(t, n, 1)
}

// byDefinition is the built-in definition, given out by claims.
func byDefinition(t *testing.T, s *stage.Stage) string {
	t.Helper()
	return readFile(t, s.File("vendors/qemu/edu.yaml")) + "allocation: dra\n"
}

// stolen tries the token of the agent's pod on slices of its own and of another node.
func stolen(t *testing.T, n *bed.Node) {
	ctx := stage.Within(t, soon)
	pods, err := clientset.Of(n).CoreV1().Pods("acceld-system").List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=acceld"})
	stage.Check(t, err)
	bound := tokenClient(ctx, t, n, "--bound-object-kind=Pod", "--bound-object-name="+pods.Items[0].Name)
	loose := tokenClient(ctx, t, n)
	for _, c := range []struct {
		name   string
		client *kubernetes.Clientset
		node   string
		driver string
		says   string // empty: it is allowed
	}{
		{"its own node", bound, n.Name(), "spare-part.acceld.dev", ""},
		{"another node", bound, "other", stage.Class, "of that node only"},
		{"another's driver", bound, n.Name(), "gpu.example.com", "its own drivers only"},
		{"a token without a node", loose, n.Name(), stage.Class, "names no node"},
	} {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: c.node + "." + c.driver + "-7ff"}}
		slice.Spec = resourceapi.ResourceSliceSpec{
			Driver: c.driver, NodeName: &c.node,
			Pool: resourceapi.ResourcePool{Name: c.node, ResourceSliceCount: 1, Generation: 1},
		}
		_, err := c.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("a slice of %s: %v", c.name, err)
		}
	}
	for name, c := range map[string]struct{ driver, says string }{
		"spare-part.acceld.dev": {"spare-part.acceld.dev", ""}, "gpu.example.com": {stage.Class, "its own drivers only"},
		"spoiled-part.acceld.dev": {"gpu.example.com", "in acceld's words"},
	} {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		class.Spec.Selectors = []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", c.driver)}},
		}
		_, err := bound.ResourceV1().DeviceClasses().Create(ctx, class,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("the class %s of %s: %v", name, c.driver, err)
		}
	}
	// Agents read the claims that they are asked about, and write none.
	if _, err := bound.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("claims can be listed: %v", err)
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "stolen"}}
	if _, err := bound.ResourceV1().ResourceClaims("default").Create(ctx, claim,
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a claim can be made: %v", err)
	}
	if err := bound.ResourceV1().ResourceClaims("default").Delete(ctx, "stolen",
		metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a claim can be deleted: %v", err)
	}
}

// tokenClient is a client with a new token of the agent's service account.
func tokenClient(ctx context.Context, t *testing.T, n *bed.Node, args ...string) *kubernetes.Clientset {
	t.Helper()
	return clientOf(t, tokenConfig(ctx, t, n, "acceld", args...))
}

// tokenConfig is the configuration of a client with a new token of a service account of acceld.
func tokenConfig(ctx context.Context, t *testing.T, n *bed.Node, account string, args ...string) *rest.Config {
	t.Helper()
	token, err := n.Kubectl(ctx, nil, append([]string{"-n", agents, "create", "token", account}, args...)...)
	stage.Check(t, err)
	config := rest.AnonymousClientConfig(n.REST())
	config.BearerToken = strings.TrimSpace(token)
	return config
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	stage.Check(t, err)
	return client
}
