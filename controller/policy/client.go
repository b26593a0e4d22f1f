package policy

import (
	"context"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/kube"
)

// fieldManager owns the fields that the controller writes.
const fieldManager = "acceld-controller"

// object is an object of the API in its JSON form.
type object = map[string]any

// client sends requests, each with a time limit.
type client struct{ kube.API }

// Do sends one request within the deadline.
func (c client) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return c.API.Do(ctx, method, path, query, body, into)
}

func (c client) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.Do(ctx, http.MethodGet, path, query, nil, into)
}

// patch changes an object. A null in body removes a field.
func (c client) patch(ctx context.Context, path string, body, into any) error {
	return c.Do(ctx, http.MethodPatch, path, url.Values{"fieldManager": {fieldManager}}, body, into)
}

func (c client) create(ctx context.Context, path string, body, into any) error {
	return c.Do(ctx, http.MethodPost, path, url.Values{"fieldManager": {fieldManager}}, body, into)
}

// delete deletes an object, if uid is not empty only the one with this UID. That it is gone already is no error.
func (c client) delete(ctx context.Context, path, uid string) error {
	var body any
	if uid != "" {
		body = object{"preconditions": object{"uid": uid}}
	}
	if err := c.Do(ctx, http.MethodDelete, path, nil, body, nil); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
