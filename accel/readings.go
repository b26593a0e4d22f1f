package accel

import (
	"fmt"
	"math"
	"strconv"
)

// The metrics that people look at first, by their names in [Accelerator.Metrics].
const (
	MetricUtilization = "accelerator_utilization_ratio" // 0 to 1
	MetricMemoryUsed  = "accelerator_memory_used_bytes"
	MetricMemoryTotal = "accelerator_memory_total_bytes"
	MetricPower       = "accelerator_power_usage_watts"
	MetricPowerLimit  = "accelerator_power_limit_watts"
	MetricTemperature = "accelerator_temperature_celsius"
)

// metricPercent is the utilization at its inherited scale of 0 to 100.
const metricPercent = "accelerator_gpu_utilization"

// Readings are what people ask of a device first. A reading that is not known is not zero.
type Readings struct {
	Utilization             Answer[float64] // share of time in which the device was busy, 0 to 1
	MemoryUsed, MemoryTotal Answer[float64] // bytes
	Power, PowerLimit       Answer[float64] // watts
	Temperature             Answer[float64] // degrees Celsius
}

// Readings returns the last readings of a device. A device that is gone has none.
func (a Accelerator) Readings() Readings {
	if !a.Present() {
		return Readings{}
	}
	of := func(name string) Answer[float64] {
		n, ok := a.Metrics[name]
		if !ok || math.IsNaN(n) || math.IsInf(n, 0) {
			return Answer[float64]{}
		}
		return Known(n)
	}
	r := Readings{
		Utilization: of(MetricUtilization), MemoryUsed: of(MetricMemoryUsed), MemoryTotal: of(MetricMemoryTotal),
		Power: of(MetricPower), PowerLimit: of(MetricPowerLimit), Temperature: of(MetricTemperature),
	}
	if percent := of(metricPercent); !r.Utilization.Known && percent.Known {
		r.Utilization = Known(percent.Value / 100)
	}
	return r
}

// UtilizationText returns the utilization, such as "12 %"; empty if it is not known.
func (r Readings) UtilizationText() string {
	if !r.Utilization.Known {
		return ""
	}
	return fmt.Sprintf("%.0f %%", r.Utilization.Value*100)
}

// TemperatureText returns the temperature, such as "42 °C"; empty if it is not known.
func (r Readings) TemperatureText() string {
	if !r.Temperature.Known {
		return ""
	}
	return fmt.Sprintf("%.0f °C", r.Temperature.Value)
}

// MemoryText returns the memory in use and its size, such as "31/80 GiB"; empty if neither is known.
func (r Readings) MemoryText() string {
	unit, name := float64(1<<30), "GiB"
	if max(r.MemoryUsed.Or(0), r.MemoryTotal.Or(0)) < unit {
		unit, name = 1<<20, "MiB"
	}
	return ofText(r.MemoryUsed, r.MemoryTotal, unit, name)
}

// PowerText returns the power that the device draws and its limit, such as "240/400 W"; empty if neither is known.
func (r Readings) PowerText() string { return ofText(r.Power, r.PowerLimit, 1, "W") }

// ofText returns how much of a total there is, both in a unit: "31/80 GiB". What is not known of the two is a dash, and
// a total that is not known is left out.
func ofText(part, total Answer[float64], unit float64, name string) string {
	text := func(a Answer[float64]) string {
		switch n := a.Value / unit; {
		case !a.Known:
			return "-"
		case n < 10 && n != math.Trunc(n) && unit > 1:
			return strconv.FormatFloat(n, 'f', 1, 64)
		default:
			return strconv.FormatFloat(n, 'f', 0, 64)
		}
	}
	switch {
	case !part.Known && !total.Known:
		return ""
	case !total.Known:
		return text(part) + " " + name
	}
	return text(part) + "/" + text(total) + " " + name
}

// MemoryShare returns the share of the memory that is in use, 0 to 1.
func (r Readings) MemoryShare() Answer[float64] { return share(r.MemoryUsed, r.MemoryTotal) }

// PowerShare returns the power that the device draws as a share of its limit, 0 to 1.
func (r Readings) PowerShare() Answer[float64] { return share(r.Power, r.PowerLimit) }

func share(part, total Answer[float64]) Answer[float64] {
	if !part.Known || !total.Known || total.Value <= 0 {
		return Answer[float64]{}
	}
	return Known(min(max(part.Value/total.Value, 0), 1))
}
