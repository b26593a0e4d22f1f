package devices

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// Options of a [Keeper].
type Options struct {
	API kube.API
	// Reports returns what nodes report now; false until that is known.
	Reports func() (Reports, bool)
	Log     *slog.Logger
	// Registry receives the metrics; it may be nil.
	Registry prometheus.Registerer
}

// Keeper is the task that keeps the records.
type Keeper struct {
	o       Options
	records *kube.Reflector[Device, *Device]
	metrics *metrics
	wake    chan struct{}

	// Owned by Run.
	since    map[string]time.Time
	parsed   map[string]map[string]parsed // by node and kind
	allowed  map[string]*rate.Limiter     // by node
	cursor   string                       // the record that was written last: the next pass begins behind it
	reported kube.Reported                // why records are not kept
	last     Reports                      // what the last pass was about
	due      time.Time                    // when another one is due, whatever is reported; zero if none is

	// news is true when records have changed since the last pass.
	news atomic.Bool

	mu   sync.Mutex
	seen summary
}

// parsed is the result of parsing a text.
type parsed struct {
	text    string
	reports []accel.DeviceReport
	known   bool
}

// summary is what the last pass found, for people.
type summary struct{ leftOut, unreadable int }

const (
	// every is the time between two passes, and perPass how many records one writes: ten in a second.
	every   = 10 * time.Second
	perPass = 100
	// A node may cause so many writes at once, and then one in each nodeEvery: an agent reports what happens to a
	// device at most once a minute.
	nodeBurst = 2 * maxBegun
	nodeEvery = 5 * time.Second
	// later is when writes are tried again that were refused.
	later = time.Minute
	// deadline is the time limit of one request.
	deadline = 15 * time.Second
	// fieldManager owns the fields that the controller writes.
	fieldManager = "acceld-controller"
)

// New returns a keeper that has not contacted the API server yet.
func New(o Options) *Keeper {
	k := &Keeper{
		o: o, wake: make(chan struct{}, 1), since: map[string]time.Time{}, parsed: map[string]map[string]parsed{},
		allowed: map[string]*rate.Limiter{},
	}
	k.records = &kube.Reflector[Device, *Device]{API: o.API, Path: Path, Optional: true, Changed: func() {
		k.news.Store(true)
		k.Poke()
	}}
	k.metrics = newMetrics(o.Registry)
	return k
}

// Poke makes the keeper look again. It never blocks.
func (k *Keeper) Poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run keeps the records until ctx ends.
func (k *Keeper) Run(ctx context.Context) error { return guard.Together(ctx, k.records.Run, k.passes) }

// passes makes a pass when something has changed or is due, until ctx ends.
func (k *Keeper) passes(ctx context.Context) error {
	var due <-chan time.Time
	for stopped := false; !stopped; stopped = pace.Sleep(ctx, every) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-due:
		}
		due = nil
		if k.pass(ctx, time.Now()); !k.due.IsZero() {
			due = time.After(max(time.Until(k.due), time.Millisecond))
		}
	}
	return nil
}

// pass reads, decides and writes, and sets when the next pass is due. Without news, it does nothing.
func (k *Keeper) pass(ctx context.Context, now time.Time) {
	reports, known := k.o.Reports()
	if !known || len(reports.Keep) == 0 {
		k.due, k.last = time.Time{}, Reports{}
		return // whatever changes that makes another pass
	}
	late := !k.due.IsZero() && !now.Before(k.due)
	if !late && !k.news.Swap(false) && reports.same(k.last) {
		return
	}
	records, synced := k.records.All()
	if err := k.records.Err(); !synced || err != nil {
		k.problem(err)
		k.due = now.Add(later) // its end makes another pass
		return
	}
	k.last = reports
	clock := now.UTC().Truncate(time.Second)
	nodes, unreadable := k.parse(reports.Nodes)
	p := decide(view{now: clock, nodes: nodes, keep: reports.Keep, records: records, since: k.since})
	k.since, k.due = p.since, p.next
	k.metrics.show(len(records), p, unreadable)
	k.mu.Lock()
	k.seen = summary{p.leftOut, unreadable}
	k.mu.Unlock()
	left, err := k.carryOut(ctx, p, clock)
	k.problem(err)
	if err != nil {
		k.due = now.Add(later)
	} else if left {
		k.due = now.Add(every)
	}
}

// same reports whether nodes report the same, and are as they were.
func (r Reports) same(o Reports) bool {
	return maps.Equal(r.Keep, o.Keep) && maps.EqualFunc(r.Nodes, o.Nodes, func(a, b Node) bool {
		return a.Up == b.Up && maps.Equal(a.Texts, b.Texts)
	})
}

