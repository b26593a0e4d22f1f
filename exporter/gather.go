package exporter

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gatherer gathers a table of rows. It renders the table again only if its sources have changed, since most scrapes
// show what the previous one showed. It is safe for concurrent use. The caller must not change what it returns.
type gatherer struct {
	e     *Exporter
	table *prometheus.Registry
	// live, if set, is gathered each time.
	live *prometheus.Registry

	mu       sync.Mutex
	made     edition
	families []*dto.MetricFamily
	err      error
}

// edition identifies the state of the sources of a page.
type edition struct {
	taken, started time.Time
	holdings       uint64
	tally          uint64
}

// newGatherer returns a gatherer of rows.
func newGatherer(e *Exporter, rows []row, live *prometheus.Registry) *gatherer {
	g := &gatherer{e: e, table: prometheus.NewPedanticRegistry(), live: live}
	g.table.MustRegister(newCollector(rows, e.view))
	return g
}

// Gather implements prometheus.Gatherer.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	all, err := g.rendered()
	if g.live == nil {
		return all, err
	}
	live, liveErr := g.live.Gather()
	all = slices.Concat(all, live) // the two have no name in common
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, errors.Join(err, liveErr)
}

// rendered returns the table, rendered again if needed.
func (g *gatherer) rendered() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.e.edition()
	if now != g.made || now.taken.IsZero() {
		g.families, g.err = g.table.Gather()
		g.made = now
	}
	return g.families, g.err
}

// edition returns the current state of the sources. A change after that and before the rendering causes one more
// rendering at the next scrape.
func (e *Exporter) edition() edition {
	m := e.o.Machine()
	held := e.o.Holders()
	e.mu.Lock()
	defer e.mu.Unlock()
	return edition{m.Taken, m.Agent.Started, held.Revision, e.tally.revision}
}
