package exporter

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestTraces: a trace has a point every 30 seconds, gaps where nothing was known, at most one hour, and goes with its
// device; there is a bound on how many there are.
func TestTraces(t *testing.T) {
	all, now := traces{}, noon()
	machine := func(metrics map[string]float64) accel.Machine {
		return accel.Machine{Taken: now, Have: map[string]accel.Have{"npu": {Accelerators: []accel.Accelerator{
			{ID: "a", Health: accel.Health{State: accel.Healthy}, Metrics: metrics},
		}}}}
	}
	last := func(n int) string {
		e := Exporter{traces: all}
		points := e.copied()["a"].points
		return fmt.Sprint(points[len(points)-n:])
	}
	all.see(machine(nil))
	if len(all) != 0 {
		t.Error("a device without a reading has a trace")
	}
	all.see(machine(map[string]float64{accel.MetricTemperature: 40}))
	now = now.Add(10 * time.Second)
	all.see(machine(map[string]float64{accel.MetricTemperature: 41}))
	if got := last(2); got != "[NaN 40]" {
		t.Errorf("two readings within 30 seconds: %s", got)
	}
	now = now.Add(time.Minute + 21*time.Second)
	all.see(machine(map[string]float64{accel.MetricTemperature: 50}))
	now = now.Add(31 * time.Second)
	all.see(machine(nil))
	if got := last(5); got != "[NaN 40 NaN NaN 50]" && got != "[40 NaN NaN 50 NaN]" && got != "[NaN 40 NaN 50 NaN]" {
		t.Errorf("with gaps: %s", got)
	}
	now = now.Add(time.Minute)
	all.see(machine(map[string]float64{accel.MetricTemperature: 50, accel.MetricUtilization: 0.5}))
	if all["a"].name != accel.MetricUtilization || last(2) != "[NaN 0.5]" {
		t.Errorf("a better reading: %s %s", all["a"].name, last(2))
	}
	for range 300 {
		now = now.Add(traceEvery)
		all.see(machine(map[string]float64{accel.MetricUtilization: 1}))
	}
	for _, p := range (&Exporter{traces: all}).copied()["a"].points {
		if math.IsNaN(p) || p != 1 {
			t.Fatalf("after hours a point is %v", p)
		}
	}
	now = now.Add(1000 * time.Hour)
	all.see(machine(map[string]float64{accel.MetricUtilization: 0}))
	if got := last(2); got != "[NaN 0]" {
		t.Errorf("after a long gap: %s", got)
	}
	m := machine(nil)
	have := accel.Have{}
	for i := range 2 * maxTraces {
		have.Accelerators = append(have.Accelerators, accel.Accelerator{
			ID: fmt.Sprint(i), Health: accel.Health{State: accel.Healthy},
			Metrics: map[string]float64{accel.MetricPower: 1},
		})
	}
	m.Have["npu"] = have
	all.see(m)
	if len(all) > maxTraces || all["a"] != nil {
		t.Errorf("%d traces, that of a device that left: %v", len(all), all["a"] != nil)
	}
}
