// Package manifests checks the manifests against the API's own types and against the rights that the agent needs.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/vendors"
)

// objects reads every document of the manifests strictly into the type of its kind.
func objects(t *testing.T) []metav1.Object { return objectsIn(t, ".") }

// objectsIn does the same for one directory with a kustomization.
func objectsIn(t *testing.T, dir string) []metav1.Object {
	t.Helper()
	types := map[string]func() metav1.Object{
		"v1 Namespace":      func() metav1.Object { return &corev1.Namespace{} },
		"v1 ServiceAccount": func() metav1.Object { return &corev1.ServiceAccount{} },
		"apps/v1 DaemonSet": func() metav1.Object { return &appsv1.DaemonSet{} },

		"apps/v1 Deployment": func() metav1.Object { return &appsv1.Deployment{} },
		"v1 Service":         func() metav1.Object { return &corev1.Service{} },
		"v1 ConfigMap":       func() metav1.Object { return &corev1.ConfigMap{} },
		"v1 Secret":          func() metav1.Object { return &corev1.Secret{} },
		"batch/v1 Job":       func() metav1.Object { return &batchv1.Job{} },

		"rbac.authorization.k8s.io/v1 ClusterRole":        func() metav1.Object { return &rbacv1.ClusterRole{} },
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() metav1.Object { return &rbacv1.ClusterRoleBinding{} },
		"rbac.authorization.k8s.io/v1 Role":               func() metav1.Object { return &rbacv1.Role{} },
		"rbac.authorization.k8s.io/v1 RoleBinding":        func() metav1.Object { return &rbacv1.RoleBinding{} },

		"apiextensions.k8s.io/v1 CustomResourceDefinition": func() metav1.Object { return &definition{} },

		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": func() metav1.Object {
			return &admissionv1.ValidatingAdmissionPolicy{}
		},
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": func() metav1.Object {
			return &admissionv1.ValidatingAdmissionPolicyBinding{}
		},
	}
	var all []metav1.Object
	for _, file := range resources(t, dir) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			doc, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(doc, &meta); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			make, ok := types[meta.APIVersion+" "+meta.Kind]
			if !ok {
				t.Fatalf("%s: unexpected %s %s", file, meta.APIVersion, meta.Kind)
			}
			o := make()
			if err := yaml.UnmarshalStrict(doc, o); err != nil {
				t.Fatalf("%s: %s: %v", file, meta.Kind, err)
			}
			all = append(all, o)
		}
	}
	return all
}

// definition is a CustomResourceDefinition. TestSchema checks its schema.
type definition struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec"`
}

// resources returns the files of the kustomization, which must be all files of the directory.
func resources(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		metav1.TypeMeta
		Resources []string
		Images    []struct{ Name, NewName, NewTag string }
	}
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "kustomization.yaml" })
	for i := range k.Resources {
		k.Resources[i] = filepath.Join(dir, k.Resources[i])
	}
	if diff := cmp.Diff(files, slices.Sorted(slices.Values(k.Resources))); diff != "" {
		t.Fatalf("resources of the kustomization (-files +listed):\n%s", diff)
	}
	return k.Resources
}

func find[T metav1.Object](t *testing.T) T {
	t.Helper()
	var none T
	for _, o := range objects(t) {
		if found, ok := o.(T); ok {
			return found
		}
	}
	t.Fatalf("no %T", none)
	return none
}

