package kube

import (
	"bytes"
	"context"
	"time"

	"github.com/acceld/acceld/accel"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxConflicts is how often labels and taints are retried at once after somebody else changed the node.
const maxConflicts = 3

// allowance uses up one write of the rate limit if there is something to write. If none is left, it returns how long
// to wait: somebody else keeps changing what acceld writes.
func (s *session) allowance(r *rendered, retaint bool) time.Duration {
	if metadataPatch(s.node, r, s.extent, retaint) == nil && s.maintenance(r) == nil &&
		s.totals(r) == nil && statusPatch(s.node, r.condition, s.k.c.Now()) == nil {
		return 0
	}
	v := s.k.writes.Reserve()
	d := v.Delay()
	if d > 0 {
		v.Cancel()
		if s.k.first("rival") {
			s.k.c.Log.Warn("somebody keeps changing the node's labels or condition; writing slows down", "node",
				s.k.c.Node)
		}
	}
	return d
}

// write patches the node's labels and taints, then its status. The condition that all is ready follows the labels
// that make it true, never the other way round. kept reports that the labels are as the node should have them.
func (s *session) write(ctx context.Context, r *rendered, retaint bool) (p *accel.Problem, kept bool) {
	p, kept = s.writeMetadata(ctx, r, retaint)
	if s.node == nil || p != nil && (p.Reason == accel.APIUnreachable || r.condition.Status == corev1.ConditionTrue) {
		return p, kept
	}
	body := statusPatch(s.node, r.condition, s.k.c.Now())
	if body == nil {
		return p, kept
	}
	if err := s.patch(ctx, types.StrategicMergePatchType, body, "status"); err != nil && p == nil {
		p = problem("patch nodes/status of", s.k.c.Node, err)
	}
	return p, kept
}

// writeMetadata patches labels and taints, as far as the API server permits.
func (s *session) writeMetadata(ctx context.Context, r *rendered, retaint bool) (p *accel.Problem, kept bool) {
	var refusal error
	var last []byte
	for conflicts := 0; s.extent < nothing; {
		body := metadataPatch(s.node, r, s.extent, retaint)
		if body == nil {
			break
		}
		if bytes.Equal(body, last) { // with less extent, the patch is the same
			s.extent++
			continue
		}
		err := s.patch(ctx, types.MergePatchType, body)
		if err == nil {
			break
		}
		switch {
		case apierrors.IsConflict(err) && conflicts < maxConflicts: // the node changed; patch has read it again
			conflicts++
		case refused(err):
			refusal, last = err, body
			s.extent++
		default:
			return problem("patch node", s.k.c.Node, err), false
		}
	}
	switch {
	case s.extent == nothing:
		s.extent = everything
		return problem("patch node", s.k.c.Node, refusal), false
	case refusal == nil:
		return nil, true
	}
	if _, changed := taintChange(s.node.Spec.Taints, r.ready, retaint); changed {
		return problem("patch taints of node", s.k.c.Node, refusal), true
	}
	if s.k.first("labels") {
		s.k.c.Log.Warn("the API server refuses labels outside acceld.dev/; they are left out", "node", s.k.c.Node,
			"of vendors alone", s.extent == withoutVendors, "error", refusal)
	}
	return nil, true
}

// patch sends one patch and keeps the answer as the newest node. After a conflict (somebody else changed the node),
// it reads the node again. A node that is gone becomes nil.
func (s *session) patch(ctx context.Context, t types.PatchType, body []byte, subresources ...string) error {
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	node, err := s.k.c.Client.Nodes.Patch(limited, s.k.c.Node, t, body, metav1.PatchOptions{FieldManager: FieldManager},
		subresources...)
	switch {
	case err == nil:
		s.node = node
	case apierrors.IsNotFound(err):
		s.node = nil
	case apierrors.IsConflict(err):
		if again, e := s.get(ctx); e == nil {
			s.node = again
		}
	}
	return err
}
