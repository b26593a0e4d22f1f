package exporter

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/acceld/acceld/accel"
)

// deviceRows are the metrics of every accelerator of any vendor. Identity is written once, in accelerator_info.
// Every other series has at most one label of its own, except for those that name containers.
func deviceRows() []row {
	return slices.Concat([]row{
		{
			name: "accelerator_info", help: "An accelerator, or a partition of one, which has a profile; the value is 1.",
			labels: []string{"kind", "pci_address", "model", "serial", "driver", "driver_version", "numa_node", "profile"},
			device: func(d *device, emit emit) {
				emit(1, d.kind, d.Address(), d.model(), d.Serial, d.Bound, d.driver, numa(d.NUMANode), d.Profile)
			},
		},
		{
			name: "accelerator_up", help: "1 when the accelerator is present and can be used: healthy or degraded.",
			device: func(d *device, emit emit) {
				emit(truth(d.Health.Usable()))
			},
		},
		{
			name: "accelerator_withheld", help: "1 for an accelerator that is offered to nobody although it is well, by reason.", labels: []string{"reason"},
			device: func(d *device, emit emit) {
				if d.Withheld != nil {
					emit(1, string(d.Withheld.Reason))
				}
			},
		},
		{
			name: "accelerator_allocation_info", help: "Which container holds an accelerator; the value is 1. Absent for one that nobody holds.",
			labels: []string{"namespace", "pod", "pod_uid", "container", "resource", "claim"},
			device: func(d *device, emit emit) {
				for _, h := range d.holders {
					emit(1, h.Namespace, h.Pod, h.UID, h.Container, h.Resource, h.Claim)
				}
			},
		},
	}, healthRows(), handoverRows(), repairRows(), settingRows(), usageRows(), useRows(), switchRows(), linkRows(),
		functionRows())
}

// handoverRows are the metrics about the tenants of devices that are cleaned between them.
func handoverRows() []row {
	of := func(name, help string, counter bool, value func(accel.HandoverHave) float64) row {
		return row{name: name, help: help, counter: counter, device: func(d *device, emit emit) {
			if d.Handover != nil {
				emit(value(*d.Handover))
			}
		}}
	}
	return []row{
		{
			name: "accelerator_handover_state", help: "Where an accelerator is between its tenants: 1 for the state it is in, 0 for the others.", labels: []string{"state"},
			device: func(d *device, emit emit) {
				for _, s := range accel.HandoverStates() {
					if d.Handover != nil {
						emit(truth(d.Handover.State == s), string(s))
					}
				}
			},
		},
		of("accelerator_handovers_total", "How often an accelerator was cleaned for its next tenant, since the boot.", true,
			func(h accel.HandoverHave) float64 { return float64(h.Cleaned) }),
		of("accelerator_handover_seconds_total", "How long all of that took.", true,
			func(h accel.HandoverHave) float64 { return h.Seconds }),
		of("accelerator_leftover_processes_killed_total", "Processes of former tenants that had the accelerator open and were killed, since the boot.", true,
			func(h accel.HandoverHave) float64 { return float64(h.Killed) }),
	}
}

// repairRows are the metrics about what acceld does by itself about devices that need a reset.
func repairRows() []row {
	return []row{
		{
			name: "accelerator_repair_state", help: "What is done about an accelerator that needs a reset: 1 for the state it is in, 0 for the others.", labels: []string{"state"},
			device: func(d *device, emit emit) {
				for _, s := range accel.RepairStates() {
					if d.Repair != nil {
						emit(truth(d.Repair.State == s), string(s))
					}
				}
			},
		},
		{
			name: "accelerator_repair_attempts", help: "How often an accelerator that needs a reset was reset within the window of its kind.",
			device: func(d *device, emit emit) {
				if d.Repair != nil {
					emit(float64(d.Repair.Attempts))
				}
			},
		},
	}
}

// usageRows are the metrics about use without a request.
func usageRows() []row {
	return []row{{
		name: "accelerator_unrequested_users", help: "Pods, containers and services of the host that use an accelerator although nobody gave it to them. Absent while that is not known.",
		device: func(d *device, emit emit) {
			if d.Unrequested != nil && d.Unrequested.Unknown == "" {
				emit(float64(d.Unrequested.Count))
			}
		},
	}}
}

// switchRows are the metrics about the use that devices are given out for.
func switchRows() []row {
	return []row{{
		name: "accelerator_other_use", help: "1 for an accelerator that is given out with another driver than its kind's, by use (vfio), 0 while it is on the way there or back. Absent for all others.",
		labels: []string{"use"},
		device: func(d *device, emit emit) {
			if s := d.Switched; s != nil {
				emit(truth(s.Ready(d.Accelerator)), string(s.Use))
			}
		},
	}}
}

