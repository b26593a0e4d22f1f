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
	// Exactly one of these is set: collect is called once, kind for each kind and device for each accelerator. Each
	// call of emit makes a series, with the value and then one value per label. The labels that identify the kind or
	// the accelerator are not among them.
	collect func(v view, emit emit)
	kind    func(v view, k string, emit emit)
	device  func(d *device, emit emit)
}

type emit func(value float64, labels ...string)

// typ returns the metric's type in words.
func (r row) typ() string {
	if r.counter {
		return "counter"
	}
	return "gauge"
}

// allLabels returns the labels of the row's series, those that identify the kind or the accelerator first.
func (r row) allLabels() []string {
	switch {
	case r.kind != nil:
		return append([]string{"kind"}, r.labels...)
	case r.device != nil:
		return append([]string{"accelerator_id", "vendor"}, r.labels...)
	}
	return r.labels
}

// each collects the row's series, with the values of all labels.
func (r row) each(v view, emit emit) {
	switch {
	case r.kind != nil:
		for _, k := range v.kinds() {
			r.kind(v, k, func(value float64, labels ...string) { emit(value, append([]string{k}, labels...)...) })
		}
	case r.device != nil:
		for _, d := range v.devices {
			r.device(d, func(value float64, labels ...string) {
				emit(value, append([]string{d.ID, d.vendor}, labels...)...)
			})
		}
	default:
		r.collect(v, emit)
	}
}

// view is what one page is rendered from.
type view struct {
	accel.Machine
	tally    tally
	lastSeen time.Time // when the kubelet last reported them
	events   []Event   // oldest first
	traces   map[string]traced
	devices  []*device
}

// device is an accelerator together with what the rest of the snapshot says about it.
type device struct {
	accel.Accelerator
	kind, vendor string
	pci          accel.PCIDevice
	def          *accel.Definition // nil if the kind is not configured
	driver       string            // its version
	holders      []Holder
	// index counts the devices of the host from 0; a partition has the index of its device. part counts the partitions
	// of one device.
	index, part int
}

// devices returns every accelerator and every partition once, sorted by kind and ID. A function that two definitions
// recognise counts only for the first kind: two series with the same labels would make the whole page fail.
func devices(m accel.Machine, holders map[string][]Holder) []*device {
	seen, parts, index := map[string]bool{}, map[string]int{}, -1
	var all []*device
	for _, kind := range slices.Sorted(maps.Keys(m.Have)) {
		vendor, _, _ := strings.Cut(kind, "-")
		for _, a := range accel.Flat(m.Have[kind].Accelerators) {
			if seen[a.ID] {
				continue
			}
			seen[a.ID] = true
			if a.Parent == "" {
				index++
			}
			all = append(all, &device{
				a, kind, vendor, m.Facts.Function(a.Address()), m.Want.Kinds[kind], m.Have[kind].Driver.Version,
				holders[a.ID], index, parts[a.Parent],
			})
			parts[a.Parent]++
		}
	}
	return all
}

// kinds returns the kinds, sorted.
func (v view) kinds() []string { return slices.Sorted(maps.Keys(v.Status)) }

// collector turns a table into a prometheus.Collector.
type collector struct {
	rows  []row
	descs []*prometheus.Desc // of the rows
	view  func() view
}

func newCollector(rows []row, view func() view) *collector {
	c := &collector{rows: rows, view: view}
	for _, r := range rows {
		c.descs = append(c.descs, prometheus.NewDesc(r.name, r.help, r.allLabels(), nil))
	}
	return c
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
		r.each(v, func(value float64, labels ...string) {
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
