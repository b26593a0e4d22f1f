package dra

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// slicePath is the path of all ResourceSlices.
const slicePath = apiRoot + "resourceslices"

// objects is the client for the API server's objects that this package uses.
type objects struct {
	kube.API
	timeout time.Duration // of one request
}

// Do sends a request to the API server, as [kube.API] describes, within the timeout.
func (o objects) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return o.API.Do(ctx, method, path, query, body, into)
}

// claim reads a ResourceClaim.
func (o objects) claim(ctx context.Context, namespace, name string) (c claim, err error) {
	err = o.Do(ctx, http.MethodGet, apiRoot+"namespaces/"+url.PathEscape(namespace)+"/resourceclaims/"+
		url.PathEscape(name), nil, nil, &c)
	return c, err
}

// own selects the slices of one driver and node.
func own(driver, node string) url.Values {
	return url.Values{"fieldSelector": {"spec.driver=" + driver + ",spec.nodeName=" + node}}
}

// write updates a slice that has a version and creates one that has none. It returns what the API server made of it.
func (o objects) write(ctx context.Context, s Slice) (made Slice, err error) {
	method, path := http.MethodPost, slicePath
	if s.Metadata.ResourceVersion != "" {
		method, path = http.MethodPut, slicePath+"/"+s.Metadata.Name
	}
	err = o.Do(ctx, method, path, nil, s, &made)
	return made, err
}

// remove deletes a slice. A slice that is already gone is not an error.
func (o objects) remove(ctx context.Context, name string) error {
	err := o.Do(ctx, http.MethodDelete, slicePath+"/"+name, nil, nil, nil)
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

// anonymous stands for the API server if there are no credentials for it.
type anonymous struct{}

func (anonymous) Do(context.Context, string, string, url.Values, any, any) error {
	return accel.Problemf(accel.APIUnreachable, "there are no credentials for the API server")
}

func (a anonymous) Watch(ctx context.Context, _ string, _ url.Values) (io.ReadCloser, error) {
	return nil, a.Do(ctx, "", "", nil, nil, nil)
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
