package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// right is a verb of a resource.
type right struct {
	group, resource, verb string
	namespaced            bool
}

func (r right) subresource() (resource, sub string) {
	resource, sub, _ = strings.Cut(r.resource, "/")
	return resource, sub
}

// hidden are rights that no discovery names: verbs that are no requests, resources that only authorizers know, and a
// custom resource that this cluster does not have.
func hidden() []right {
	var all []right
	add := func(group, resources, verbs string, namespaced bool) {
		for resource := range strings.FieldsSeq(resources) {
			for verb := range strings.FieldsSeq(verbs) {
				all = append(all, right{group, resource, verb, namespaced})
			}
		}
	}
	add("", "users groups", "impersonate", false)
	add("", "serviceaccounts", "impersonate", true)
	add("authentication.k8s.io", "uids userextras/scopes", "impersonate", false)
	add("rbac.authorization.k8s.io", "clusterroles", "bind escalate", false)
	add("rbac.authorization.k8s.io", "roles", "bind escalate", true)
	add("certificates.k8s.io", "signers", "approve attest sign", false)
	// the kubelet's own API (its reference, Kubelet authentication/authorization)
	add("", "nodes/metrics nodes/stats nodes/log nodes/spec nodes/configz nodes/healthz nodes/pods nodes/checkpoint",
		"get create update patch delete", false)
	add("resource.k8s.io", "resourceclaims/binding resourceclaims/driver",
		"update patch associated-node:update associated-node:patch arbitrary-node:update arbitrary-node:patch", true)
	add("topology.node.k8s.io", "noderesourcetopologies", "get list watch create update patch delete deletecollection",
		false)
	return all
}

// names are the names that rules of the manifests have: a right to these alone is none without a name.
func names() []string {
	return []string{"acceld", "acceld-controller", "acceld-controller-tls", "acceleratorpolicies.acceld.dev"}
}

// matrix returns every verb of every resource that the API server serves, and the hidden ones.
func matrix(client *kubernetes.Clientset) ([]right, error) {
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, fmt.Errorf("cannot discover the resources: %w", err)
	}
	all := hidden()
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("cannot read the discovery: %w", err)
		}
		for _, r := range list.APIResources {
			for _, verb := range r.Verbs {
				all = append(all, right{version.Group, r.Name, verb, r.Namespaced})
			}
		}
	}
	slices.SortFunc(all, func(a, b right) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	return slices.Compact(all), nil
}

// Allowed asks an API server what the account of a configuration may do, verb by verb and resource by resource, in the
// whole cluster and in each of these namespaces. It returns lines such as "get nodes", "watch pods in default" and, if
// only an object of that name is meant, "patch secrets in acceld-system named x".
func Allowed(ctx context.Context, config *rest.Config, namespaces ...string) ([]string, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	all, err := matrix(client)
	if err != nil {
		return nil, err
	}
	may := func(r right, namespace, name string) (bool, error) {
		resource, sub := r.subresource()
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: r.group, Resource: resource, Subresource: sub, Verb: r.verb,
					Namespace: namespace, Name: name,
				},
			}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("cannot ask who may %s %s: %w", r.verb, r.resource, err)
		}
		return answer.Status.Allowed, nil
	}
	var out []string
	for _, r := range all {
		lines, err := r.where(namespaces, may)
		if err != nil {
			return nil, err
		}
		out = append(out, lines...)
	}
	return out, nil
}

// where returns the lines of one right: the widest that is allowed.
func (r right) where(namespaces []string, may func(r right, namespace, name string) (bool, error)) ([]string, error) {
	line := r.verb + " " + r.resource
	if r.group != "" {
		resource, sub := r.subresource()
		line = r.verb + " " + resource + "." + r.group
		if sub != "" {
			line += "/" + sub
		}
	}
	if allowed, err := may(r, "", ""); err != nil || allowed {
		return []string{line}, err
	}
	if !r.namespaced {
		return r.named(line, "", may)
	}
	var out []string
	for _, namespace := range namespaces {
		there := line + " in " + namespace
		allowed, err := may(r, namespace, "")
		if err != nil {
			return nil, err
		}
		if allowed {
			out = append(out, there)
			continue
		}
		lines, err := r.named(there, namespace, may)
		if err != nil {
			return nil, err
		}
		out = append(out, lines...)
	}
	return out, nil
}

