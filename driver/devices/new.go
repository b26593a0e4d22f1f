package devices

import (
	"log/slog"

	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// Devices reads and repairs the devices of one host.
type Devices struct {
	h      *host.Host
	log    *slog.Logger
	ledger *ledger.Ledger
}

// New returns the devices of a host.
func New(h *host.Host, log *slog.Logger, l *ledger.Ledger) *Devices {
	return &Devices{h: h, log: log, ledger: l}
}
