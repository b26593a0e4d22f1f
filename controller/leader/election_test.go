package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const testLease = 15 * time.Second

// object is the lease at the API server, which writes a version only over the one that was read, and refuses numbers
// that are not valid.
type object struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord // nil: there is none
	version int
}

func (o *object) set(r *resourcelock.LeaderElectionRecord) {
	o.record = r
	o.version++
}

// edit changes the lease as a third party does.
func (o *object) edit(change func(*resourcelock.LeaderElectionRecord) *resourcelock.LeaderElectionRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.record != nil {
		r := *o.record
		o.set(change(&r))
	}
}

// client is how one replica reaches the lease. While it is stopped, it waits.
type client struct {
	*object
	name    string
	version int
	gate    chan struct{} // closed while it runs
}

// wait returns when the process runs. A mutex would stop the clock of the bubble.
func (c *client) wait() {
	c.mu.Lock()
	gate := c.gate
	c.mu.Unlock()
	<-gate
}

// pause stops the process for a time, as by SIGSTOP.
func (c *client) pause(d time.Duration) {
	gate := make(chan struct{})
	c.mu.Lock()
	c.gate = gate
	c.mu.Unlock()
	time.Sleep(d)
	close(gate)
}

func (c *client) Identity() string                 { return c.name }
func (c *client) Describe() string                 { return "the lease" }
func (c *client) RecordEvent(string)               {}
func (c *client) EventRecorder() runtime.Object    { return nil }
func (c *client) begin() (end func())              { c.wait(); c.mu.Lock(); return c.mu.Unlock }
func (c *client) refusal(s string) (refused error) { return errors.New(s) }

func (c *client) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	defer c.begin()()
	if c.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "x")
	}
	r := *c.record
	c.version = c.object.version
	raw, err := json.Marshal(r)
	return &r, raw, err
}

func (c *client) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	defer c.begin()()
	if c.record != nil {
		return c.refusal("it exists")
	}
	c.set(&r)
	c.version = c.object.version
	return nil
}

func (c *client) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	defer c.begin()()
	switch {
	case c.record == nil || c.version != c.object.version:
		return c.refusal("conflict")
	case int32(r.LeaderTransitions) < 0 || r.LeaseDurationSeconds <= 0:
		return c.refusal("invalid")
	}
	c.set(&r)
	c.version = c.object.version
	return nil
}

// stage is a cluster with some replicas, each of which writes all the time while it leads.
type stage struct {
	object
	began time.Time
	all   []*actor
}

type actor struct {
	client
	*Election
	skew atomic.Int64 // by how much its CLOCK_BOOTTIME is ahead
	stop context.CancelFunc
	done chan struct{}
	fail atomic.Bool // the work panics

	mu     sync.Mutex
	writes []time.Duration // since the stage began
}

// wrote returns when the replica has written until now.
func (a *actor) wrote() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

// on makes n replicas stand for election, and ends them after the play.
func on(t *testing.T, n int, play func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{began: time.Now()}
		open := make(chan struct{})
		close(open)
		for i := range n {
			a := &actor{done: make(chan struct{})}
			a.client = client{object: &s.object, name: string(rune('a' + i)), gate: open}
			a.Election = &Election{Lock: &a.client, Lease: testLease, Log: slog.New(slog.DiscardHandler)}
			a.clock = func() time.Duration { return time.Since(s.began) + time.Duration(a.skew.Load()) + time.Hour }
			a.Term = func(ctx context.Context) { s.act(ctx, a) }
			s.all = append(s.all, a)
			s.start(t, a)
		}
		play(s)
		for _, a := range s.all {
			a.stop()
			<-a.done
		}
	})
}

func (s *stage) start(t *testing.T, a *actor) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	go func() {
		defer close(a.done)
		if err := a.Election.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
}

