package steps

import (
	"log/slog"

	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/host"
)

// Steps runs steps on one host. It is safe for concurrent use.
type Steps struct {
	h          *host.Host
	log        *slog.Logger
	operations *deadline.Operations
}

// New returns the Steps of a host.
func New(h *host.Host, log *slog.Logger, operations *deadline.Operations) *Steps {
	return &Steps{h: h, log: log, operations: operations}
}