func TestNamesFit(t *testing.T) {
	for _, o := range objects(t) {
		if o.GetLabels()["app.kubernetes.io/name"] != "acceld" {
			t.Errorf("%T has no name label", o)
		}
	}
	namespace, account := find[*corev1.Namespace](t).Name, find[*corev1.ServiceAccount](t)
	binding, role, set := find[*rbacv1.ClusterRoleBinding](t), find[*rbacv1.ClusterRole](t), find[*appsv1.DaemonSet](t)
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: namespace}}
	if diff := cmp.Diff(want, binding.Subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != role.Name {
		t.Errorf("role is %+v", binding.RoleRef)
	}
	if set.Namespace != namespace || account.Namespace != namespace ||
		set.Spec.Template.Spec.ServiceAccountName != account.Name {
		t.Error("namespace and account do not fit")
	}
	local, own := find[*rbacv1.RoleBinding](t), find[*rbacv1.Role](t)
	if diff := cmp.Diff(want, local.Subjects); diff != "" {
		t.Errorf("subjects in the namespace (-want +got):\n%s", diff)
	}
	if local.RoleRef.Kind != "Role" || local.RoleRef.Name != own.Name || local.Namespace != namespace ||
		own.Namespace != namespace {
		t.Errorf("role in the namespace is %+v", local.RoleRef)
	}
	selector, err := metav1.LabelSelectorAsMap(set.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(selector, set.Spec.Template.Labels); diff != "" {
		t.Errorf("selector and labels:\n%s", diff)
	}
}

// All of the agent's rights: one more is a decision that this table must show.
func TestRights(t *testing.T) {
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{
			APIGroups: []string{"acceld.dev"}, Resources: []string{"acceleratorpolicies"},
			Verbs: []string{"get", "list", "watch"},
		},
		{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{"acceleratorpolicies.acceld.dev"}, Verbs: []string{"watch"},
		},
	}
	if diff := cmp.Diff(want, find[*rbacv1.ClusterRole](t).Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	want = []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "create", "update", "watch"},
	}}
	if diff := cmp.Diff(want, find[*rbacv1.Role](t).Rules); diff != "" {
		t.Errorf("rules in the namespace (-want +got):\n%s", diff)
	}
}

// All of the rights that `allocation: dra` and parts before binding need, and the policy that limits them to the
// agent's own node.
func TestRightsForClaims(t *testing.T) {
	var rules []rbacv1.PolicyRule
	var subjects []rbacv1.Subject
	held, bound := "", ""
	for _, o := range slices.Concat(objectsIn(t, "binding"), objectsIn(t, "dra")) {
		if o.GetLabels()["app.kubernetes.io/name"] != "acceld" {
			t.Errorf("%T has no name label", o)
		}
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			rules = append(rules, o.Rules...)
		case *rbacv1.ClusterRoleBinding:
			subjects = o.Subjects
		case *admissionv1.ValidatingAdmissionPolicy:
			account := "system:serviceaccount:" + find[*corev1.Namespace](t).Name + ":" +
				find[*corev1.ServiceAccount](t).Name
			if *o.Spec.FailurePolicy != admissionv1.Fail || !strings.Contains(o.Spec.MatchConditions[0].Expression,
				account) {
				t.Errorf("the policy: %+v", o.Spec)
			}
			held += o.Name + " "
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound += o.Spec.PolicyName + " "
		}
	}
	group := []string{"resource.k8s.io"}
	want := []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"resourceclaims"}, Verbs: []string{"list", "watch"}},
		{APIGroups: group, Resources: []string{"resourceclaims/status"}, Verbs: []string{"patch"}},
		{APIGroups: group, Resources: []string{"resourceclaims/driver"}, Verbs: []string{"associated-node:patch"}},
		{APIGroups: group, Resources: []string{"resourceslices"}, Verbs: []string{
			"list", "watch", "create", "update",
			"delete",
		}},
		{APIGroups: group, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: group, Resources: []string{"deviceclasses"}, Verbs: []string{"get", "create", "patch"}},
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(find[*rbacv1.ClusterRoleBinding](t).Subjects, subjects); diff != "" || held == "" ||
		held != bound {
		t.Errorf("policies %q, bound %q: %s", held, bound, diff)
	}
}