// healthRows are the metrics about the health of a device, the reason, and the required action.
func healthRows() []row {
	return []row{
		{
			name: "accelerator_health_state", help: "The health of an accelerator: 1 for the state it is in, 0 for the others.", labels: []string{"state"},
			device: func(d *device, emit emit) {
				for _, s := range accel.HealthStates() {
					emit(truth(d.Health.State == s), string(s))
				}
			},
		},
		{
			name: "accelerator_health_reason", help: "1 for an accelerator that is not healthy, by reason.", labels: []string{"reason"},
			device: func(d *device, emit emit) {
				if d.Health.State != accel.Healthy && d.Health.Reason != "" {
					emit(1, string(d.Health.Reason))
				}
			},
		},
		{
			name: "accelerator_required_action", help: "1 for what makes an accelerator well again, 0 for the other actions.", labels: []string{"action"},
			device: func(d *device, emit emit) {
				for _, a := range accel.Actions() {
					emit(truth(d.Health.Action == a), string(a))
				}
			},
		},
		{
			name: "accelerator_driver_errors_total", help: "Errors of the accelerator that the kernel log reported, by the driver's code.", counter: true, labels: []string{"code"},
			device: func(d *device, emit emit) {
				for _, f := range d.Faults {
					emit(float64(f.Count), f.Code)
				}
			},
		},
		{
			name: "accelerator_driver_error_last_timestamp_seconds", help: "When the kernel log reported such an error last, since the epoch.", labels: []string{"code"},
			device: func(d *device, emit emit) {
				for _, f := range d.Faults {
					stamp(emit, f.Last, f.Code)
				}
			},
		},
		{
			name: "accelerator_recorded_faults_total", help: "Faults of the accelerator on record, over restarts, reboots and slots.", counter: true,
			device: func(d *device, emit emit) {
				if d.Profile == "" {
					emit(float64(d.Recorded))
				}
			},
		},
		{
			name: "accelerator_health_since_timestamp_seconds", help: "When the accelerator's health last changed, since the epoch.",
			device: func(d *device, emit emit) {
				stamp(emit, d.Health.Since)
			},
		},
	}
}

// linkRows are the metrics about the PCI Express link of devices that have one.
func linkRows() []row {
	link := func(name, help string, value func(accel.Link) float64) row {
		return row{name: name, help: help, device: func(d *device, emit emit) {
			if n := value(d.pci.Link); n > 0 && d.Present() && d.Profile == "" {
				emit(n)
			}
		}}
	}
	const giga = 1e9 // sysfs reports GT/s
	return []row{
		link("accelerator_pcie_link_current_transfers_per_second", "Speed of the PCI Express link now.", func(l accel.Link) float64 { return l.SpeedGTs * giga }),
		link("accelerator_pcie_link_max_transfers_per_second", "Speed that the PCI Express link could have.", func(l accel.Link) float64 { return l.MaxSpeedGTs * giga }),
		link("accelerator_pcie_link_current_width", "Lanes of the PCI Express link now.", func(l accel.Link) float64 { return float64(l.Width) }),
		link("accelerator_pcie_link_max_width", "Lanes that the PCI Express link could have.", func(l accel.Link) float64 { return float64(l.MaxWidth) }),
	}
}

// The share of time in which a device was busy, and the same at an inherited scale of 0 to 100, which is derived
// from the first if it is not read itself.
const (
	utilization          = "accelerator_utilization_ratio"
	inheritedUtilization = "accelerator_gpu_utilization"
)

// reading is a metric that a definition may read from a device.
type reading struct {
	name, help string
	counter    bool
}

