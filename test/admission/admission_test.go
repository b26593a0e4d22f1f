package admission

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server is an API server with the manifests applied. Nothing else of a cluster is there.
type server struct {
	t       *testing.T
	kubectl string
	plane   *cluster.Plane
	admin   dynamic.Interface
}

func start(t *testing.T) *server {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set: it takes a real API server, which make test builds")
	}
	c, err := cache.Open(nil)
	check(t, err)
	set, err := parts.Build(t.Context(), c, progress.New(os.Stderr), parts.Cluster()...)
	check(t, err)
	s := &server{t: t, kubectl: set.Path("kubectl")}
	s.plane, err = cluster.Here(t.Context(), t.TempDir(), cluster.Config{Program: set.Path, Alone: true})
	check(t, err)
	t.Cleanup(s.plane.Stop)
	s.admin, err = dynamic.NewForConfig(s.plane.REST())
	check(t, err)
	root, err := parts.ModuleRoot(t.Context())
	check(t, err)
	for _, dir := range append(Dirs(), "cards") {
		s.run(s.run("", "kustomize", filepath.Join(root, "packaging/manifests", dir)), "apply", "--server-side", "-f", "-")
	}
	s.run(topologies, "apply", "--server-side", "-f", "-")
	s.run("", "wait", "--for=condition=Established", "crd/acceleratorpolicies.acceld.dev",
		"crd/acceleratordevices.acceld.dev", "crd/noderesourcetopologies.topology.node.k8s.io", "--timeout=60s")
	return s
}

// topologies is NodeResourceTopology as far as requests need it, which clusters get from elsewhere
// (k8stopologyawareschedwg/noderesourcetopology-api).
const topologies = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: noderesourcetopologies.topology.node.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: topology.node.k8s.io
  names: {kind: NodeResourceTopology, plural: noderesourcetopologies, singular: noderesourcetopology}
  scope: Cluster
  versions:
  - name: v1alpha2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// surroundings are what the requests need, and rights beyond those of the manifests: what is tried here is what
// admission refuses when RBAC does not. The namespaces have the accounts that a controller manager would make.
const surroundings = `apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: acceld-validation}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: admin, namespace: acceld-validation}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: acceld-validation}
value: -1000
---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: default}
spec: {containers: [{name: a, image: example.com/a}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: wide}
rules:
- {apiGroups: [""], resources: [nodes, nodes/status, pods, pods/eviction, pods/binding], verbs: ["*"]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: ["*"]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices, deviceclasses, resourceclaims, resourceclaims/status, resourceclaims/driver, resourceclaims/binding], verbs: ["*"]}
- {apiGroups: [topology.node.k8s.io], resources: [noderesourcetopologies], verbs: ["*"]}
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: ["*"]}
- {apiGroups: [acceld.dev], resources: [acceleratorpolicies, acceleratorpolicies/status, acceleratordevices], verbs: ["*"]}
- {apiGroups: [acceld.dev], resources: [extendedresources], resourceNames: [` + Granted + `], verbs: [use]}
- {apiGroups: [acceld.dev], resources: [validationimages], resourceNames: [` + Image + `], verbs: [use]}
- {apiGroups: [acceld.dev], resources: [validationresources], resourceNames: [` + Resource + `], verbs: [use]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wide}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: wide}
subjects:
- {kind: ServiceAccount, name: acceld, namespace: acceld-system}
- {kind: ServiceAccount, name: acceld-controller, namespace: acceld-system}
`

func (s *server) run(in string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.kubectl, append([]string{"--kubeconfig=" + s.plane.Kubeconfig()},
		args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// as returns a client of the account of a case, with what its token would say.
func (s *server) as(c Case) dynamic.Interface {
	s.t.Helper()
	config := rest.CopyConfig(s.plane.REST())
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: c.User,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:acceld-system", "system:authenticated"},
	}
	if c.Node != "" {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {c.Node}}
	}
	client, err := dynamic.NewForConfig(config)
	check(s.t, err)
	return client
}

func (c Case) in(d dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return d.Resource(c.Resource)
	}
	return d.Resource(c.Resource).Namespace(namespace)
}