// act is the work of a leader: a write every 50 ms, each checked by the transport.
func (s *stage) act(ctx context.Context, a *actor) {
	way := Transport(roundTrip(func(*http.Request) (*http.Response, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.writes = append(a.writes, time.Since(s.began))
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	for ctx.Err() == nil {
		if a.fail.Load() {
			panic("a fault in the work")
		}
		a.wait() // a process that is stopped does nothing
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("x"))
		if answer, err := way.RoundTrip(r); err == nil {
			_ = answer.Body.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// written returns the replicas in the order in which they wrote, each as often as it took turns.
func (s *stage) written() (turns string) {
	next := make([]int, len(s.all))
	var writes [][]time.Duration
	for _, a := range s.all {
		writes = append(writes, a.wrote())
	}
	for {
		first := -1
		for i := range s.all {
			if next[i] < len(writes[i]) && (first < 0 || writes[i][next[i]] < writes[first][next[first]]) {
				first = i
			}
		}
		if first < 0 {
			return turns
		}
		next[first]++
		if name := s.all[first].name; !strings.HasSuffix(turns, name) {
			turns += name
		}
	}
}

// last returns who wrote in the last second.
func (s *stage) last() (names string) {
	for _, a := range s.all {
		if w := a.wrote(); len(w) > 0 && time.Since(s.began)-w[len(w)-1] < time.Second {
			names += a.name
		}
	}
	return names
}

// edits are what third parties do to a lease.
func edits() map[string]func(*resourcelock.LeaderElectionRecord) *resourcelock.LeaderElectionRecord {
	type record = resourcelock.LeaderElectionRecord
	holder := func(name string, seconds int) func(*record) *record {
		return func(r *record) *record { r.HolderIdentity, r.LeaseDurationSeconds = name, seconds; return r }
	}
	return map[string]func(*record) *record{
		"deleted":              func(*record) *record { return nil },
		"emptied":              holder("", 15),
		"emptied, bare":        func(*record) *record { return &record{} },
		"given to a":           holder("a", 15),
		"given to b":           holder("b", 15),
		"given to nobody":      holder("x", 15),
		"given to nobody long": holder("x", math.MaxInt32),
		"shortened":            func(r *record) *record { r.LeaseDurationSeconds = 1; return r },
		"lengthened":           func(r *record) *record { r.LeaseDurationSeconds = math.MaxInt32; return r },
		"negative":             func(r *record) *record { r.LeaseDurationSeconds = -5; return r },
		"worn out":             func(r *record) *record { r.LeaderTransitions = math.MaxInt32; return r },
		"in the future": func(r *record) *record {
			r.RenewTime = metav1.NewTime(time.Now().AddDate(9, 0, 0))
			return r
		},
	}
}

// TestLeaseEdited: whatever a third party writes into the lease, two replicas never write in between, and one of them
// writes again.
func TestLeaseEdited(t *testing.T) {
	for name, edit := range edits() {
		t.Run(name, func(t *testing.T) {
			on(t, 2, func(s *stage) {
				time.Sleep(time.Minute)
				if s.last() == "" || len(s.last()) > 1 {
					t.Fatalf("before it, the leaders are %q", s.last())
				}
				s.edit(edit)
				time.Sleep(MaxLease + time.Minute)
				if got := s.written(); len(s.last()) != 1 || len(got) > 2 {
					t.Errorf("they wrote in between: %s, at last %q", got, s.last())
				}
			})
		})
	}
}

// TestLeaseFaults plays edits, stopped processes and restarts by chance.
func TestLeaseFaults(t *testing.T) {
	all := edits()
	delete(all, "given to nobody long") // it alone takes five minutes
	names := []string{}
	for name := range all {
		names = append(names, name)
	}
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			on(t, 3, func(s *stage) {
				dice := rand.New(rand.NewPCG(seed, 0))
				for range 12 {
					time.Sleep(time.Duration(dice.Int64N(int64(40 * time.Second))))
					a := s.all[dice.IntN(len(s.all))]
					switch dice.IntN(3) {
					case 0:
						s.edit(all[names[dice.IntN(len(names))]])
					case 1: // as by SIGSTOP
						a.pause(time.Duration(dice.Int64N(int64(3 * testLease))))
					case 2: // the machine was suspended
						a.skew.Add(dice.Int64N(int64(2 * testLease)))
					}
				}
				time.Sleep(MaxLease + time.Minute)
				if len(s.last()) != 1 {
					t.Errorf("at last the leaders are %q", s.last())
				}
				s.apart(t)
			})
		})
	}
}

// apart checks that a replica wrote nothing between two writes of another that are less than a lease apart.
func (s *stage) apart(t *testing.T) {
	t.Helper()
	for _, a := range s.all {
		for _, b := range s.all {
			mine, others := a.wrote(), b.wrote()
			for i := 1; a != b && i < len(mine); i++ {
				from, to := mine[i-1], mine[i]
				for _, w := range others {
					if to-from < testLease && w > from && w < to {
						t.Fatalf("%s wrote at %v and %v, and %s at %v", a.name, from, to, b.name, w)
					}
				}
			}
		}
	}
}

// TestStoppedLeader: a leader that was stopped for longer than its lease, as by SIGSTOP, writes nothing after that,
// from its first moment on.
func TestStoppedLeader(t *testing.T) {
	on(t, 2, func(s *stage) {
		time.Sleep(time.Minute)
		leader := s.all[0]
		if s.last() != leader.name {
			leader = s.all[1]
		}
		synctest.Wait() // what it writes at this very moment is written before it stops
		before := len(leader.wrote())
		leader.pause(3 * testLease)
		time.Sleep(time.Minute)
		if after := len(leader.wrote()); after != before {
			t.Errorf("it wrote %d times, the next leader at the same time", after-before)
		}
		if s.last() == leader.name || len(s.last()) != 1 {
			t.Errorf("the leader is %q, which was %q", s.last(), leader.name)
		}
	})
}

// TestSuspendedMachine: the time for which a machine was suspended counts. Go's timers do not see it.
func TestSuspendedMachine(t *testing.T) {
	var now time.Duration
	p := &Proof{clock: func() time.Duration { return now }}
	p.until.Store(int64(10 * time.Second))
	sent := 0
	way := Transport(roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{Body: http.NoBody}, nil
	}))
	try := func(ctx context.Context, method string) error {
		body := &closing{Reader: bytes.NewReader([]byte("x"))}
		answer, err := way.RoundTrip(httptest.NewRequestWithContext(ctx, method, "/", body))
		if err != nil && !body.closed {
			t.Error("the body of a refused request is open")
		}
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for _, c := range []struct {
		name   string
		ctx    context.Context
		method string
		now    time.Duration
		want   error
	}{
		{"in time", p.In(t.Context()), http.MethodPost, 9 * time.Second, nil},
		{"late", p.In(t.Context()), http.MethodPost, 10 * time.Second, ErrUnproven},
		{"at the end of the term", context.WithoutCancel(p.In(t.Context())), http.MethodPatch, time.Hour, ErrUnproven},
		{"late, but it only reads", p.In(t.Context()), http.MethodGet, time.Hour, nil},
		{"what every replica writes", t.Context(), http.MethodPost, time.Hour, nil},
	} {
		now = c.now
		before := sent
		if err := try(c.ctx, c.method); !errors.Is(err, c.want) || (sent > before) != (c.want == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// TestHandover: a leader that steps down hands over at once, without the wait for its lease.
func TestHandover(t *testing.T) {
	on(t, 2, func(s *stage) {
		time.Sleep(time.Minute)
		first, second := s.all[0], s.all[1]
		if s.last() != first.name {
			first, second = second, first
		}
		first.stop()
		<-first.done
		left := time.Since(s.began)
		time.Sleep(time.Minute)
		if len(second.wrote()) == 0 || second.wrote()[0]-left > testLease/2 {
			t.Errorf("it stepped down at %v, the next one began at %v", left, second.wrote())
		}
	})
}

// TestFaultInTheWork: a panic in the work of a leader ends its term. It stands again, later after each.
func TestFaultInTheWork(t *testing.T) {
	on(t, 1, func(s *stage) {
		a := s.all[0]
		a.fail.Store(true)
		time.Sleep(3 * time.Minute)
		a.fail.Store(false)
		time.Sleep(3 * time.Minute)
		if s.last() != a.name {
			t.Error("it does not lead again")
		}
	})
}

// TestBootTime: the clock is that of the kernel.
func TestBootTime(t *testing.T) {
	if a, b := bootTime(), bootTime(); a <= 0 || b < a || a == math.MaxInt64 {
		t.Errorf("%v, then %v", a, b)
	}
}
