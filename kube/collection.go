package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// object is a pointer to an API object of type T.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// collection is the API of one resource in one namespace; the namespace is empty for cluster-scoped resources. It
// does what client-go's gentype does, which would add 3 MB to the program: the fake API server, the OpenAPI models
// and the merge of managed fields.
type collection[T any, P object[T]] struct {
	client    rest.Interface
	codec     runtime.ParameterCodec
	namespace string
	resource  string
}

// on directs a request to the collection.
func (c collection[T, P]) on(r *rest.Request) *rest.Request {
	return r.NamespaceIfScoped(c.namespace, c.namespace != "").Resource(c.resource)
}

// result returns the object in the response to a request.
func (c collection[T, P]) result(ctx context.Context, r *rest.Request) (P, error) {
	out := P(new(T))
	err := r.Do(ctx).Into(out)
	return out, err
}

func (c collection[T, P]) Get(ctx context.Context, name string, o metav1.GetOptions) (P, error) {
	return c.result(ctx, c.on(c.client.Get()).Name(name).VersionedParams(&o, c.codec))
}

func (c collection[T, P]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.on(c.client.Get()).VersionedParams(&o, c.codec).Watch(ctx)
}

func (c collection[T, P]) Create(ctx context.Context, x P, o metav1.CreateOptions) (P, error) {
	return c.result(ctx, c.on(c.client.Post()).VersionedParams(&o, c.codec).Body(x))
}

func (c collection[T, P]) Update(ctx context.Context, x P, o metav1.UpdateOptions) (P, error) {
	return c.result(ctx, c.on(c.client.Put()).Name(x.GetName()).VersionedParams(&o, c.codec).Body(x))
}

func (c collection[T, P]) Patch(ctx context.Context, name string, typ types.PatchType, body []byte,
	o metav1.PatchOptions, subresources ...string,
) (P, error) {
	return c.result(ctx, c.on(c.client.Patch(typ)).Name(name).SubResource(subresources...).VersionedParams(&o,
		c.codec).Body(body))
}
