package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// Nodes is the part of the nodes API that is needed; the typed clients of client-go satisfy it.
type Nodes interface {
	Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, typ types.PatchType, body []byte, o metav1.PatchOptions,
		subresources ...string) (*corev1.Node, error)
}

// Events is the part of the events API that is needed; the typed clients of client-go satisfy it.
type Events interface {
	Create(context.Context, *eventsv1.Event, metav1.CreateOptions) (*eventsv1.Event, error)
	Patch(ctx context.Context, name string, typ types.PatchType, body []byte, o metav1.PatchOptions,
		subresources ...string) (*eventsv1.Event, error)
}

// Client accesses the API server.
type Client struct {
	Nodes Nodes
	// Events are the events in [EventNamespace].
	Events Events
	// Leases returns the leases of a namespace and a watch of them; see [Election].
	Leases func(namespace string) (Leases, LeaseWatch)
	// Pods are the pods of every namespace. The agent lists and evicts those of its own node.
	Pods Pods
	// Documents are the objects of every other API group.
	Documents Documents
	// Version returns the version of the API server, such as "v1.37.1". It is nil if there is none to ask.
	Version func(context.Context) (string, error)
}

// EventNamespace is where events about objects without a namespace go (k8s.io/api/events/v1, Event).
const EventNamespace = metav1.NamespaceDefault

// NewClient returns a client with the rights of a kubeconfig file, or of the pod's service account if the path is
// empty. It knows only the types of nodes, events, leases and pods: a client for every API group adds 24 MB to the
// binary (test/house, rule clientset). Every request passes through wrap.
func NewClient(kubeconfig string, wrap ...transport.WrapperFunc) (Client, error) {
	cfg, err := restConfig(kubeconfig)
	if err != nil {
		return Client{}, err
	}
	cfg.UserAgent = FieldManager
	cfg.Wrap(transport.Wrappers(wrap...))
	cfg.QPS = -1 // writes have a limit of their own, see writeEvery
	connection, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return Client{}, fmt.Errorf("cannot use the credentials of %q: %v", kubeconfig, err)
	}
	scheme := runtime.NewScheme()
	types := runtime.SchemeBuilder{
		corev1.AddToScheme, eventsv1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme,
	}
	if err := types.AddToScheme(scheme); err != nil {
		return Client{}, fmt.Errorf("cannot register API types: %v", err)
	}
	group := func(gv schema.GroupVersion, path string) (rest.Interface, error) {
		c := rest.CopyConfig(cfg)
		c.GroupVersion, c.APIPath = &gv, path
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		return rest.RESTClientForConfigAndClient(c, connection)
	}
	core, coreErr := group(corev1.SchemeGroupVersion, "/api")
	events, eventsErr := group(eventsv1.SchemeGroupVersion, "/apis")
	coordination, coordinationErr := group(coordinationv1.SchemeGroupVersion, "/apis")
	if err := cmp.Or(coreErr, eventsErr, coordinationErr); err != nil {
		return Client{}, fmt.Errorf("cannot use %q: %v", kubeconfig, err)
	}
	codec, documents := runtime.NewParameterCodec(scheme), Documents{client: core}
	return Client{
		Nodes:  collection[corev1.Node, *corev1.Node]{core, codec, "", "nodes"},
		Events: collection[eventsv1.Event, *eventsv1.Event]{events, codec, EventNamespace, "events"},
		Leases: func(namespace string) (Leases, LeaseWatch) {
			c := collection[coordinationv1.Lease, *coordinationv1.Lease]{coordination, codec, namespace, "leases"}
			return c, c
		},
		Pods:      pods{core, codec},
		Documents: documents,
		Version: func(ctx context.Context) (string, error) {
			var v struct{ GitVersion string }
			err := documents.Do(ctx, http.MethodGet, "/version", nil, nil, &v)
			return v.GitVersion, err
		},
	}, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot use the pod's service account: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig %q: %w", kubeconfig, err)
	}
	return cfg, nil
}
