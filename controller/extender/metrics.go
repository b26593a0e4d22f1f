package extender

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/acceld/acceld/controller/fit"
)

// Metrics are the metrics of an extender; register it with a registry of Prometheus. Single cards are shown for up to
// CardNodes nodes: five thousand nodes with eight cards each would be hundreds of thousands of series.
type Metrics struct {
	extender *Extender
	seconds  *prometheus.HistogramVec
	rows     rows
	// CardNodes is the number of nodes up to which each card has its own series.
	CardNodes int
}

// defaultCardNodes gives some ten thousand series.
const defaultCardNodes = 200

func newMetrics(e *Extender) *Metrics {
	return &Metrics{
		extender: e, rows: newRows(), CardNodes: defaultCardNodes,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "acceld_extender_request_seconds", Help: "How long the scheduler's requests took.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}, []string{"verb", "result"}),
	}
}

// Metrics returns the extender's metrics.
func (e *Extender) Metrics() *Metrics { return e.metrics }

// rows are the metrics that are computed at each scrape.
type rows struct {
	ready, age, corrections, disputed, nodes, broken, used, capacity, largest, cardUsed, cardCapacity *prometheus.Desc
}

func newRows() rows {
	row := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("acceld_extender_"+name, help, labels, nil)
	}
	return rows{
		ready: row("ready", "1 while this replica leads and its cache is complete."),
		age:   row("cache_age_seconds", "How long ago the API server last answered."),
		corrections: row("corrections_total",
			"Pods that the cache of this term had and the API server did not: 0 while all is well."),
		disputed: row("disputed_pods",
			"How many pods have other cards in their annotations than they were bound with: somebody has changed them."),
		nodes: row("nodes", "How many nodes are known."),
		broken: row("broken_nodes",
			"How many nodes take no pod because what they say of their cards cannot be read."),
		used:     row("used", "How much of a resource pods have of all cards.", "resource"),
		capacity: row("capacity", "How much of a resource all cards have.", "resource"),
		largest: row("largest_free", "The most that one card has free: no larger request fits anywhere.",
			"resource"),
		cardUsed:     row("card_used", "How much of a resource of a card pods have.", "node", "card", "resource"),
		cardCapacity: row("card_capacity", "How much of a resource a card has.", "node", "card", "resource"),
	}
}

// Describe sends every metric that there may be.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.seconds.Describe(ch)
	r := m.rows
	for _, d := range []*prometheus.Desc{
		r.ready, r.age, r.corrections, r.disputed, r.nodes, r.broken, r.used, r.capacity,
		r.largest, r.cardUsed, r.cardCapacity,
	} {
		ch <- d
	}
}

// Collect reads the cache.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.seconds.Collect(ch)
	ready := 0.0
	if m.extender.Ready() {
		ready = 1
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.rows.ready, ready)
	t := m.extender.term.Load()
	if t == nil {
		return
	}
	if lastContact := t.cache.lastContact.Load(); lastContact > 0 {
		gauge(m.rows.age, time.Since(time.Unix(0, lastContact)).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(m.rows.corrections, prometheus.CounterValue,
		float64(t.cache.corrections.Load()))
	gauge(m.rows.disputed, float64(t.cache.disputed()))
	m.cards(t.cache, gauge)
}

// sums is what all cards together have of one resource, and the most that one of them has free.
type sums struct{ used, capacity, largest int64 }

func (m *Metrics) cards(b *Cache, gauge func(*prometheus.Desc, float64, ...string)) {
	names := b.names()
	total, nodes, broken := map[string]sums{}, 0, 0
	var uses []fit.Use
	for _, name := range names {
		var problem string
		if !b.look(name, func(n *fit.Node) { uses, problem = n.Uses(uses[:0]), n.Problem() }) {
			continue
		}
		if nodes++; problem != "" {
			broken++
		}
		for _, u := range uses {
			s := total[u.Resource]
			total[u.Resource] = sums{s.used + u.Used, s.capacity + u.Capacity, max(s.largest, u.Capacity-u.Used)}
			if len(names) <= m.CardNodes {
				gauge(m.rows.cardUsed, float64(u.Used), name, u.Card, u.Resource)
				gauge(m.rows.cardCapacity, float64(u.Capacity), name, u.Card, u.Resource)
			}
		}
	}
	gauge(m.rows.nodes, float64(nodes))
	gauge(m.rows.broken, float64(broken))
	for resource, s := range total {
		gauge(m.rows.used, float64(s.used), resource)
		gauge(m.rows.capacity, float64(s.capacity), resource)
		gauge(m.rows.largest, float64(s.largest), resource)
	}
}
