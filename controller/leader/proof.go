package leader

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnproven refuses a write by a replica that cannot prove that it is still the leader.
var ErrUnproven = errors.New("this replica cannot prove that it is still the leader")

// Proof says until when this replica may act as the leader. Its clock counts the time during which the process was
// stopped or the machine suspended, so that neither goes on where it was after its lease has expired.
type Proof struct {
	clock func() time.Duration
	until atomic.Int64 // a time.Duration of clock
}

// bootTime is CLOCK_BOOTTIME: unlike the clock of Go's timers, CLOCK_MONOTONIC, it counts while the machine is
// suspended (clock_gettime(2)).
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 1<<63 - 1 // every Linux since 2.6.39 has the clock; without it, nothing is proven
	}
	return time.Duration(t.Nano())
}

// Left returns for how long the proof is still valid; negative if it is not.
func (p *Proof) Left() time.Duration { return time.Duration(p.until.Load()) - p.clock() }

type proofKey struct{}

// In returns a context whose writes need the proof; see [Transport].
func (p *Proof) In(ctx context.Context) context.Context { return context.WithValue(ctx, proofKey{}, p) }

// Transport refuses a write whose context has a proof that is no longer valid. It is the last place before the network,
// so that retries of a client are checked as well.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, needed := r.Context().Value(proofKey{}).(*Proof)
	if needed && r.Method != http.MethodGet && p.Left() <= 0 {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must close it
		}
		return nil, ErrUnproven
	}
	return t.next.RoundTrip(r)
}
