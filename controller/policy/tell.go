package policy

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/acceld/acceld/kube"
)

// report emits an event for each condition of a policy that has changed. A condition that this process has not seen
// before is compared with the policy's status. If it is not there either, it makes no event when it is a good
// Accepted, Defined or Conflict.
func (c *Controller) report(ctx context.Context, p *Policy, now Status) {
	for _, x := range now.Conditions {
		key := p.UID + "/" + x.Type
		was, known := c.news[key]
		for _, y := range p.Status.Conditions {
			if !known && y.Type == x.Type {
				was, known = y, true
			}
		}
		c.news[key] = x
		if known && was.Status == x.Status && was.Reason == x.Reason || !known && (x.Type == ConditionConflict ||
			x.Type == ConditionAccepted || x.Type == ConditionDefined) && x.Reason != "" &&
			(x.Status == "True") == (x.Type != ConditionConflict) {
			continue
		}
		kind := "Normal"
		if x.bad() {
			kind = "Warning"
		}
		about := object{
			"apiVersion": "acceld.dev/v1alpha1", "kind": "AcceleratorPolicy", "name": p.Name, "uid": p.UID,
		}
		c.emit(ctx, about, kind, x.Type, x.Type+x.Reason, x.Message)
	}
}

// bad reports whether the condition stays until somebody acts.
func (x Condition) bad() bool {
	switch x.Type {
	case ConditionConflict:
		return x.Status == "True"
	case ConditionAccepted, ConditionDefined:
		return x.Status == "False"
	case ConditionRepair:
		return x.Status == "False"
	}
	return x.Reason == "Stopped"
}

// emit sends an event. A failure is only logged: events are informational.
func (c *Controller) emit(ctx context.Context, about object, kind, action, reason, note string) {
	body := object{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "type": kind, "action": action, "reason": reason,
		"note":                note,
		"metadata":            object{"generateName": fmt.Sprintf("%s-", about["name"]), "namespace": kube.EventNamespace},
		"eventTime":           time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"), // MicroTime
		"reportingController": kube.Prefix + "controller", "reportingInstance": "acceld-controller",
		"regarding": about,
	}
	path := "/apis/events.k8s.io/v1/namespaces/" + kube.EventNamespace + "/events"
	if err := c.api.Do(ctx, http.MethodPost, path, nil, body, nil); err != nil {
		c.o.Log.Debug("an event was not told", "about", about["name"], "error", err)
	}
}

// metrics are what the controller counts.
type metrics struct {
	nodes, blocked, held, problems     *prometheus.GaugeVec
	slots, writes, conflicts, failures prometheus.Counter
}

// newMetrics registers the metrics, and a gauge that is 1 when the cluster has been read and policies are carried
// out.
func newMetrics(r prometheus.Registerer, ready <-chan struct{}) *metrics {
	register := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return register.NewCounter(prometheus.CounterOpts{Name: "acceld_controller_" + name, Help: help})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register.NewGaugeVec(prometheus.GaugeOpts{Name: "acceld_policy_" + name, Help: help}, labels)
	}
	m := &metrics{
		nodes: gauge("nodes", "Nodes of a policy, by state: matched, ready, upgrading, waiting, failed.", "policy",
			"state"),
		blocked: gauge("blocked_nodes", "Nodes that are not as a policy asks, by reason.", "policy", "reason"),
		held:    gauge("slots", "Slots that are held.", "policy"),
		problems: gauge("problem",
			"1 for a condition of a policy that stays until somebody acts, by its type and reason.", "policy",
			"condition", "reason"),
		slots:     counter("slots_given_total", "Slots given."),
		writes:    counter("node_writes_total", "Writes of nodes that the API server took."),
		conflicts: counter("conflicts_total", "Writes that were refused because something newer was there."),
		failures:  counter("write_failures_total", "Writes that the API server did not take for another reason."),
	}
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "acceld_controller_policies_ready",
		Help: "1 when the leader has read the cluster and carries out policies, 0 while it does not.",
	}, func() float64 {
		select {
		case <-ready:
			return 1
		default:
			return 0
		}
	})
	return m
}

// show sets the gauges to what the statuses say.
func (m *metrics) show(verdicts []*verdict) {
	m.nodes.Reset()
	m.blocked.Reset()
	m.held.Reset()
	m.problems.Reset()
	for _, d := range verdicts {
		name, s := d.policy.Name, d.policy.Status
		for _, x := range []struct {
			state string
			count int
		}{
			{"matched", s.Nodes.Matched},
			{"ready", s.Nodes.Ready},
			{"upgrading", s.Nodes.Upgrading},
			{"waiting", s.Nodes.Waiting},
			{"failed", s.Nodes.Failed},
		} {
			m.nodes.WithLabelValues(name, x.state).Set(float64(x.count))
		}
		for _, b := range s.Blocked {
			m.blocked.WithLabelValues(name, b.Reason).Set(float64(b.Count))
		}
		m.held.WithLabelValues(name).Set(float64(len(s.Slots)))
		for _, x := range s.Conditions {
			if x.bad() {
				m.problems.WithLabelValues(name, x.Type, x.Reason).Set(1)
			}
		}
	}
}
