package holders

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

// Options are the settings of a [Follower]. All but Log are required.
type Options struct {
	// Host is the machine with the kubelet's sockets and directories.
	Host *host.Host
	// Root returns the kubelet's --root-dir as the host sees it.
	Root func() string
	// Active reports whether anything is offered to a kubelet. If nothing is, nothing is asked.
	Active func() bool
	// Device returns the accelerator for the kubelet's device of an extended resource, and whether it is one of
	// acceld's.
	Device func(resource, id string) (accelerator string, ours bool)
	// Claimed does the same for a device of a DRA driver.
	Claimed func(driver, device string) (accelerator string, ours bool)
	// Claims returns what is prepared for the claims of pods according to the drivers' own records. Container is
	// empty there.
	Claims func() []Hold
	// Log gets what only helps a developer: that the kubelet does not answer shows elsewhere. If nil, nothing is
	// logged.
	Log *slog.Logger
}

// Follower is the task that follows who holds what. Its methods may be called from any goroutine.
type Follower struct {
	o      Options
	timing timing
	book   *book // belongs to Run
	now    atomic.Pointer[exporter.Holdings]
	wake   chan struct{}
	ready  chan struct{}
	once   sync.Once // closes ready
	kubelet
	pods pods
	// Tests replace these.
	list     func(context.Context) (*podresources.ListPodResourcesResponse, error)
	identity func() uint64 // identifies the kubelet's socket; another value means that the kubelet has restarted
	uids     func() map[string]string
	watch    func(ctx context.Context, names ...string) (<-chan string, error)
	streams  func(context.Context)

	life     uint64
	failures int
}

// timing holds every duration, so that tests can shorten them.
type timing struct {
	settle time.Duration // collects changes that come together
	// gap is the least time between two requests. The kubelet answers all its clients together 100 times a second,
	// and ten at once (pkg/kubelet/apis/grpc/ratelimit.go); the rest is for the other clients.
	gap time.Duration
	ask time.Duration // deadline of one request
	// resync is the time between requests while there are holders, if no event reports that a pod has completed.
	resync   time.Duration
	lastSeen time.Duration // the same if the kubelet's stream of pods reports that
	idle     time.Duration // between requests while there are no holders
	confirm  time.Duration // how long a hold must be missing before it counts as ended
	// returned is the same after a kubelet's first answer: its pods still arrive from the API server.
	returned time.Duration
	// complete is how long a hold without UID or container waits before it is shown anyway.
	complete time.Duration
	again    time.Duration // between looks at incomplete holds
	retry    time.Duration // after a failure; doubles up to retryMax
	retryMax time.Duration
}

func usual() timing {
	return timing{
		settle: 100 * time.Millisecond, gap: time.Second, ask: 2 * time.Second, resync: 15 * time.Second,
		lastSeen: time.Minute, idle: 5 * time.Minute,
		confirm: 2 * time.Second, returned: 30 * time.Second, complete: 3 * time.Second, again: 500 * time.Millisecond,
		retry: time.Second, retryMax: 40 * time.Second,
	}
}

// New returns a follower that knows nothing until [Follower.Run] is called.
func New(o Options) *Follower {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := usual()
	f := &Follower{o: o, timing: t, book: newBook(t), wake: make(chan struct{}, 1), ready: make(chan struct{})}
	f.list, f.identity, f.uids, f.streams = f.ask, f.socketIdentity, func() map[string]string {
		return podUIDs(o.Host)
	}, f.stream
	if o.Host != nil {
		f.watch = o.Host.Watch
	}
	f.now.Store(&exporter.Holdings{})
	return f
}

// String names the task.
func (f *Follower) String() string { return "holders of accelerators" }

// Ready is closed when Run has started, so that an agent that starts before the kubelet is not held up.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// Holdings returns who holds what, as far as is known. It makes no request. The caller must not change the result.
func (f *Follower) Holdings() exporter.Holdings { return *f.now.Load() }