func (r right) named(line, namespace string, may func(r right, namespace, name string) (bool, error)) (out []string,
	err error,
) {
	for _, name := range names() {
		allowed, err := may(r, namespace, name)
		if err != nil {
			return nil, err
		}
		if allowed {
			out = append(out, line+" named "+name)
		}
	}
	return out, nil
}

// everybody are the rights of every service account of a cluster, as Kubernetes gives them (system:basic-user,
// system:cluster-trust-bundle-discovery).
func everybody() []string {
	return append(lines("get list watch", "clustertrustbundles.certificates.k8s.io", ""),
		"create selfsubjectreviews.authentication.k8s.io", "create selfsubjectaccessreviews.authorization.k8s.io",
		"create selfsubjectrulesreviews.authorization.k8s.io")
}

// lines writes out rights: each verb of each resource, with an end.
func lines(verbs, resources, end string) (out []string) {
	for resource := range strings.FieldsSeq(resources) {
		for verb := range strings.FieldsSeq(verbs) {
			out = append(out, verb+" "+resource+end)
		}
	}
	return out
}

// Agent are the rights of an agent with everything of the manifests that agents can be given.
func Agent() []string {
	return slices.Concat(everybody(),
		lines("get list watch patch", "nodes", ""), lines("patch", "nodes/status", ""),
		lines("create patch", "events.events.k8s.io", ""),
		lines("get list watch", "acceleratorpolicies.acceld.dev", ""),
		lines("watch", "customresourcedefinitions.apiextensions.k8s.io", " named acceleratorpolicies.acceld.dev"),
		lines("get create update watch", "leases.coordination.k8s.io", " in acceld-system"),
		lines("list watch create update delete", "resourceslices.resource.k8s.io", ""), // dra
		lines("get list watch", "resourceclaims.resource.k8s.io", ""),                  // dra and binding
		lines("patch", "resourceclaims.resource.k8s.io/status", ""),
		lines("associated-node:patch", "resourceclaims.resource.k8s.io/driver", ""),
		lines("get create patch", "deviceclasses.resource.k8s.io", ""),
		lines("list watch", "pods", ""),                                              // cards and evict
		lines("create", "pods/eviction", ""),                                         // evict
		lines("get create patch", "noderesourcetopologies.topology.node.k8s.io", "")) // topology
}

// Controller are the rights of the controller with everything of the manifests that it can be given.
func Controller() []string {
	const own = " in acceld-system"
	return slices.Concat(everybody(),
		lines("get list watch patch", "nodes acceleratorpolicies.acceld.dev", ""),
		lines("patch", "nodes/status acceleratorpolicies.acceld.dev/status", ""),
		lines("list watch create patch delete", "acceleratordevices.acceld.dev", ""),
		lines("get list watch", "pods", ""), lines("create", "pods/binding pods/eviction", ""),
		lines("list watch", "daemonsets.apps", ""),
		lines("list watch create delete", "priorityclasses.scheduling.k8s.io", ""),
		lines("create", "events.events.k8s.io", ""),
		lines("create", "leases.coordination.k8s.io", own),
		lines("get update", "leases.coordination.k8s.io", own+" named acceld-controller"),
		lines("list watch patch", "secrets", own+" named acceld-controller-tls"),
		lines("list watch", "services", own+" named acceld-controller"),
		lines("list watch create patch", "endpointslices.discovery.k8s.io", own+" named acceld-controller"),
		lines("list watch", "configmaps", own),
		lines("create delete", "pods", " in acceld-validation"))
}
