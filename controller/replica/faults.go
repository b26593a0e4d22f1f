package replica

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Faults are the parts of the controller that have failed and are run again, and why. As a collector it shows which.
// It is safe for concurrent use.
type Faults struct {
	log *slog.Logger

	mu  sync.Mutex
	now map[string]string
}

// note takes over why a part has failed; nil if it works. It logs the difference.
func (f *Faults) note(part string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failed := f.now[part]
	switch {
	case err != nil && (!failed || before != err.Error()):
		f.log.Error("a part of the controller has failed and is run again", "part", part, "error", err)
	case err == nil && failed:
		f.log.Info("a part of the controller does not fail any more", "part", part)
	}
	if f.now == nil {
		f.now = map[string]string{}
	}
	if delete(f.now, part); err != nil {
		f.now[part] = err.Error()
	}
}

func (f *Faults) desc() *prometheus.Desc {
	return prometheus.NewDesc("acceld_controller_part_problem",
		"1 for each part of the controller that has failed and is run again; its log says why.", []string{"part"}, nil)
}

// Describe implements prometheus.Collector.
func (f *Faults) Describe(out chan<- *prometheus.Desc) { out <- f.desc() }

// Collect implements prometheus.Collector.
func (f *Faults) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for part := range f.now {
		out <- prometheus.MustNewConstMetric(f.desc(), prometheus.GaugeValue, 1, part)
	}
}
