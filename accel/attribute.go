package accel

import (
	"slices"
	"strings"
)

// HealthSource is an attribute that says whether a device is healthy.
type HealthSource struct {
	// File is relative to the PCI function's sysfs directory, or begins with "/sys/" or "/proc/driver/" and has
	// {{.Address}} for the function's address. It may be a pattern; the first match is read, hwmon2 before hwmon10.
	// After a "#" stands the word that begins the line which is meant, such as "aer_dev_fatal#TOTAL_ERR_FATAL"; a ":"
	// after that word is not part of the value. Of several files with "|" between them the first that is there and says
	// something is meant, such as "hwmon/hwmon*/power1_average|hwmon/hwmon*/power1_input".
	File string `json:"file" template:"device"`
	// Match is a regular expression (RE2): what its group "value" matches is compared, or all that it matches without
	// the group. Without it, or where nothing matches, the content is compared as it is.
	Match string `json:"match,omitempty"`
	// Healthy is the content, trimmed, that means healthy.
	Healthy string `json:"healthy"`
	// Verdicts are what other contents mean, for as long as they are there.
	Verdicts map[string]Verdict `json:"verdicts,omitempty"`
	// Otherwise is what any other content means: unhealthy without it, with the content as the message.
	Otherwise Verdict `json:"otherwise,omitzero"`
	// Optional attributes are not on every device of the kind; one that is not there says nothing.
	Optional bool `json:"optional,omitempty"`
}

// Combine says what is made of several numbers.
type Combine string

// The ways.
const (
	CombineFirst Combine = "first" // the default
	CombineSum   Combine = "sum"
	CombineMax   Combine = "max"
	CombineMin   Combine = "min"
	CombineCount Combine = "count" // how many there are; 0 where the file has none
)

// Combines returns all ways.
func Combines() []Combine {
	return []Combine{CombineFirst, CombineSum, CombineMax, CombineMin, CombineCount}
}

// MetricSource is a number in an attribute.
type MetricSource struct {
	// Name is a row of exporter's metric table, such as "accelerator_temperature_celsius".
	Name string `json:"name"`
	// File is as HealthSource.File, such as "hwmon/hwmon*/temp1_input".
	File string `json:"file" template:"device"`
	// Match is a regular expression (RE2), which is looked for in each line: what its group "value" matches is the
	// number, or all that it matches without the group. Such as '(?P<value>[0-9]+)Mhz \*' in a list that marks what is
	// so now. Without it the content is the number.
	Match string `json:"match,omitempty"`
	// Values are the numbers of words, for attributes that say a word, such as "D0": 0.
	Values map[string]float64 `json:"values,omitempty"`
	// Combine says what is made of several numbers, where Match matches in several lines or File several files.
	Combine Combine `json:"combine,omitempty"`
	// Scale converts the attribute's unit to the unit in Name by multiplication; 0 means 1.
	Scale float64 `json:"scale,omitempty"`
	// Fixed numbers do not change, such as the size of the memory: a device that sleeps keeps what it had.
	Fixed bool `json:"fixed,omitempty"`
	// Optional attributes are not on every device of the kind, or do not always answer: without an answer there is no
	// such metric.
	Optional bool `json:"optional,omitempty"`
}

// Limit is a bound of a metric.
type Limit struct {
	// Metric is one of the definition's metrics, by name, or one that its Probe reads.
	Metric string `json:"metric"`
	// Above is the highest value that is well, in the unit of the metric's name.
	Above float64 `json:"above,omitempty"`
	// AboveMetric is a metric that holds the highest value that is well, in the place of Above, such as
	// "accelerator_temperature_critical_celsius". While it is not known, or 0, there is no limit.
	AboveMetric string `json:"aboveMetric,omitempty"`
	// Until is the value down to which a metric must fall to be well again; the highest that is well when it is 0.
	Until float64 `json:"until,omitempty"`
	// For is how long the metric must have been above before it counts, such as "30s"; at once when empty.
	For string `json:"for,omitempty"`
	// State is "degraded", which is the default, or "unhealthy".
	State HealthState `json:"state,omitempty"`
	// Action is what to do, as in Verdict.
	Action Action `json:"action,omitempty"`
}

// DefaultMetrics are those that every device has for which the kernel has the files, whatever its definition says: what
// its driver registers with hwmon (Documentation/hwmon/sysfs-interface: milli-units, power and energy in micro-units),
// and what the bus counts (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats, sysfs-bus-pci). Those of hwmon
// are the first sensors, which drivers keep for the device as a whole.
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
			// 0 means that there is none.
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

// DefaultLimits are those that every device has: a temperature that the device itself calls critical is no good one.
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

// AllMetrics are the definition's Metrics, and those of the [DefaultMetrics] that it does not describe itself.
func (def *Definition) AllMetrics() []MetricSource {
	all := slices.Clone(def.Metrics)
	for _, d := range DefaultMetrics() {
		if !slices.ContainsFunc(def.Metrics, func(m MetricSource) bool { return m.Name == d.Name }) {
			all = append(all, d)
		}
	}
	return all
}

// AllLimits are the definition's Limits, and those of the [DefaultLimits] on metrics on which it has none of its own.
func (def *Definition) AllLimits() []Limit {
	all := slices.Clone(def.Limits)
	for _, d := range DefaultLimits() {
		if !slices.ContainsFunc(def.Limits, func(l Limit) bool { return l.Metric == d.Metric }) {
			all = append(all, d)
		}
	}
	return all
}

// OfBus reports whether the kernel keeps the attribute for every function of the bus, without asking the device: it can
// be read while the device sleeps, and does not wake it.
func (m MetricSource) OfBus() bool {
	return strings.HasPrefix(m.File, "aer_dev_") || m.File == "power_state"
}

// Alternatives are the files of a HealthSource.File.
func Alternatives(file string) []string { return strings.Split(file, "|") }
