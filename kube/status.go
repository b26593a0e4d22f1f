package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/accel"
)

// patchStatus sends one patch of the node's status by itself: if it is refused, the rest is written nevertheless. body
// returns the patch of the node as it is now, nil for none; refusal is called when the API server does not permit it.
func (s *session) patchStatus(ctx context.Context, body func() []byte, refusal func(error)) *accel.Problem {
	for conflicts := 0; ; conflicts++ {
		patch := body()
		if patch == nil {
			return nil
		}
		err := s.patch(ctx, types.StrategicMergePatchType, patch, "status")
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err) && conflicts < maxConflicts: // the node changed; patch has read it again
		case refused(err):
			refusal(err)
			return nil
		default:
			return problem("patch nodes/status of", s.k.c.Node, err)
		}
	}
}