// parse reads what nodes have written; a text that has been read before is not read again. A node whose text cannot be
// read is one of which nothing is known.
func (k *Keeper) parse(all map[string]Node) (nodes map[string]node, unreadable int) {
	nodes = map[string]node{}
	for name, n := range all {
		x := node{up: n.Up, reports: map[string][]accel.DeviceReport{}}
		for kind, text := range n.Texts {
			p, known := k.parsed[name][kind]
			if !known || p.text != text {
				p = parsed{text: text}
				p.reports, p.known = accel.ParseDeviceReports(text)
				if k.parsed[name] == nil {
					k.parsed[name] = map[string]parsed{}
				}
				k.parsed[name][kind] = p
			}
			if p.known {
				x.reports[kind] = p.reports
			} else {
				unreadable++
			}
		}
		maps.DeleteFunc(k.parsed[name], func(kind string, _ parsed) bool { _, still := n.Texts[kind]; return !still })
		nodes[name] = x
	}
	maps.DeleteFunc(k.parsed, func(name string, _ map[string]parsed) bool { _, still := all[name]; return !still })
	maps.DeleteFunc(k.allowed, func(name string, _ *rate.Limiter) bool { _, still := all[name]; return !still })
	return nodes, unreadable
}

// carryOut writes as many records as one pass may. Left is true if some are left for the next one.
func (k *Keeper) carryOut(ctx context.Context, p plan, now time.Time) (left bool, err error) {
	i, _ := slices.BinarySearchFunc(p.writes, k.cursor+"\x00", func(w write, name string) int {
		return strings.Compare(w.name, name)
	})
	writes := slices.Concat(p.writes[i:], p.writes[:i]) // so that those at the end come too
	rest := perPass
	for _, x := range p.deletes[:min(len(p.deletes), rest)] {
		rest--
		if err := k.delete(ctx, x); err != nil {
			return true, err
		}
	}
	left = len(p.deletes) > perPass
	for _, w := range writes {
		if rest == 0 {
			return true, nil
		}
		if w.cause != "" && !k.may(w.cause, now) {
			left = true
			continue
		}
		rest--
		k.cursor = w.name
		if err := k.write(ctx, w); err != nil {
			return true, err
		}
	}
	return left, nil
}

// may uses up one of the writes that a node may cause.
func (k *Keeper) may(node string, now time.Time) bool {
	if k.allowed[node] == nil {
		k.allowed[node] = rate.NewLimiter(rate.Every(nodeEvery), nodeBurst)
	}
	return k.allowed[node].AllowN(now, 1)
}

// do sends one write within the deadline. Somebody else's newer object, or none, is no error: the watch delivers that.
func (k *Keeper) do(ctx context.Context, method, path string, query url.Values, body any, into *Device) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	err := k.o.API.Do(ctx, method, path, query, body, into)
	switch {
	case err == nil:
		k.metrics.writes.Inc()
		if method != http.MethodDelete {
			k.records.Put(into)
		}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		apierrors.IsNotFound(err) && method != http.MethodPost:
		return nil
	}
	return err
}

// write creates a record, or replaces it as it was read.
func (k *Keeper) write(ctx context.Context, w write) error {
	query := url.Values{"fieldManager": {fieldManager}}
	if w.old == nil {
		return k.do(ctx, http.MethodPost, Path, query, created(w), &Device{})
	}
	return k.do(ctx, http.MethodPatch, Path+"/"+w.name, query, changed(w), &Device{})
}

func (k *Keeper) delete(ctx context.Context, x *Device) error {
	body := map[string]any{"preconditions": map[string]any{"uid": x.UID, "resourceVersion": x.ResourceVersion}}
	return k.do(ctx, http.MethodDelete, Path+"/"+x.Name, nil, body, &Device{})
}

// created is the body of a request for a new object.
func created(w write) map[string]any {
	return map[string]any{
		"apiVersion": "acceld.dev/v1alpha1", "kind": "AcceleratorDevice",
		"metadata": map[string]any{
			"name": w.name, "labels": map[string]string{"app.kubernetes.io/managed-by": fieldManager},
		},
		"record": w.Record,
	}
}

// changed is the body of a merge patch. What is empty now is removed.
func changed(w write) map[string]any {
	r := struct {
		Record
		Node    *string  `json:"node"`
		Address *string  `json:"address"`
		Claimed []string `json:"claimed"`
	}{Record: w.Record, Claimed: w.Claimed}
	if w.Record.Node != "" {
		r.Node, r.Address = &w.Record.Node, &w.Record.Address
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": w.old.ResourceVersion}, "record": r}
}

// problem reports why records are not kept, once.
func (k *Keeper) problem(err error) {
	if k.reported.New(err) {
		k.o.Log.Warn("the history of devices is not kept in the cluster", "error", err)
	}
}
