package store

import (
	"log/slog"
	"time"

	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
)

// Options of a [Store]; all but the limits must be there.
type Options struct {
	// StateDir is the agent's persistent directory, as the host sees it.
	StateDir string
	Log      *slog.Logger
	Locks    lock.Locks
	// Now is the clock of what is written.
	Now func() time.Time
	// Wait is how long another builder of the same driver is waited for.
	Wait time.Duration
	// Entries is how many drivers that nothing needs are kept, the youngest ones; none when negative. MiB bounds what
	// they take; no bound when zero.
	Entries, MiB int
	// Point is called before and after each thing that outlives the process, with its name.
	Point func(string)
}

// Store is the store of one host. Its methods are safe for concurrent use, also by several processes.
type Store struct {
	h            *host.Host
	log          *slog.Logger
	stateDir     string
	locks        lock.Locks
	now          func() time.Time
	wait         time.Duration
	entries, mib int
	point        func(string)
}

// New returns the store of a host.
func New(h *host.Host, o Options) *Store {
	return &Store{
		h: h, log: o.Log, stateDir: o.StateDir, locks: o.Locks, now: o.Now, wait: o.Wait, entries: o.Entries,
		mib:   o.MiB,
		point: o.Point,
	}
}

// Attempts are the marks of loads, below the same directory.
type Attempts struct {
	h        *host.Host
	log      *slog.Logger
	stateDir string
}

// NewAttempts returns the marks of a host.
func NewAttempts(h *host.Host, log *slog.Logger, stateDir string) *Attempts {
	return &Attempts{h: h, log: log, stateDir: stateDir}
}
