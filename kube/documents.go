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

// Documents are objects of the API server as JSON, for API groups whose Go types this program does without: those of
// resource.k8s.io alone, with their protobuf code, are 1 MB.
type Documents struct {
	client rest.Interface
	// accept is the form of the answers; JSON of the whole objects when empty.
	accept string
}

// Outlines is the same way, on which the objects of a watch have their metadata alone.
func (d Documents) Outlines() Documents {
	d.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	return d
}

// StrategicPatch is the body of a patch that merges lists by the keys of their elements, which objects of one's own
// definition do not know. A body says by such a method what patch it is; one that says nothing is a merge patch (RFC
// 7386).
type StrategicPatch map[string]any

// PatchType is the content type.
func (StrategicPatch) PatchType() string { return string(types.StrategicMergePatchType) }

// Do sends one request: a method of HTTP, an absolute path such as "/apis/resource.k8s.io/v1/resourceslices", the JSON
// of body unless it is nil. What the API server answers is decoded into into unless that is nil; fields that into lacks
// are passed over. A refusal is an error of k8s.io/apimachinery/pkg/api/errors.
func (d Documents) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	r, err := d.request(method, path, query, body)
	if err != nil {
		return err
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil || into == nil { // with the API server's own words, which Raw lacks
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

// Watch opens a watch: a stream of JSON objects with "type" and "object", until ctx ends or the API server has enough.
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
