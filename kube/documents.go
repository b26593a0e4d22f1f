package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Documents accesses objects of the API server as JSON, for API groups whose Go types this program does without: the
// types of resource.k8s.io alone, with their protobuf code, take 1 MB.
type Documents struct {
	client rest.Interface
	// accept is the media type of the answers; if empty, JSON of the whole objects.
	accept string
}

// Outlines returns Documents whose watches deliver only the metadata of objects.
func (d Documents) Outlines() Documents {
	d.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	return d
}

// StrategicPatch is the body of a patch that merges lists by the keys of their elements. Custom resources do not
// support it. A body declares its type of patch with a PatchType method; without one it is a merge patch (RFC 7386).
type StrategicPatch map[string]any

// PatchType returns the content type.
func (StrategicPatch) PatchType() string { return string(types.StrategicMergePatchType) }

// Do sends one request: an HTTP method, an absolute path such as "/apis/resource.k8s.io/v1/resourceslices", and the
// JSON of body unless body is nil. It decodes the answer into into unless that is nil, ignoring fields that into
// lacks. A refusal is an error of k8s.io/apimachinery/pkg/api/errors.
func (d Documents) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	r, err := d.request(method, path, query, body)
	if err != nil {
		return err
	}
	if s, streams := into.(interface{ readStream(io.Reader) error }); streams {
		return read(ctx, r, s.readStream)
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil || into == nil { // with the API server's message, which Raw lacks
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("cannot read the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// read sends a request and reads the answer as it arrives.
func read(ctx context.Context, r *rest.Request, from func(io.Reader) error) error {
	stream, err := r.Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := from(stream); err != nil {
		return fmt.Errorf("cannot read the answer to GET %s: %w", r.URL().Path, err)
	}
	_, err = io.Copy(io.Discard, stream) // read to the end, so that the connection can be reused
	return err
}

// Watch opens a watch: a stream of JSON objects with "type" and "object", until ctx ends or the API server closes it.
func (d Documents) Watch(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	r, err := d.request(http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	return r.Param("watch", "true").Stream(ctx)
}

func (d Documents) request(method, path string, query url.Values, body any) (*rest.Request, error) {
	r := d.client.Verb(method).AbsPath(path)
	if d.accept != "" {
		r = r.SetHeader("Accept", d.accept)
	}
	for name, values := range query {
		for _, v := range values {
			r = r.Param(name, v)
		}
	}
	if body == nil {
		return r, nil
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("cannot render the body of %s %s: %w", method, path, err)
	}
	form := "application/json"
	if method == http.MethodPatch {
		form = string(types.MergePatchType)
		if p, says := body.(interface{ PatchType() string }); says {
			form = p.PatchType()
		}
	}
	return r.SetHeader("Content-Type", form).Body(b), nil
}
