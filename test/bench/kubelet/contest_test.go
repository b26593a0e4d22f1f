package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// callers is how many calls are under way at a time.
const callers = 50

// contestant is one way to get an answer. Do makes the i-th call of a round, the first one 0, and says what is wrong
// with the answer.
type contestant struct {
	name string
	do   func(i int) error
	by   *program // who answers; may be nil
	figures
}

// figures are how long calls took, and how long the processors worked for them in the process that answers.
type figures struct {
	took   []time.Duration
	worked time.Duration
}

func (f *figures) add(o figures) {
	f.took, f.worked = append(f.took, o.took...), f.worked+o.worked
}

// contest calls each contestant in turn, so that a noisy moment hits all alike: rounds of so many calls after one that
// is not counted.
func contest(t *testing.T, rounds, calls, callers int, all []*contestant) {
	t.Helper()
	for round := range rounds + 1 {
		for i := range all {
			c := all[(i+round)%len(all)]
			f := storm(t, c, calls, callers)
			if round > 0 {
				c.add(f)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// storm makes calls, so many at a time.
func storm(t *testing.T, c *contestant, calls, callers int) figures {
	t.Helper()
	f := figures{took: make([]time.Duration, calls), worked: -c.by.processor(t)}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= calls {
					return
				}
				begin := time.Now()
				err := c.do(i)
				f.took[i] = time.Since(begin)
				if err != nil {
					t.Errorf("%s, call %d: %v", c.name, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	f.worked += c.by.processor(t)
	return f
}

func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// table gathers rows: what was measured, ours, the peer's, and ours over theirs.
type table struct{ strings.Builder }

func newTable(ours, theirs string) *table {
	b := &table{}
	fmt.Fprintf(b, "\n%-66s %12s %24s %7s\n", "", ours, theirs, "ratio")
	return b
}

// calls adds what calls took, and what they cost the process that answers. Without a peer theirs is nil.
func (b *table) calls(what string, ours, theirs *figures) {
	b.times(what, ours.took, peerTimes(theirs))
	if ours.worked == 0 {
		return
	}
	var peer float64
	if theirs != nil {
		peer = ms(theirs.worked) / float64(len(theirs.took))
	}
	b.row(what+", processor for one, ms", ms(ours.worked)/float64(len(ours.took)), peer)
}

func peerTimes(theirs *figures) []time.Duration {
	if theirs == nil {
		return nil
	}
	return theirs.took
}

// times adds a median and a 99th percentile.
func (b *table) times(what string, ours, theirs []time.Duration) {
	b.quantiles(what, map[string]float64{"p50": 0.5, "p99": 0.99}, ours, theirs)
}

// events adds a median and the worst of a few.
func (b *table) events(what string, ours, theirs []time.Duration) {
	b.quantiles(what, map[string]float64{"median": 0.5, "worst": 1}, ours, theirs)
}

func (b *table) quantiles(what string, names map[string]float64, ours, theirs []time.Duration) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var peer float64
		if theirs != nil {
			peer = ms(quantile(theirs, names[name]))
		}
		b.row(fmt.Sprintf("%s, %s of %d, ms", what, name, len(ours)), ms(quantile(ours, names[name])), peer)
	}
}

func (b *table) row(what string, ours, theirs float64) {
	if theirs == 0 {
		fmt.Fprintf(b, "%-66s %12.3f %24s %7s\n", what, ours, "-", "-")
		return
	}
	fmt.Fprintf(b, "%-66s %12.3f %24.3f %7.2f\n", what, ours, theirs, ours/theirs)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rounds is how often what is quick is called, in rounds of 2,000 calls; few where only the bench itself is tried.
func rounds() (n, calls int) {
	if testing.Short() {
		return 1, 200
	}
	return 10, 2000
}
