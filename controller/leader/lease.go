package leader

import (
	"bytes"
	"context"
	"math"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// MaxLease bounds how long a lease that somebody else holds or has edited is respected without a renewal.
const MaxLease = 5 * time.Minute

// lease is the lock of an election. It keeps the proof of this replica, and it trusts nothing in the object except
// what the API server guarantees: a version is written only over the version that was read.
//
// Who becomes the leader by a version that no leader released, because somebody has edited or deleted the lease, may
// not act yet: the previous leader acts until its proof ends. rival is when that is over.
type lease struct {
	resourcelock.Interface
	*Proof
	lasts time.Duration // the configured duration of the lease
	valid time.Duration // how long a renewal proves leadership

	lost func() // called when somebody else holds the lease of this replica

	read  bool         // the lease has been asked for
	last  []byte       // the last version that was read; nil if there was no lease
	held  bool         // this replica has written that it holds the lease, and has read nothing else
	rival atomic.Int64 // a time.Duration of clock
}

// Get reads the lease. What it returns is within bounds, so that an edit neither shortens the lease of the leader nor
// keeps everybody from leading.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		if apierrors.IsNotFound(err) {
			l.see(nil, nil)
		}
		return nil, nil, err
	}
	l.see(record, raw)
	record.LeaseDurationSeconds = int(l.bounded(record).Seconds())
	if record.LeaderTransitions < 0 || record.LeaderTransitions > math.MaxInt32/2 {
		record.LeaderTransitions = 0 // one more must be a valid number, or no version could be written any more
	}
	return record, raw, nil
}

func (l *lease) bounded(r *resourcelock.LeaderElectionRecord) time.Duration {
	return min(max(time.Duration(r.LeaseDurationSeconds)*time.Second, l.lasts), max(MaxLease, l.lasts))
}

// see takes over a version that was read; nil if there is no lease.
func (l *lease) see(record *resourcelock.LeaderElectionRecord, raw []byte) {
	news := !l.read || !bytes.Equal(raw, l.last)
	l.read, l.last = true, raw
	if l.held && (record == nil || record.HolderIdentity == l.Identity()) {
		return // it is renewed or created again; whoever was faster may not act yet
	}
	if l.until.Store(0); l.held {
		l.held = false
		l.lost()
	}
	switch {
	case !news:
	case record == nil:
		l.rival.Store(int64(l.clock() + l.lasts))
	case released(record):
		l.rival.Store(0)
	default:
		l.rival.Store(int64(l.clock() + l.bounded(record)))
	}
}

// release is the record of a leader that has stepped down and writes nothing any more.
func release(transitions int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, LeaderTransitions: transitions}
}

func released(r *resourcelock.LeaderElectionRecord) bool {
	return r.HolderIdentity == "" && r.LeaseDurationSeconds == 1
}

// Create creates the lease.
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.Interface.Create)
}

// Update renews the lease, takes it over or releases it.
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.Interface.Update)
}

// write writes a version. It proves leadership from the moment before the request: another replica sees the version
// later, and waits from then on.
func (l *lease) write(ctx context.Context, r resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	began := l.clock()
	if r.HolderIdentity != l.Identity() {
		l.until.Store(0)
	}
	if err := write(ctx, r); err != nil {
		return err
	}
	if l.held = r.HolderIdentity == l.Identity(); l.held {
		l.until.Store(int64(began + l.valid))
	}
	return nil
}

// owed is how long the previous leader may still act.
func (l *lease) owed() time.Duration { return time.Duration(l.rival.Load()) - l.clock() }