// readings is the table of allowed names for a definition's metrics; any other name is refused before it is read.
// The names accelerator_gpu_utilization, _memory_*_bytes, _power_usage_watts, _temperature_celsius and
// _*_clock_hertz are those of OpenShift's recording rules (gpu-operator assets/state-dcgm-exporter,
// 1000_prometheus_rule_openshift.yaml, read 2026-05), with true units, so that dashboards written for them work.
func readings() []reading {
	return []reading{
		{"accelerator_temperature_celsius", "Temperature of the device.", false},
		{"accelerator_temperature_critical_celsius", "Temperature above which the device is in danger, as it says itself.", false},
		{"accelerator_hotspot_temperature_celsius", "Temperature of the hottest place of the device.", false},
		{"accelerator_memory_temperature_celsius", "Temperature of the device's memory.", false},
		{"accelerator_memory_temperature_critical_celsius", "Temperature above which the device's memory is in danger, as the device says itself.", false},
		{utilization, "Share of time in which the device was busy, 0 to 1.", false},
		{inheritedUtilization, "Share of time in which the device was busy, 0 to 100: the inherited name, kept at its inherited scale.", false},
		{"accelerator_memory_utilization_ratio", "Share of time in which the device's memory was busy, 0 to 1.", false},
		{"accelerator_encoder_utilization_ratio", "Share of time in which the video encoders were busy, 0 to 1.", false},
		{"accelerator_decoder_utilization_ratio", "Share of time in which the video decoders were busy, 0 to 1.", false},
		{"accelerator_tensor_activity_ratio", "Share of time in which the tensor cores worked, 0 to 1.", false},
		{"accelerator_memory_used_bytes", "Device memory in use.", false},
		{"accelerator_memory_total_bytes", "Device memory.", false},
		{"accelerator_power_usage_watts", "Power that the device draws.", false},
		{"accelerator_power_limit_watts", "Power that the device may draw.", false},
		{"accelerator_energy_joules_total", "Energy that the device has used.", true},
		{"accelerator_voltage_volts", "Supply voltage of the device.", false},
		{"accelerator_fan_speed_ratio", "Speed of the fan as a share of its maximum, 0 to 1.", false},
		{"accelerator_fan_rpm", "Revolutions of the fan in a minute.", false},
		{"accelerator_sm_clock_hertz", "Clock of the compute units.", false},
		{"accelerator_memory_clock_hertz", "Clock of the device's memory.", false},
		{"accelerator_idle_seconds_total", "Time in which the device was in its idle state; what is missing from the time that went by is the time in which it was busy.", true},
		{"accelerator_throttled", "1 while the device runs slower than it could because of heat, power or current.", false},
		{"accelerator_throttle_seconds_total", "Time in which the device ran slower than it could.", true},
		{"accelerator_operations_total", "Operations that the device has completed.", true},
		{"accelerator_interrupts_total", "Interrupts that the device has raised.", true},
		{"accelerator_dma_bytes_total", "Bytes that the device has moved to or from host memory.", true},
		{"accelerator_open_files", "Open files of the device's nodes.", false},
		{"accelerator_errors_total", "Errors that the device has reported.", true},
		{"accelerator_timeouts_total", "Operations that the device did not end within their time.", true},
		{"accelerator_resets_total", "Resets of the device.", true},
		{"accelerator_ecc_corrected_errors_total", "Memory errors that were corrected.", true},
		{"accelerator_ecc_uncorrected_errors_total", "Memory errors that could not be corrected.", true},
		{"accelerator_ecc_deferred_errors_total", "Memory errors that could not be corrected and that nobody has come upon yet.", true},
		{"accelerator_retired_pages", "Memory pages that are not used any more because they had errors.", false},
		{"accelerator_remapped_rows", "Memory rows that were replaced by spare ones.", false},
		{"accelerator_row_remap_pending", "1 when a memory row is replaced at the next reset.", false},
		{"accelerator_row_remap_failed", "1 when a memory row could not be replaced.", false},
		{"accelerator_pcie_replays_total", "Packets that the PCI Express link sent again.", true},
		{"accelerator_pcie_correctable_errors_total", "Correctable errors that PCI Express advanced error reporting counted.", true},
		{"accelerator_pcie_nonfatal_errors_total", "Non-fatal errors that PCI Express advanced error reporting counted.", true},
		{"accelerator_pcie_fatal_errors_total", "Fatal errors that PCI Express advanced error reporting counted.", true},
		{"accelerator_link_transmitted_bytes_total", "Bytes that the device has sent over links of its own to others of its kind.", true},
		{"accelerator_link_received_bytes_total", "Bytes that the device has received over such links.", true},
		{"accelerator_link_replays_total", "Packets that such links sent again.", true},
		{"accelerator_link_recoveries_total", "Recoveries of such links after errors.", true},
		{"accelerator_link_crc_errors_total", "Checksum errors on such links.", true},
		{"accelerator_pci_power_state", "Power state of the function on the bus: 0 for D0, in which it works, to 3 for D3hot and 4 for D3cold.", false},
	}
}

// MetricNames returns the names that a definition's metrics may have, in the order of docs/metrics.md.
func MetricNames() []string {
	var names []string
	for _, r := range readings() {
		names = append(names, r.name)
	}
	return names
}

// readingRows are the metrics that definitions read. A gone device has none: its last reading is out of date.
func readingRows() []row {
	var rows []row
	for _, r := range readings() {
		rows = append(rows, row{
			name: r.name, help: r.help, counter: r.counter,
			device: func(d *device, emit emit) {
				if n, ok := measured(d, r.name); ok && d.Present() {
					emit(n)
				}
			},
		})
	}
	return rows
}

// model returns the best known name of a device: its own, the PCI id database's, or its kind's.
func (d *device) model() string {
	title := ""
	if d.def != nil {
		title = d.def.Title
	}
	return cmp.Or(d.Model, d.pci.DeviceName, title)
}

// numa is empty if the platform reports no node.
func numa(node int) string {
	if node < 0 {
		return ""
	}
	return strconv.Itoa(node)
}