// Poke reports that devices may have been allocated or released.
func (f *Follower) Poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run follows the kubelet until ctx ends, across any number of its restarts, and returns nil. Call it once.
func (f *Follower) Run(ctx context.Context) error {
	defer f.kubelet.close()
	ctx, end := context.WithCancel(ctx)
	var beside guard.Group
	defer beside.Wait()
	defer end()
	beside.Keep(ctx, "stream of pods", func(ctx context.Context) error { f.streams(ctx); return nil })
	f.follow(ctx, &beside)
	f.once.Do(func() { close(f.ready) })
	last, due := time.Time{}, time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
			at := time.Now().Add(f.timing.settle)
			if next := last.Add(f.timing.gap); at.Before(next) {
				at = next
			}
			if at.Before(due) {
				due = at
				timer.Reset(time.Until(at))
			}
		case <-timer.C:
			last = time.Now()
			wait := f.look(ctx)
			due = time.Now().Add(wait)
			timer.Reset(wait)
		}
	}
}

// follow pokes whenever the kubelet's directories change. The device manager writes its checkpoint after it has
// allocated a device. A pod has a directory from its creation to its deletion, and one for its logs from its start.
// If the host has no more watches, the periodic requests must do.
func (f *Follower) follow(ctx context.Context, beside *guard.Group) {
	for _, names := range [][]string{{devicePlugins}, {f.o.Root() + "/pods", podLogs}} {
		events, err := f.watch(ctx, names...)
		if err != nil {
			f.o.Log.Debug("who holds accelerators is seen late", "error", err)
			continue
		}
		starts := names[0] == devicePlugins
		beside.Keep(ctx, "changes in "+names[0], func(ctx context.Context) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case _, open := <-events:
					if !open {
						return nil
					}
				}
				// Without holders, the start or end of a pod does not matter.
				if starts || len(f.Holdings().By) > 0 {
					f.Poke()
				}
			}
		})
	}
}

// look asks once, publishes the result, and returns when to look again.
func (f *Follower) look(ctx context.Context) time.Duration {
	if !f.o.Active() {
		f.book = newBook(f.timing)
		f.publish(exporter.Holdings{})
		return f.timing.idle
	}
	life := f.identity()
	limited, cancel := context.WithTimeout(ctx, f.timing.ask)
	resp, err := f.list(limited)
	cancel()
	now := time.Now()
	if err != nil {
		f.failures++
		f.o.Log.Debug("the kubelet does not say who holds accelerators", "error", err)
		f.show(now, f.Holdings().Told)
		return pace.Backoff{First: f.timing.retry, Max: f.timing.retryMax}.After(f.failures)
	}
	if life != f.life && !f.book.empty() {
		f.book.returned = now
	}
	f.life, f.failures = life, 0
	f.book.take(f.read(resp), f.uidOf(), now)
	due := f.show(now, now)
	switch {
	case !due.IsZero():
		return min(max(due.Sub(now), time.Millisecond), f.timing.resync)
	case f.book.empty():
		return f.timing.idle
	case f.pods.following():
		return f.timing.lastSeen
	}
	return f.timing.resync
}

// uidOf returns a function that knows the pods' UIDs: from the kubelet's stream, or else from the directories of
// their logs, which are read at most once and only if needed.
func (f *Follower) uidOf() func(namespace, pod string) string {
	uids := sync.OnceValue(f.uids)
	return func(namespace, pod string) string {
		if uid := f.pods.uid(namespace, pod); uid != "" {
			return uid
		}
		return uids()[namespace+"/"+pod]
	}
}

// show publishes who holds what, and returns when that may change by itself.
func (f *Follower) show(now, lastSeen time.Time) (due time.Time) {
	by, due := f.book.holders(now)
	f.publish(exporter.Holdings{By: by, Told: lastSeen})
	return due
}

// publish stores holdings with a new revision.
func (f *Follower) publish(h exporter.Holdings) {
	h.Revision = f.Holdings().Revision + 1
	f.now.Store(&h)
}
