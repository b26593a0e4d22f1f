package store

import (
	"log/slog"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
)

// Options of a [Store]; all but the limits are required.
type Options struct {
	// StateDir is the agent's persistent directory, as a path on the host.
	StateDir string
	Log      *slog.Logger
	Locks    lock.Locks
	// Now is the clock for timestamps.
	Now func() time.Time
	// Wait is how long to wait for another builder of the same driver.
	Wait time.Duration
	// Entries is how many unneeded drivers are kept, newest first; none when negative. MiB bounds their total size;
	// no bound when zero.
	Entries, MiB int
	// Trust is the host's policy on signatures.
	Trust accel.Trust
	// Point is called before and after each effect that outlives the process, with its name.
	Point func(string)
}

// Store is the store of one host. Its methods are safe for concurrent use, even by several processes.
type Store struct {
	h *host.Host
	o Options
}

// New returns the store of a host.
func New(h *host.Host, o Options) *Store { return &Store{h: h, o: o} }

// Attempts are the markers of loads, below the same directory.
type Attempts struct {
	h        *host.Host
	log      *slog.Logger
	stateDir string
}

// NewAttempts returns the load markers of a host.
func NewAttempts(h *host.Host, log *slog.Logger, stateDir string) *Attempts {
	return &Attempts{h: h, log: log, stateDir: stateDir}
}
