package devices

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Overview is what is known of the devices of a cluster, for people.
type Overview struct {
	// Total is how many devices have a record, and Faulty how many of them have had a fault.
	Total, Faulty int
	// LeftOut is how many devices have no record, because there are too many, and Unreadable how many reports of nodes
	// cannot be read.
	LeftOut, Unreadable int
	// Devices are those to look at: those that several nodes claim, and then those with the most faults.
	Devices []Record
}

// Overview returns what is known now, with at most limit devices; false until the records have been read.
func (k *Keeper) Overview(limit int) (Overview, bool) {
	records, synced := k.records.All()
	if !synced {
		return Overview{}, false
	}
	k.mu.Lock()
	o := Overview{Total: len(records), LeftOut: k.seen.leftOut, Unreadable: k.seen.unreadable}
	k.mu.Unlock()
	var worth []*Record
	for _, x := range records {
		if x.Record.Total.Faults > 0 {
			o.Faulty++
		}
		if x.Record.Total.Faults > 0 || len(x.Record.Claimed) > 0 {
			worth = append(worth, &x.Record)
		}
	}
	slices.SortFunc(worth, func(a, b *Record) int {
		return cmp.Or(order(len(b.Claimed) > 0)-order(len(a.Claimed) > 0), cmp.Compare(b.Total.Faults, a.Total.Faults),
			strings.Compare(a.Kind, b.Kind), strings.Compare(a.Serial, b.Serial))
	})
	for _, r := range worth[:min(len(worth), limit)] {
		o.Devices = append(o.Devices, r.clone())
	}
	return o, true
}

func order(first bool) int {
	if first {
		return 1
	}
	return 0
}

// metrics are the metrics of a keeper.
type metrics struct {
	records, claimed, leftOut, unreadable prometheus.Gauge
	writes                                prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	register := promauto.With(r)
	gauge := func(name, help string) prometheus.Gauge {
		return register.NewGauge(prometheus.GaugeOpts{Name: "acceld_controller_device_" + name, Help: help})
	}
	return &metrics{
		records: gauge("records", "Devices whose history is kept in the cluster."),
		claimed: gauge("records_claimed", "Devices that several nodes have said they have, for ten minutes or longer."),
		leftOut: gauge("records_left_out", "Devices that nodes report and that have no record, because there are too many."),
		unreadable: gauge("reports_unreadable",
			"Reports of nodes about their devices that cannot be read; what they said before is kept."),
		writes: register.NewCounter(prometheus.CounterOpts{
			Name: "acceld_controller_device_record_writes_total", Help: "Writes of records that the API server took.",
		}),
	}
}

// show sets the gauges.
func (m *metrics) show(records int, p plan, unreadable int) {
	m.records.Set(float64(records))
	m.claimed.Set(float64(len(p.claimed)))
	m.leftOut.Set(float64(p.leftOut))
	m.unreadable.Set(float64(unreadable))
}