func TestDaemonSet(t *testing.T) {
	spec := find[*appsv1.DaemonSet](t).Spec
	// Two agents at a time, and no port of the host among what the scheduler counts: it would place only one.
	if u := spec.UpdateStrategy.RollingUpdate; u == nil || u.MaxSurge.IntValue() != 1 ||
		u.MaxUnavailable.IntValue() != 0 || spec.MinReadySeconds == 0 ||
		len(spec.Template.Spec.Containers[0].Ports) > 0 {
		t.Errorf("update strategy %+v, ready for %d s", u, spec.MinReadySeconds)
	}
	pod := spec.Template.Spec
	if !pod.HostNetwork || !pod.HostPID || pod.HostIPC {
		t.Errorf("host namespaces: network %v, pid %v, ipc %v", pod.HostNetwork, pod.HostPID, pod.HostIPC)
	}
	if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatal("the agent is one process")
	}
	c := pod.Containers[0]
	if p := c.StartupProbe; p == nil || p.Exec == nil ||
		!slices.Equal(p.Exec.Command, []string{"/acceld", "started", "--host-root", "/host"}) {
		t.Errorf("startup probe is %+v", p)
	}
	for name, probe := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Host != "127.0.0.1" ||
			probe.HTTPGet.Port.IntValue() != 9480 {
			t.Errorf("%s probe is %+v", name, probe)
		}
	}
	if s := c.SecurityContext; s == nil || !*s.Privileged || !*s.ReadOnlyRootFilesystem {
		t.Errorf("security context %+v", s)
	}
	if len(c.VolumeMounts) != 1 || len(pod.Volumes) != 1 {
		t.Fatal("there is one volume, the host")
	}
	m, v := c.VolumeMounts[0], pod.Volumes[0]
	if v.Name != m.Name || v.HostPath == nil || v.HostPath.Path != "/" || m.MountPath != "/host" || m.ReadOnly ||
		m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer {
		t.Errorf("mount %+v of %+v", m, v)
	}
	environment := map[string]string{}
	for _, e := range c.Env {
		environment[e.Name] = e.ValueFrom.FieldRef.FieldPath
	}
	if diff := cmp.Diff(map[string]string{"NODE_NAME": "spec.nodeName", "POD_NAMESPACE": "metadata.namespace"},
		environment); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if len(c.Resources.Limits) > 0 {
		t.Errorf("limits %v would end a build", c.Resources.Limits)
	}
}

// All replicas of the controller are ready and only one answers, so its Service has no selector. The leader points it
// to itself, and needs its own address for that. No selector for agents matches its pods.
func TestController(t *testing.T) {
	for _, o := range objectsIn(t, "controller") {
		if name := o.GetLabels()["app.kubernetes.io/name"]; !strings.HasPrefix(name, "acceld") {
			t.Errorf("%T has the name label %q", o, name)
		}
		if s, ok := o.(*corev1.Service); ok && (s.Spec.Selector != nil || s.Name != "acceld-controller") {
			t.Errorf("Service %q selects %v", s.Name, s.Spec.Selector)
		}
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		environment := map[string]string{}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			environment[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
		if diff := cmp.Diff(map[string]string{
			"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name",
			"POD_IP": "status.podIP", "NODE_NAME": "spec.nodeName",
		}, environment); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		labels := d.Spec.Template.Labels
		for key, value := range d.Spec.Selector.MatchLabels {
			if labels[key] != value {
				t.Errorf("it selects %s=%s, and its pods have %v", key, value, labels)
			}
		}
		if labels["app.kubernetes.io/name"] == find[*appsv1.DaemonSet](
			t).Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
			t.Error("its pods look like agents")
		}
	}
}