// put makes the object of a case as it is before the request, and returns what the API server has then.
func (s *server) put(ctx context.Context, c Case) (*unstructured.Unstructured, error) {
	into := c.in(s.admin, c.Before.GetNamespace())
	if err := s.clear(ctx, into, c.Before.GetName()); err != nil {
		return nil, err
	}
	o := c.Before.DeepCopy()
	made, err := into.Create(ctx, o, metav1.CreateOptions{})
	if err == nil && o.GetKind() == "Node" { // which the API server taints
		made.Object["spec"] = o.Object["spec"]
		made, err = into.Update(ctx, made, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, err
	}
	if o.Object["status"] == nil {
		return made, nil
	}
	made.Object["status"] = o.Object["status"]
	return into.UpdateStatus(ctx, made, metav1.UpdateOptions{})
}

// clear removes an object of an earlier case, whatever keeps it.
func (s *server) clear(ctx context.Context, from dynamic.ResourceInterface, name string) error {
	_, err := from.Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	if err == nil {
		now := int64(0)
		err = from.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// errUnprepared: what a request needs could not be made.
var errUnprepared = errors.New("cannot prepare")

// try sends the request of a case. Nothing comes of it.
func (s *server) try(ctx context.Context, c Case) error {
	dry := []string{metav1.DryRunAll}
	var subresources []string
	if c.Subresource != "" {
		subresources = []string{c.Subresource}
	}
	if c.Operation == "CREATE" {
		_, err := c.in(s.as(c), c.Object.GetNamespace()).Create(ctx, c.Object, metav1.CreateOptions{DryRun: dry},
			subresources...)
		return err
	}
	before, err := s.put(ctx, c)
	if err != nil {
		return errors.Join(errUnprepared, err)
	}
	from := c.in(s.as(c), before.GetNamespace())
	if c.Operation == "DELETE" {
		return from.Delete(ctx, before.GetName(), metav1.DeleteOptions{DryRun: dry})
	}
	after, err := object(before.Object, c.With)
	if err != nil {
		return errors.Join(errUnprepared, err)
	}
	_, err = from.Update(ctx, after, metav1.UpdateOptions{DryRun: dry}, subresources...)
	return err
}

// byPolicy reports whether an error is the refusal of an admission policy.
func byPolicy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// rbac reports whether an error is of missing rights, which would hide what admission says.
func rbac(err error) bool { return strings.Contains(err.Error(), "cannot ") }

// TestAdmission sends every request of the corpus to a real API server.
func TestAdmission(t *testing.T) {
	s := start(t)
	s.run(surroundings, "apply", "--server-side", "-f", "-")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	all, err := Cases()
	check(t, err)
	s.inForce(ctx, all)
	refused := 0
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			err := s.try(ctx, c)
			switch {
			case errors.Is(err, errUnprepared):
				t.Error(err)
			// let in by admission: the UID of the case is not that of the pod here, or an earlier case made the object
			case c.Says == "" && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)):
			case c.Says == "" && err != nil:
				t.Error(err)
			case c.Says == "":
			case c.Gated && (err == nil || apierrors.IsAlreadyExists(err)):
				t.Log("this API server drops the field")
			case err == nil:
				t.Errorf("let in, want %q", c.Says)
			case !byPolicy(err) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && !rbac(err):
				t.Logf("refused by the API server itself: %v", err)
			case !byPolicy(err) || !strings.Contains(err.Error(), c.Says):
				t.Errorf("%v, want %q", err, c.Says)
			default:
				refused++
			}
		})
	}
	t.Logf("%d requests, %d of them refused by the policies", len(all), refused)
	if refused < 60 {
		t.Errorf("the policies refused only %d requests", refused)
	}
}

// inForce waits until the API server acts on its policies: each of them refuses something. It hears of them by a watch.
func (s *server) inForce(ctx context.Context, all []Case) {
	s.t.Helper()
	policies, err := s.admin.Resource(schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
	}).List(ctx, metav1.ListOptions{})
	check(s.t, err)
	waiting := map[string]bool{}
	for _, p := range policies.Items {
		waiting["'"+p.GetName()+"'"] = true
	}
	for len(waiting) > 0 {
		for _, c := range all {
			if c.Says == "" {
				continue
			}
			err := s.try(ctx, c)
			for name := range waiting {
				if byPolicy(err) && strings.Contains(err.Error(), name) {
					delete(waiting, name)
				}
			}
			if len(waiting) == 0 {
				return
			}
		}
		if ctx.Err() != nil {
			s.t.Fatalf("not in force: %v", waiting)
		}
	}
}

// TestRights asks a real API server for all rights of agents and of the controller, by the matrix of its own discovery:
// one more is a decision that the tables of this package must show.
func TestRights(t *testing.T) {
	s := start(t)
	for account, want := range map[string][]string{"acceld": Agent(), "acceld-controller": Controller()} {
		token := s.run("", "-n", "acceld-system", "create", "token", account)
		config := rest.AnonymousClientConfig(s.plane.REST())
		config.BearerToken = strings.TrimSpace(token)
		got, err := Allowed(t.Context(), config, "acceld-system", "acceld-validation", "default", "kube-system")
		check(t, err)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rights of %q (-want +got):\n%s", account, diff)
		}
	}
}
