package accel

import (
	"slices"
	"strings"
)

// HealthSource is an attribute that says whether a device is healthy.
type HealthSource struct {
	// File is relative to the PCI function's sysfs directory, or begins with "/sys/" or "/proc/driver/" and contains
	// {{.Address}} for the function's address. It may be a glob pattern: the first match in natural order is read,
	// hwmon2 before hwmon10. A "#" and a word after the path select the line that begins with that word, such as
	// "aer_dev_fatal#TOTAL_ERR_FATAL"; a ":" after the word is not part of the value. A "|" separates alternatives;
	// the first one that exists and has a value is used, such as
	// "hwmon/hwmon*/power1_average|hwmon/hwmon*/power1_input".
	File string `json:"file" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Match is a regular expression (RE2). Its group "value" is compared, or the whole match if it has no such group.
	// Without Match, or if it does not match, the whole content is compared.
	Match string `json:"match,omitempty"`
	// Healthy is the trimmed content that means healthy.
	Healthy string `json:"healthy"`
	// Verdicts maps other contents to what they mean. A verdict lasts as long as the attribute has that content.
	Verdicts map[string]Verdict `json:"verdicts,omitempty"`
	// Otherwise is what any other content means. If it is empty, the device is unhealthy and the content is the
	// message.
	Otherwise Verdict `json:"otherwise,omitzero"`
	// Optional attributes do not exist on every device of the kind; a missing one is ignored.
	Optional bool `json:"optional,omitempty"`
}

// Combine says how several numbers become one.
type Combine string

// The ways to combine numbers.
const (
	CombineFirst Combine = "first" // the default
	CombineSum   Combine = "sum"
	CombineMax   Combine = "max"
	CombineMin   Combine = "min"
	CombineCount Combine = "count" // how many numbers there are; 0 if the file has none
)

// Combines returns all ways to combine numbers.
func Combines() []Combine {
	return []Combine{CombineFirst, CombineSum, CombineMax, CombineMin, CombineCount}
}

// MetricSource is a number in an attribute.
type MetricSource struct {
	// Name is a row of the exporter's metric table, such as "accelerator_temperature_celsius".
	Name string `json:"name"`
	// File is like HealthSource.File, such as "hwmon/hwmon*/temp1_input".
	File string `json:"file" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Match is a regular expression (RE2) that is applied to each line. Its group "value" is the number, or the whole
	// match if it has no such group; '(?P<value>[0-9]+)Mhz \*' finds the current entry in a list that marks it with
	// an asterisk. Without Match the content is the number.
	Match string `json:"match,omitempty"`
	// Values maps words to numbers, for attributes that hold a word, such as "D0": 0.
	Values map[string]float64 `json:"values,omitempty"`
	// Combine says how several numbers become one, if Match matches several lines or File matches several files.
	Combine Combine `json:"combine,omitempty"`
	// Scale is multiplied with the attribute's value to convert it to the unit in Name; 0 means 1.
	Scale float64 `json:"scale,omitempty"`
	// Fixed numbers do not change, such as the size of the memory. While a device sleeps, the last value is kept.
	Fixed bool `json:"fixed,omitempty"`
	// Optional attributes do not exist on every device of the kind, or cannot always be read. If one cannot be read,
	// the metric is absent.
	Optional bool `json:"optional,omitempty"`
}

// Limit is a bound of a metric.
type Limit struct {
	// Metric is one of the definition's metrics, by name, or one that its Probe reads.
	Metric string `json:"metric"`
	// Above is the highest acceptable value, in the unit of the metric's name.
	Above float64 `json:"above,omitempty"`
	// AboveMetric is a metric that holds the highest acceptable value, used instead of Above, such as
	// "accelerator_temperature_critical_celsius". While that metric is unknown or 0, there is no limit.
	AboveMetric string `json:"aboveMetric,omitempty"`
	// Until is the value to which the metric must fall before the limit clears; 0 means the limit itself.
	Until float64 `json:"until,omitempty"`
	// For is how long the metric must stay above the limit before it counts, such as "30s"; empty means at once.
	For string `json:"for,omitempty" form:"duration"`
	// State is "degraded", which is the default, or "unhealthy".
	State HealthState `json:"state,omitempty"`
	// Action is what to do about it, as in Verdict.
	Action Action `json:"action,omitempty"`
}

