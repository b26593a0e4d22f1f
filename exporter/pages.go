package exporter

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// pageRows returns the rows of a further page.
func pageRows(p accel.MetricPage) []row {
	labels := make([]string, len(p.Labels))
	for i, l := range p.Labels {
		labels[i] = l.Name
	}
	rows := make([]row, 0, len(p.Rows))
	for _, r := range p.Rows {
		rows = append(rows, row{
			name: r.Name, help: r.Help, counter: r.Counter, labels: labels,
			collect: func(v view, emit emit) {
				if r.Node != "" {
					if n, ok := nodeNumber(v, r.Node); ok {
						emit(n, pageLabels(v, p, &device{}, Holder{})...)
					}
					return
				}
				collectPage(v, p, r, emit)
			},
		})
	}
	return rows
}

// collectPage emits a row about accelerators: one series per accelerator and holder, and one for an accelerator
// without a holder. If the page has no labels about pods, there is one series per accelerator.
func collectPage(v view, p accel.MetricPage, r accel.PageRow, emit emit) {
	for _, d := range v.devices {
		value, ok := pageValue(d, r)
		if !ok {
			continue
		}
		holders := d.holders
		if len(holders) == 0 {
			holders = []Holder{{}}
		}
		said := map[string]bool{}
		for _, h := range holders {
			labels := pageLabels(v, p, d, h)
			if key := strings.Join(labels, "\n"); !said[key] {
				said[key] = true
				emit(value, labels...)
			}
		}
	}
}

// pageValue returns the value of a row for one accelerator. A gone one has none: its last reading is out of date.
func pageValue(d *device, r accel.PageRow) (n float64, known bool) {
	switch {
	case !d.Present():
		return 0, false
	case r.LastCode:
		return lastCode(d)
	}
	n, known = measured(d, r.Reading)
	if r.Less != "" {
		less, also := measured(d, r.Less)
		n, known = n-less, known && also
	}
	return n * cmp.Or(r.Scale, 1), known
}

// measured returns a reading of a device. The utilization at its inherited scale is known whenever the ratio is.
func measured(d *device, name string) (float64, bool) {
	n, ok := d.Metrics[name]
	if !ok && name == inheritedUtilization {
		n, ok = d.Metrics[utilization]
		n *= 100
	}
	return n, ok
}

// lastCode returns the code of the last error, if it is a number.
func lastCode(d *device) (float64, bool) {
	var last accel.Fault
	for _, f := range d.Faults {
		if f.Last.After(last.Last) {
			last = f
		}
	}
	if last.Code == "" {
		return 0, true
	}
	n, err := strconv.ParseFloat(last.Code, 64)
	return n, err == nil
}

// pageLabels returns the values of a page's labels.
func pageLabels(v view, p accel.MetricPage, d *device, h Holder) []string {
	values := make([]string, len(p.Labels))
	for i, l := range p.Labels {
		values[i] = pageFact(v, l.Fact, d, h)
	}
	return values
}

func pageFact(v view, fact accel.PageFact, d *device, h Holder) string {
	if fact == accel.PageNode {
		return v.Agent.Node
	}
	if d.ID == "" {
		return ""
	}
	switch fact {
	case accel.PageIndex:
		return strconv.Itoa(d.index)
	case accel.PageUUID:
		return cmp.Or(d.UUID, d.Serial, d.ID)
	case accel.PageAddress:
		return "0000" + d.Address()
	case accel.PageDeviceNode:
		if len(d.Nodes) > 0 {
			return path.Base(d.Nodes[0].Path)
		}
	case accel.PageModel:
		return d.model()
	case accel.PageDriverVersion:
		return d.driver
	case accel.PageProfile:
		return d.Profile
	case accel.PagePartition:
		if d.Parent != "" {
			return strconv.Itoa(d.part)
		}
	case accel.PageNamespace:
		return h.Namespace
	case accel.PagePod:
		return h.Pod
	case accel.PagePodUID:
		return h.UID
	case accel.PageContainer:
		return h.Container
	}
	return ""
}

// nodeNumber returns a number about the whole node, and whether it is known.
func nodeNumber(v view, fact accel.NodeFact) (float64, bool) {
	kinds := present(v)
	all := func(yes func(k string) bool) float64 {
		return truth(len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k string) bool { return !yes(k) }))
	}
	published := func(p accel.Published) float64 {
		return all(func(k string) bool { return v.Status[k].Published[p].Reached() })
	}
	sum := func(count func(k string) int) float64 {
		n := 0
		for _, k := range kinds {
			n += max(0, count(k))
		}
		return float64(n)
	}
	switch fact {
	case accel.NodeDriverReady:
		return published(accel.DriverContainer), true
	case accel.NodeRuntimeReady:
		return published(accel.RuntimeEnablement), true
	case accel.NodePluginReady:
		return published(accel.DevicePlugin), true
	case accel.NodeProven:
		return all(func(k string) bool { return !v.Have[k].Driver.Proven.IsZero() }), true
	case accel.NodeProvenTime:
		return latest(kinds, func(k string) time.Time { return v.Have[k].Driver.Proven })
	case accel.NodeCollectedTime:
		return latest(kinds, func(k string) time.Time { return v.Have[k].Monitoring.Collected })
	case accel.NodeOfferedTime:
		return seconds(v.Taken), published(accel.DevicePlugin) == 1
	case accel.NodeAllocatable:
		return sum(func(k string) int { return v.Have[k].Plugin.Allocatable.Or(0) }), true
	case accel.NodeAccelerators:
		return sum(func(k string) int { return accel.CountPresent(v.Have[k].Accelerators) }), true
	}
	return 0, false
}

// present returns the kinds with an accelerator on the bus.
func present(v view) []string {
	var kinds []string
	for _, k := range v.kinds() {
		if accel.CountPresent(v.Have[k].Accelerators) > 0 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// latest returns the latest of the kinds' times, if all have one.
func latest(kinds []string, at func(k string) time.Time) (float64, bool) {
	var last time.Time
	for _, k := range kinds {
		t := at(k)
		if t.IsZero() {
			return 0, false
		}
		if t.After(last) {
			last = t
		}
	}
	return seconds(last), !last.IsZero()
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
