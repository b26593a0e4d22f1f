package firmware

import (
	"log/slog"

	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// Firmware manages the firmware of the drivers in the store of one host.
type Firmware struct {
	h        *host.Host
	log      *slog.Logger
	ledger   *ledger.Ledger
	store    *store.Store
	stateDir string
}

// New returns the Firmware of a host.
func New(h *host.Host, log *slog.Logger, l *ledger.Ledger, s *store.Store, stateDir string) *Firmware {
	return &Firmware{h: h, log: log, ledger: l, store: s, stateDir: stateDir}
}
