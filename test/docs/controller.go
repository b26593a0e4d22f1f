package docs

import (
	"log/slog"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/controller/leader"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/controller/replica"
	"github.com/acceld/acceld/exporter"
)

// ControllerMetrics returns the controller's own metrics as its collectors describe them, in the order of
// docs/metrics.md. A histogram is the type of its name without "_count" and the like.
func ControllerMetrics() []exporter.Metric {
	log := slog.New(slog.DiscardHandler)
	all := &collected{}
	all.MustRegister(leader.Metric(func() bool { return false }), &replica.Faults{})
	if _, err := policy.New(policy.Options{Log: log, Registry: all}); err != nil {
		return []exporter.Metric{{Name: err.Error()}} // the page then differs, and says why
	}
	devices.New(devices.Options{Log: log, Registry: all})
	all.MustRegister(extender.New(&fit.Rules{}, extender.API{}, "", log).Metrics())
	var metrics []exporter.Metric
	for _, c := range all.collectors {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			metrics = append(metrics, described(d))
		}
	}
	return metrics
}

// collected is a registry that keeps what is registered.
type collected struct{ collectors []prometheus.Collector }

// Register keeps c.
func (r *collected) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}

// MustRegister keeps all.
func (r *collected) MustRegister(all ...prometheus.Collector) {
	r.collectors = append(r.collectors, all...)
}

// Unregister is not asked for.
func (r *collected) Unregister(prometheus.Collector) bool { return false }

// described takes apart the words that a description has for people: the library tells them in no other way.
func described(d *prometheus.Desc) exporter.Metric {
	found := regexp.MustCompile(
		`^Desc\{fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`).FindStringSubmatch(d.String())
	if found == nil {
		return exporter.Metric{Name: d.String()}
	}
	m := exporter.Metric{Name: found[1], Help: found[2], Type: "gauge"}
	if found[3] != "" {
		m.Labels = strings.Split(found[3], ",")
	}
	switch {
	case strings.HasSuffix(m.Name, "_total"):
		m.Type = "counter"
	case m.Name == "acceld_extender_request_seconds":
		m.Type = "histogram"
	}
	return m
}

func controllerTable() string {
	return "## The controller\n\nEach replica serves these on `/metrics` of its port 9482; those of policies and of cards are of the leader alone.\n\n" +
		markdown(ControllerMetrics())
}