// DefaultMetrics returns the metrics that every device has if the kernel has the files, whatever its definition says:
// what its driver registers with hwmon (Documentation/hwmon/sysfs-interface: milli-units, power and energy in
// micro-units), and what the bus counts (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats, sysfs-bus-pci).
// The hwmon metrics use the first sensors, which drivers reserve for the device as a whole.
func DefaultMetrics() []MetricSource {
	const milli, micro = 1e-3, 1e-6
	return []MetricSource{
		{Name: "accelerator_temperature_celsius", File: "hwmon/hwmon*/temp1_input", Scale: milli, Optional: true},
		{
			Name: "accelerator_temperature_critical_celsius", File: "hwmon/hwmon*/temp1_crit", Scale: milli,
			Fixed:    true,
			Optional: true,
		},
		{
			Name: "accelerator_power_usage_watts", File: "hwmon/hwmon*/power1_average|hwmon/hwmon*/power1_input",
			Scale: micro, Optional: true,
		},
		{
			// 0 means no limit.
			Name: "accelerator_power_limit_watts", File: "hwmon/hwmon*/power1_cap|hwmon/hwmon*/power1_max",
			Match: "^[1-9][0-9]*$", Scale: micro, Optional: true,
		},
		{Name: "accelerator_energy_joules_total", File: "hwmon/hwmon*/energy1_input", Scale: micro, Optional: true},
		{Name: "accelerator_voltage_volts", File: "hwmon/hwmon*/in0_input", Scale: milli, Optional: true},
		{Name: "accelerator_fan_rpm", File: "hwmon/hwmon*/fan1_input", Optional: true},
		{Name: "accelerator_pcie_correctable_errors_total", File: "aer_dev_correctable#TOTAL_ERR_COR", Optional: true},
		{Name: "accelerator_pcie_nonfatal_errors_total", File: "aer_dev_nonfatal#TOTAL_ERR_NONFATAL", Optional: true},
		{Name: "accelerator_pcie_fatal_errors_total", File: "aer_dev_fatal#TOTAL_ERR_FATAL", Optional: true},
		{
			Name: "accelerator_pci_power_state", File: "power_state", Optional: true,
			Values: map[string]float64{"D0": 0, "D1": 1, "D2": 2, "D3hot": 3, "D3cold": 4},
		},
	}
}

// DefaultLimits returns the limits that every device has: no temperature may exceed what the device itself calls
// critical.
func DefaultLimits() []Limit {
	return []Limit{
		{
			Metric: "accelerator_temperature_celsius", AboveMetric: "accelerator_temperature_critical_celsius",
			For: "30s",
		},
		{
			Metric:      "accelerator_memory_temperature_celsius",
			AboveMetric: "accelerator_memory_temperature_critical_celsius", For: "30s",
		},
	}
}

// AllMetrics returns the definition's Metrics and those [DefaultMetrics] that it does not define itself.
func (def *Definition) AllMetrics() []MetricSource {
	all := slices.Clone(def.Metrics)
	for _, d := range DefaultMetrics() {
		if !slices.ContainsFunc(def.Metrics, func(m MetricSource) bool { return m.Name == d.Name }) {
			all = append(all, d)
		}
	}
	return all
}

// AllLimits returns the definition's Limits and those [DefaultLimits] whose metric it does not limit itself.
func (def *Definition) AllLimits() []Limit {
	all := slices.Clone(def.Limits)
	for _, d := range DefaultLimits() {
		if !slices.ContainsFunc(def.Limits, func(l Limit) bool { return l.Metric == d.Metric }) {
			all = append(all, d)
		}
	}
	return all
}

// OfBus reports whether the PCI bus code of the kernel keeps the attribute, without asking the device: reading it
// while the device sleeps does not wake the device.
func (m MetricSource) OfBus() bool {
	return strings.HasPrefix(m.File, "aer_dev_") || m.File == "power_state"
}

// Alternatives splits a HealthSource.File into its alternative files.
func Alternatives(file string) []string { return strings.Split(file, "|") }
