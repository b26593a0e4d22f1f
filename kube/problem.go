package kube

import (
	"errors"
	"net/http"

	"github.com/acceld/acceld/accel"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// problem gives an error of the API a reason: refused, not there, or not reached. What was attempted is "patch nodes".
func problem(attempted, node string, err error) *accel.Problem {
	if refused(err) {
		return accel.Problemf(accel.APIForbidden, "cannot %s %q: %v", attempted, node, err)
	}
	if apierrors.IsNotFound(err) {
		return accel.Problemf(accel.NodeNotFound, "cannot %s %q: %v", attempted, node, err)
	}
	return accel.Problemf(accel.APIUnreachable, "cannot %s %q: %v", attempted, node, err)
}

// refused reports whether the API server answered, and answered no: authorisation, admission or validation. Saying the
// same again helps only after somebody changed the rules.
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
