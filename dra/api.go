package dra

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// objects is the client for the API server's objects that this package uses.
type objects struct{ api kube.API }

// claim reads a ResourceClaim.
func (o objects) claim(ctx context.Context, namespace, name string) (claim, error) {
	var c claim
	err := o.Do(ctx, http.MethodGet, apiRoot+"namespaces/"+url.PathEscape(namespace)+"/resourceclaims/"+
		url.PathEscape(name), nil, nil, &c)
	return c, err
}

// own selects the slices of one driver and node.
func own(driver, node string) url.Values {
	return url.Values{"fieldSelector": {"spec.driver=" + driver + ",spec.nodeName=" + node}}
}

func (o objects) create(ctx context.Context, s Slice) (Slice, error) {
	var made Slice
	err := o.Do(ctx, http.MethodPost, apiRoot+"resourceslices", nil, s, &made)
	return made, err
}

func (o objects) update(ctx context.Context, s Slice) (Slice, error) {
	var made Slice
	err := o.Do(ctx, http.MethodPut, apiRoot+"resourceslices/"+s.Metadata.Name, nil, s, &made)
	return made, err
}

// remove deletes a slice. A slice that is already gone is not an error.
func (o objects) remove(ctx context.Context, name string) error {
	err := o.Do(ctx, http.MethodDelete, apiRoot+"resourceslices/"+name, nil, nil, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// nodeUID returns the UID of a node.
func (o objects) nodeUID(ctx context.Context, name string) (string, error) {
	var node struct {
		Metadata kube.Meta `json:"metadata"`
	}
	err := o.Do(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(name), nil, nil, &node)
	return node.Metadata.UID, err
}

// Do sends a request to the API server, as [kube.API] describes.
func (o objects) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if o.api == nil {
		return accel.Problemf(accel.APIUnreachable, "there are no credentials for the API server")
	}
	return o.api.Do(ctx, method, path, query, body, into)
}

// Watch starts a watch, as [kube.API] describes.
func (o objects) Watch(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	if o.api == nil {
		return nil, accel.Problemf(accel.APIUnreachable, "there are no credentials for the API server")
	}
	return o.api.Watch(ctx, path, query)
}

// problem gives an error from the API server a reason.
func problem(attempted string, err error) *accel.Problem {
	if p := (*accel.Problem)(nil); errors.As(err, &p) {
		return p
	}
	reason := accel.APIUnreachable
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err),
		apierrors.IsBadRequest(err):
		reason = accel.APIForbidden
	case apierrors.IsNotFound(err):
		reason = accel.ClaimsUnsupported
	}
	return accel.Problemf(reason, "cannot %s: %v", attempted, err)
}