// The rights for a removal are no more than it needs, and nothing that removes looks like an agent.
func TestRemoval(t *testing.T) {
	got := map[string][]rbacv1.PolicyRule{}
	for _, o := range objectsIn(t, "remove") {
		if name := o.GetLabels()["app.kubernetes.io/name"]; name != policy.RemovalName ||
			o.GetName() != policy.RemovalName {
			t.Errorf("%T is %q with the name label %q", o, o.GetName(), name)
		}
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			got["of the cluster"] = o.Rules
		case *rbacv1.Role:
			got["in the namespace"] = o.Rules
		case *appsv1.DaemonSet:
			pod := o.Spec.Template.Spec
			if len(pod.InitContainers) != 1 || !*pod.InitContainers[0].SecurityContext.Privileged ||
				pod.Containers[0].SecurityContext.Privileged != nil || *pod.AutomountServiceAccountToken {
				t.Errorf("%+v", pod)
			}
			agent := find[*appsv1.DaemonSet](t).Spec.Template.Spec
			if diff := cmp.Diff(agent.Volumes, pod.Volumes); diff != "" ||
				!cmp.Equal(agent.Tolerations, pod.Tolerations) || !pod.HostPID {
				t.Errorf("it does not run where agents do, with what they have: %s", diff)
			}
		case *batchv1.Job:
			if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				o.Spec.Template.Spec.Tolerations); diff != "" {
				t.Errorf("a partition keeps it away: %s", diff)
			}
			if *o.Spec.BackoffLimit != 0 || o.Spec.Template.Spec.Containers[0].Args[0] != "remove" {
				t.Errorf("%+v", o.Spec)
			}
		}
	}
	rule := func(group, resources, verbs string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: strings.Fields(resources),
			Verbs: strings.Fields(verbs),
		}
	}
	want := map[string][]rbacv1.PolicyRule{
		"of the cluster": {
			rule("", "nodes", "get list watch patch"), rule("", "nodes/status", "patch"),
			rule("acceld.dev", "acceleratorpolicies", "list watch patch delete"),
			rule("acceld.dev", "acceleratorpolicies/status", "patch"),
			rule("apiextensions.k8s.io", "customresourcedefinitions", "delete"),
			rule("scheduling.k8s.io", "priorityclasses", "list watch delete"),
			rule("resource.k8s.io", "resourceslices deviceclasses", "list delete"),
			rule("events.k8s.io", "events", "create patch"),
		},
		"in the namespace": {
			rule("", "pods", "list watch"), rule("apps", "daemonsets", "list watch"),
			rule("coordination.k8s.io", "leases", "list delete"),
		},
	}
	want["of the cluster"][4].ResourceNames = []string{"acceleratorpolicies.acceld.dev", "acceleratordevices.acceld.dev"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// To follow the extender's choice of cards, the agent needs one more right: to read pods.
func TestRightsForCards(t *testing.T) {
	for _, o := range objectsIn(t, "cards") {
		if o.GetLabels()["app.kubernetes.io/name"] != "acceld" {
			t.Errorf("%T has no name label", o)
		}
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			want := []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"pods"},
				Verbs: []string{"list", "watch"},
			}}
			if diff := cmp.Diff(want, o.Rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		case *rbacv1.ClusterRoleBinding:
			if diff := cmp.Diff(find[*rbacv1.ClusterRoleBinding](t).Subjects, o.Subjects); diff != "" ||
				o.RoleRef.Name != "acceld-cards" {
				t.Errorf("bound to %q: %s", o.RoleRef.Name, diff)
			}
		default:
			t.Errorf("unexpected %T", o)
		}
	}
}

// TestRightsForTopology: to write what each NUMA node has left, the agent needs one more right, and a policy holds it
// to the object of its own node.
func TestRightsForTopology(t *testing.T) {
	held := ""
	for _, o := range objectsIn(t, "topology") {
		if o.GetLabels()["app.kubernetes.io/name"] != "acceld" {
			t.Errorf("%T has no name label", o)
		}
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			want := []rbacv1.PolicyRule{{
				APIGroups: []string{"topology.node.k8s.io"}, Resources: []string{"noderesourcetopologies"},
				Verbs: []string{"get", "create", "patch"},
			}}
			if diff := cmp.Diff(want, o.Rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		case *rbacv1.ClusterRoleBinding:
			if diff := cmp.Diff(find[*rbacv1.ClusterRoleBinding](t).Subjects, o.Subjects); diff != "" ||
				o.RoleRef.Name != "acceld-topology" {
				t.Errorf("bound to %q: %s", o.RoleRef.Name, diff)
			}
		case *admissionv1.ValidatingAdmissionPolicy:
			for _, v := range o.Spec.Validations {
				held += v.Expression + "\n"
			}
		}
	}
	for _, text := range []string{
		`o.metadata.?name.orValue("") == variables.node`, `orValue("") == "acceld"`, `variables.written`,
	} {
		if !strings.Contains(held, text) {
			t.Errorf("nothing holds agents to %s", text)
		}
	}
}

