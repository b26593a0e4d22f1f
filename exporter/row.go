package exporter

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/prometheus/client_golang/prometheus"
)

// row is one metric.
type row struct {
	name, help string
	counter    bool
	labels     []string
	// collect calls emit once per series: with the value, then one value per label.
	collect func(v view, emit emit)
}

type emit func(value float64, labels ...string)

// typ returns the metric's type in words.
func (r row) typ() string {
	if r.counter {
		return "counter"
	}
	return "gauge"
}

// view is what one page is rendered from.
type view struct {
	accel.Machine
	tally    tally
	holders  map[string][]Holder // by device
	lastSeen time.Time           // when the kubelet last reported them
	events   []Event             // oldest first
	devices  []device
}

// device is an accelerator together with what the rest of the snapshot says about it.
type device struct {
	accel.Accelerator
	kind, vendor string
	pci          accel.PCIDevice
}

// devices returns every accelerator and every partition once, sorted by kind and ID. A function that two definitions
// recognise counts only for the first kind: two series with the same labels would make the whole page fail.
func devices(m accel.Machine) []device {
	pci := make(map[string]accel.PCIDevice, len(m.Facts.PCI))
	for _, d := range m.Facts.PCI {
		pci[d.Address] = d
	}
	seen := map[string]bool{}
	var all []device
	for _, kind := range slices.Sorted(maps.Keys(m.Have)) {
		vendor, _, _ := strings.Cut(kind, "-")
		for _, a := range accel.Flat(m.Have[kind].Accelerators) {
			if !seen[a.ID] {
				seen[a.ID] = true
				all = append(all, device{a, kind, vendor, pci[a.Address()]})
			}
		}
	}
	return all
}

// kinds returns the kinds, sorted.
func (v view) kinds() []string { return slices.Sorted(maps.Keys(v.Status)) }

// collector turns a table into a prometheus.Collector.
type collector struct {
	rows  []row
	descs []*prometheus.Desc
	view  func() view
}

// descs returns the descriptions of rows.
func descs(rows []row) []*prometheus.Desc {
	all := make([]*prometheus.Desc, len(rows))
	for i, r := range rows {
		all[i] = prometheus.NewDesc(r.name, r.help, r.labels, nil)
	}
	return all
}

// rows returns the whole table.
func rows() []row { return slices.Concat(agentRows(), deviceRows(), readingRows()) }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	v := c.view()
	for i, r := range c.rows {
		typ := prometheus.GaugeValue
		if r.counter {
			typ = prometheus.CounterValue
		}
		r.collect(v, func(value float64, labels ...string) {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				return // an unknown value is an absent series
			}
			for j, l := range labels {
				labels[j] = strings.ToValidUTF8(l, "\uFFFD") // a serial number may be any bytes
			}
			ch <- prometheus.MustNewConstMetric(c.descs[i], typ, value, labels...)
		})
	}
}

// truth is 1 for true and 0 for false.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
