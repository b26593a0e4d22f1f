package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
)

// API is the way to the API server, in JSON. Refusals are errors of k8s.io/apimachinery/pkg/api/errors.
type API interface {
	// Do sends body to an absolute path and decodes the answer into into; both may be nil.
	Do(ctx context.Context, method, path string, query url.Values, body, into any) error
	// Watch returns a stream of {"type", "object"}.
	Watch(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
}

// objects are the objects at the API server that this package deals with.
type objects struct{ api API }

// claim reads a ResourceClaim.
func (o objects) claim(ctx context.Context, namespace, name string) (claim, error) {
	var c claim
	err := o.do(ctx, http.MethodGet, apiRoot+"namespaces/"+url.PathEscape(namespace)+"/resourceclaims/"+url.PathEscape(name), nil, nil, &c)
	return c, err
}

// own selects the slices of one driver and node.
func own(driver, node string) url.Values {
	return url.Values{"fieldSelector": {"spec.driver=" + driver + ",spec.nodeName=" + node}}
}

// slices returns the slices of one driver and node, by name, and the version to watch from.
func (o objects) slices(ctx context.Context, driver, node string) (map[string]Slice, string, error) {
	var list struct {
		Metadata meta    `json:"metadata"`
		Items    []Slice `json:"items"`
	}
	if err := o.do(ctx, http.MethodGet, apiRoot+"resourceslices", own(driver, node), nil, &list); err != nil {
		return nil, "", err
	}
	there := map[string]Slice{}
	for _, s := range list.Items {
		there[s.Metadata.Name] = s
	}
	return there, list.Metadata.ResourceVersion, nil
}

// watch calls event for each change of the slices of one driver and node until the watch ends.
func (o objects) watch(ctx context.Context, driver, node, since string, event func(kind string, s Slice)) error {
	query := own(driver, node)
	query.Set("resourceVersion", since)
	stream, err := o.api.Watch(ctx, apiRoot+"resourceslices", query)
	if err != nil {
		return err
	}
	defer stream.Close()
	d := json.NewDecoder(stream)
	for {
		var e struct {
			Type   string `json:"type"`
			Object Slice  `json:"object"`
		}
		if err := d.Decode(&e); err != nil {
			return err
		}
		if e.Type == "ERROR" { // too old, most likely
			return fmt.Errorf("the watch of the slices of %q was ended by the API server", driver)
		}
		event(e.Type, e.Object)
	}
}

func (o objects) create(ctx context.Context, s Slice) (Slice, error) {
	var made Slice
	err := o.do(ctx, http.MethodPost, apiRoot+"resourceslices", nil, s, &made)
	return made, err
}

func (o objects) update(ctx context.Context, s Slice) (Slice, error) {
	var made Slice
	err := o.do(ctx, http.MethodPut, apiRoot+"resourceslices/"+s.Metadata.Name, nil, s, &made)
	return made, err
}

// remove deletes a slice; one that is gone is no error.
func (o objects) remove(ctx context.Context, name string) error {
	err := o.do(ctx, http.MethodDelete, apiRoot+"resourceslices/"+name, nil, nil, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// nodeUID returns the UID of a node.
func (o objects) nodeUID(ctx context.Context, name string) (string, error) {
	var node struct {
		Metadata meta `json:"metadata"`
	}
	err := o.do(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(name), nil, nil, &node)
	return node.Metadata.UID, err
}

func (o objects) do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if o.api == nil {
		return accel.Problemf(accel.APIUnreachable, "there are no credentials for the API server")
	}
	return o.api.Do(ctx, method, path, query, body, into)
}

// problem gives an error of the API server a reason.
func problem(attempted string, err error) *accel.Problem {
	if p := (*accel.Problem)(nil); errors.As(err, &p) {
		return p
	}
	reason := accel.APIUnreachable
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		reason = accel.APIForbidden
	case apierrors.IsNotFound(err):
		reason = accel.ClaimsUnsupported
	}
	return accel.Problemf(reason, "cannot %s: %v", attempted, err)
}
