package leader

import "github.com/prometheus/client_golang/prometheus"

// Metric returns a gauge that says whether this replica is the leader.
func Metric(held func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "acceld_controller_leader",
		Help: "1 for the leader, 0 for the others.",
	}, func() float64 {
		if held() {
			return 1
		}
		return 0
	})
}