// The controller may create pods in a dedicated namespace, which admits no privileged ones.
func TestRightsForValidation(t *testing.T) {
	for _, o := range objectsIn(t, "validation") {
		if o.GetLabels()["app.kubernetes.io/name"] != "acceld-validation" {
			t.Errorf("%T has no name label", o)
		}
		switch o := o.(type) {
		case *corev1.Namespace:
			if o.Name != policy.ValidationNamespace || o.Labels["pod-security.kubernetes.io/enforce"] != "baseline" {
				t.Errorf("the namespace %+v", o.ObjectMeta)
			}
		case *rbacv1.Role:
			want := []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"pods"},
				Verbs: []string{"create", "delete"},
			}}
			if diff := cmp.Diff(want, o.Rules); diff != "" || o.Namespace != policy.ValidationNamespace {
				t.Errorf("rules in %q (-want +got):\n%s", o.Namespace, diff)
			}
		case *rbacv1.RoleBinding:
			want := []rbacv1.Subject{{
				Kind: "ServiceAccount", Name: "acceld-controller",
				Namespace: find[*corev1.Namespace](t).Name,
			}}
			if diff := cmp.Diff(want, o.Subjects); diff != "" || o.RoleRef.Kind != "Role" ||
				o.Namespace != policy.ValidationNamespace {
				t.Errorf("bound %+v: %s", o.RoleRef, diff)
			}
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding: // TestPolicies
		default:
			t.Errorf("unexpected %T", o)
		}
	}
}

// TestPolicies: each policy refuses what it cannot decide, is for one account of acceld, and is bound to deny. The test
// of test/admission says what they refuse.
func TestPolicies(t *testing.T) {
	accounts := map[string]string{
		".": "acceld", "dra": "acceld", "evict": "acceld", "topology": "acceld", "controller": "acceld-controller",
		"validation": "acceld-controller",
	}
	for dir, account := range accounts {
		policies, bound := map[string]bool{}, map[string]bool{}
		for _, o := range objectsIn(t, dir) {
			switch o := o.(type) {
			case *admissionv1.ValidatingAdmissionPolicy:
				policies[o.Name] = true
				want := fmt.Sprintf("request.userInfo.username == %q",
					"system:serviceaccount:"+find[*corev1.Namespace](t).Name+":"+account)
				if c := o.Spec.MatchConditions; *o.Spec.FailurePolicy != admissionv1.Fail || len(c) != 1 ||
					c[0].Expression != want {
					t.Errorf("%s in %q: %v %+v", o.Name, dir, *o.Spec.FailurePolicy, c)
				}
				for _, r := range o.Spec.MatchConstraints.ResourceRules {
					if !slices.Equal(r.APIVersions, []string{"*"}) {
						t.Errorf("%s in %q is for the versions %q only", o.Name, dir, r.APIVersions)
					}
				}
			case *admissionv1.ValidatingAdmissionPolicyBinding:
				bound[o.Spec.PolicyName] = slices.Equal(o.Spec.ValidationActions,
					[]admissionv1.ValidationAction{admissionv1.Deny})
			}
		}
		if diff := cmp.Diff(policies, bound); diff != "" || len(policies) == 0 {
			t.Errorf("policies in %q, and which of them deny (-there are +do):\n%s", dir, diff)
		}
	}
}

// TestResourcesOfClasses holds the extended resources that agents may write into classes to the built-in definitions:
// every name that a kind offers, and none of another kind.
func TestResourcesOfClasses(t *testing.T) {
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	allowed := map[string]*regexp.Regexp{}
	for _, o := range objectsIn(t, "dra") {
		p, ok := o.(*admissionv1.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		for _, v := range p.Spec.Variables {
			if v.Name != "resources" {
				continue
			}
			for _, m := range regexp.MustCompile(`"([a-z0-9-]+)": "([^"]+)"`).FindAllStringSubmatch(v.Expression, -1) {
				allowed[m[1]] = regexp.MustCompile("^(" + strings.ReplaceAll(m[2], `\\`, `\`) + ")$")
			}
		}
	}
	for kind := range allowed {
		if defs[kind] == nil {
			t.Errorf("no definition has the kind %q", kind)
		}
	}
	for kind, def := range defs {
		names := []string{def.OfferedAs("")}
		if def.Partitions != nil {
			for _, p := range def.Partitions.Profiles {
				names = append(names, def.OfferedAs(accel.PartitionWord(p.Name)))
			}
		}
		for _, name := range names {
			for other, form := range allowed {
				if form.MatchString(name) != (other == kind) {
					t.Errorf("%q, which is of %q, as a resource of %q: %v", name, kind, other, form.MatchString(name))
				}
			}
		}
	}
}
