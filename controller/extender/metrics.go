package extender

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/acceld/acceld/controller/fit"
)

// Metrics are those of an extender; register it with a registry of Prometheus. Cards one by one are shown up to CardNodes
// nodes: five thousand nodes with eight cards each would be hundreds of thousands of series.
type Metrics struct {
	extender *Extender
	seconds  *prometheus.HistogramVec
	// CardNodes is up to how many nodes each card has its own series.
	CardNodes int
}

// defaultCardNodes make some ten thousand series.
const defaultCardNodes = 200

func newMetrics(e *Extender) *Metrics {
	return &Metrics{extender: e, CardNodes: defaultCardNodes, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "acceld_extender_request_seconds", Help: "How long the scheduler's requests took.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
	}, []string{"verb", "result"})}
}

// Metrics returns the extender's metrics.
func (e *Extender) Metrics() *Metrics { return e.metrics }

// rows are the gauges that are read when somebody asks.
func (m *Metrics) row(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("acceld_extender_"+name, help, labels, nil)
}

// Describe says nothing: nodes and cards come and go.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the books.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.seconds.Collect(ch)
	ready := 0.0
	if m.extender.Ready() {
		ready = 1
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.row("ready", "1 while this replica keeps the books and they are complete."), ready)
	t := m.extender.term.Load()
	if t == nil {
		return
	}
	if told := t.books.told.Load(); told > 0 {
		gauge(m.row("books_age_seconds", "How long ago the API server was last heard of."), time.Since(time.Unix(0, told)).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(m.row("corrections_total", "What was found to be otherwise than the books of this term said: 0 while all is well."),
		prometheus.CounterValue, float64(t.books.corrections.Load()))
	gauge(m.row("disputed_pods", "How many pods have other cards in their annotations than they were bound with: somebody has changed them."), float64(t.books.disputed()))
	m.cards(t.books, gauge)
}

// sums is what all cards have of one resource, and the most that one of them has free.
type sums struct{ used, capacity, largest int64 }

func (m *Metrics) cards(b *Books, gauge func(*prometheus.Desc, float64, ...string)) {
	names := b.names()
	total, nodes := map[string]sums{}, 0
	used := m.row("card_used", "How much of a resource of a card pods have.", "node", "card", "resource")
	capacity := m.row("card_capacity", "How much of a resource a card has.", "node", "card", "resource")
	for i, entry := range b.find(names) {
		var uses []fit.Use
		if !entry.look(func(n *fit.Node) { uses = n.Uses() }) {
			continue
		}
		nodes++
		for _, u := range uses {
			s := total[u.Resource]
			total[u.Resource] = sums{s.used + u.Used, s.capacity + u.Capacity, max(s.largest, u.Capacity-u.Used)}
			if len(names) <= m.CardNodes {
				gauge(used, float64(u.Used), names[i], u.Card, u.Resource)
				gauge(capacity, float64(u.Capacity), names[i], u.Card, u.Resource)
			}
		}
	}
	gauge(m.row("nodes", "How many nodes are known."), float64(nodes))
	for resource, s := range total {
		gauge(m.row("used", "How much of a resource pods have of all cards.", "resource"), float64(s.used), resource)
		gauge(m.row("capacity", "How much of a resource all cards have.", "resource"), float64(s.capacity), resource)
		gauge(m.row("largest_free", "The most that one card has free: no larger request fits anywhere.", "resource"), float64(s.largest), resource)
	}
}
