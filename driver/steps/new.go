package steps

import (
	"log/slog"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/host"
)

// Steps runs steps on one host. It is safe for concurrent use.
type Steps struct {
	h          *host.Host
	log        *slog.Logger
	operations *deadline.Operations
	pods       func() ([]accel.NodePod, error)
}

// New returns the Steps of a host. Pods returns the pods of its node; nil without Kubernetes.
func New(h *host.Host, log *slog.Logger, operations *deadline.Operations, pods func() ([]accel.NodePod, error)) *Steps {
	if pods == nil {
		pods = func() ([]accel.NodePod, error) { return nil, errNoPods }
	}
	return &Steps{h: h, log: log, operations: operations, pods: pods}
}
