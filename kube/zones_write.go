package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The API of NodeResourceTopology, and the label by which acceld knows that it has written one.
const (
	topologyVersion = "topology.node.k8s.io/v1alpha2"
	topologyPath    = "/apis/" + topologyVersion + "/noderesourcetopologies"
	managedBy       = "app.kubernetes.io/managed-by"
	manager         = "acceld"
)

// TopologyWriter writes the topology of one node. It belongs to one goroutine.
type TopologyWriter struct {
	API  API
	Node string

	written *ResourceTopology
	owner   *Owner
}

// Write brings the object of the node to what t says. An object that somebody else has made stays, and the error says
// so. Nothing is sent if this writer has written the same before.
func (w *TopologyWriter) Write(ctx context.Context, t *ResourceTopology) error {
	if w.written.Same(t) {
		return nil
	}
	if err := w.write(ctx, t); err != nil {
		w.written = nil
		return fmt.Errorf("cannot write the resource topology of node %q: %w", w.Node, err)
	}
	w.written = t
	return nil
}

func (w *TopologyWriter) write(ctx context.Context, t *ResourceTopology) error {
	if w.owner == nil {
		var node struct {
			Meta Meta `json:"metadata"`
		}
		if err := w.API.Do(ctx, http.MethodGet, "/api/v1/nodes/"+w.Node, nil, nil, &node); err != nil {
			return err
		}
		w.owner = &Owner{APIVersion: "v1", Kind: "Node", Name: w.Node, UID: node.Meta.UID}
	}
	var have ResourceTopology
	err := w.API.Do(ctx, http.MethodGet, topologyPath+"/"+w.Node, nil, nil, &have)
	switch {
	case apierrors.IsNotFound(err):
		made := *t
		made.APIVersion, made.Kind = topologyVersion, "NodeResourceTopology"
		made.Meta = Meta{
			Identity: Identity{Name: w.Node}, Labels: map[string]string{managedBy: manager},
			OwnerReferences: []Owner{*w.owner},
		}
		// an API server that does not know the type says that it is not found, too
		return w.API.Do(ctx, http.MethodPost, topologyPath, nil, made, nil)
	case err != nil:
		return err
	case have.Meta.Labels[managedBy] != manager:
		return errors.New("somebody else has made it: delete it, or turn kubernetes.resourceTopology off")
	case have.Same(t):
		return nil
	}
	attributes := t.Attributes
	if attributes == nil {
		attributes = []topologyAttribute{}
	}
	return w.API.Do(ctx, http.MethodPatch, topologyPath+"/"+w.Node, nil, map[string]any{
		"metadata": map[string]any{"resourceVersion": have.Meta.ResourceVersion}, "attributes": attributes, "zones": t.Zones,
	}, nil)
}
