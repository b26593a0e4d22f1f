package kube

import (
	"errors"
	"net/http"

	"github.com/acceld/acceld/accel"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// problem gives an API error its reason: refused, not found, or unreachable. attempted is for example "patch node".
func problem(attempted, node string, err error) *accel.Problem {
	if refused(err) {
		return accel.Problemf(accel.APIForbidden, "cannot %s %q: %v", attempted, node, err)
	}
	if apierrors.IsNotFound(err) {
		return accel.Problemf(accel.NodeNotFound, "cannot %s %q: %v", attempted, node, err)
	}
	return accel.Problemf(accel.APIUnreachable, "cannot %s %q: %v", attempted, node, err)
}

// refused reports whether the API server answered with a refusal: authorisation, admission or validation. Repeating
// the request helps only after somebody has changed the rules.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests,
		http.StatusRequestTimeout:
		return false
	default:
		return code >= 400 && code < 500
	}
}
