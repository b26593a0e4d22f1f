package cluster

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Client reads and writes, as the admin, the few types that the test bed itself needs. The usual set of clients knows
// all types, and takes as long to compile as acceld: who imports it is not in what the demo needs first.
type Client struct {
	clients map[schema.GroupVersion]rest.Interface
}

// Resource names objects of one type. Namespace is empty for those that have none, and for those of all namespaces.
type Resource struct {
	Group           schema.GroupVersion
	Name, Namespace string
}

// Core names objects of the core group, such as "pods".
func Core(name, namespace string) Resource {
	return Resource{corev1.SchemeGroupVersion, name, namespace}
}

func newClient(config *rest.Config) (*Client, error) {
	types := runtime.NewScheme()
	c := &Client{clients: map[schema.GroupVersion]rest.Interface{}}
	for gv, add := range map[schema.GroupVersion]func(*runtime.Scheme) error{
		corev1.SchemeGroupVersion:         corev1.AddToScheme,
		coordinationv1.SchemeGroupVersion: coordinationv1.AddToScheme,
		discoveryv1.SchemeGroupVersion:    discoveryv1.AddToScheme,
	} {
		if err := add(types); err != nil {
			return nil, fmt.Errorf("cannot use the types of %s: %w", gv, err)
		}
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath = &gv, "/apis"
		if gv.Group == "" {
			own.APIPath = "/api"
		}
		own.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
		client, err := rest.RESTClientFor(own)
		if err != nil {
			return nil, fmt.Errorf("cannot make a client for %s: %w", gv, err)
		}
		c.clients[gv] = client
	}
	return c, nil
}

func (c *Client) request(of Resource, o metav1.ListOptions) *rest.Request {
	q := c.clients[of.Group].Get().NamespaceIfScoped(of.Namespace, of.Namespace != "").Resource(of.Name)
	for name, value := range map[string]string{
		"fieldSelector": o.FieldSelector, "labelSelector": o.LabelSelector, "resourceVersion": o.ResourceVersion,
	} {
		if value != "" {
			q = q.Param(name, value)
		}
	}
	return q
}

// Get reads one object into a pointer to one.
func (c *Client) Get(ctx context.Context, of Resource, name string, into runtime.Object) error {
	return c.request(of, metav1.ListOptions{}).Name(name).Do(ctx).Into(into)
}

// List reads the objects that the options select into a pointer to a list. Other options are ignored.
func (c *Client) List(ctx context.Context, of Resource, o metav1.ListOptions, into runtime.Object) error {
	return c.request(of, o).Do(ctx).Into(into)
}

// Watch sends what becomes of the objects that the options select.
func (c *Client) Watch(ctx context.Context, of Resource, o metav1.ListOptions) (watch.Interface, error) {
	return c.request(of, o).Param("watch", "true").Watch(ctx)
}

// Create makes an object of the resource's namespace.
func (c *Client) Create(ctx context.Context, of Resource, object runtime.Object) error {
	return c.clients[of.Group].Post().NamespaceIfScoped(of.Namespace, of.Namespace != "").Resource(of.Name).Body(object).
		Do(ctx).Error()
}

// Delete asks for the end of an object.
func (c *Client) Delete(ctx context.Context, of Resource, name string) error {
	return c.clients[of.Group].Delete().NamespaceIfScoped(of.Namespace, of.Namespace != "").Resource(of.Name).Name(name).
		Do(ctx).Error()
}

// Lease reads a lease.
func (c *Client) Lease(ctx context.Context, namespace, name string) (l coordinationv1.Lease, err error) {
	err = c.Get(ctx, Resource{coordinationv1.SchemeGroupVersion, "leases", namespace}, name, &l)
	return l, err
}

// Log is what the only container of a pod said.
func (c *Client) Log(ctx context.Context, namespace, pod string) ([]byte, error) {
	return c.request(Core("pods", namespace), metav1.ListOptions{}).Name(pod).SubResource("log").DoRaw(ctx)
}
