package main

import (
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// reading gets one or several metrics from one call, in the units of their names.
type reading struct {
	symbol string // of NVML
	read   func(c *calls, d nvml.Device, put func(name string, v float64))
}

// one returns a reading of a call with one number.
func one[T uint32 | uint64 | int](symbol, name string, scale float64, get func(nvml.Device) (T, nvml.Return)) reading {
	return reading{symbol, func(c *calls, d nvml.Device, put func(string, float64)) {
		if v, ret := get(d); c.ok(ret) {
			put(name, float64(v)*scale)
		}
	}}
}

// codec returns a reading of the engines for video, which NVML tells in per cent with the period that it looked at.
func codec(symbol, name string, get func(nvml.Device) (uint32, uint32, nvml.Return)) reading {
	return one(symbol, name, cent, func(d nvml.Device) (uint32, nvml.Return) {
		share, _, ret := get(d)
		return share, ret
	})
}

// Units of NVML (nvml.h of 580): milliwatts, millijoules, MHz, per cent, nanoseconds.
const (
	milli = 1e-3
	mega  = 1e6
	nano  = 1e-9
	cent  = 0.01
)

// table returns all readings.
func table() []reading {
	return []reading{
		one("nvmlDeviceGetTemperature", "accelerator_temperature_celsius", 1,
			func(d nvml.Device) (uint32, nvml.Return) {
				return d.GetTemperature(nvml.TEMPERATURE_GPU)
			}),
		one("nvmlDeviceGetPowerUsage", "accelerator_power_usage_watts", milli, nvml.Device.GetPowerUsage),
		one("nvmlDeviceGetEnforcedPowerLimit", "accelerator_power_limit_watts", milli,
			nvml.Device.GetEnforcedPowerLimit),
		one("nvmlDeviceGetTotalEnergyConsumption", "accelerator_energy_joules_total", milli,
			nvml.Device.GetTotalEnergyConsumption),
		one("nvmlDeviceGetFanSpeed", "accelerator_fan_speed_ratio", cent, nvml.Device.GetFanSpeed),
		one("nvmlDeviceGetPcieReplayCounter", "accelerator_pcie_replays_total", 1, nvml.Device.GetPcieReplayCounter),
		one("nvmlDeviceGetClockInfo", "accelerator_sm_clock_hertz", mega, func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetClockInfo(nvml.CLOCK_SM)
		}),
		one("nvmlDeviceGetClockInfo", "accelerator_memory_clock_hertz", mega,
			func(d nvml.Device) (uint32, nvml.Return) {
				return d.GetClockInfo(nvml.CLOCK_MEM)
			}),
		one("nvmlDeviceGetTotalEccErrors", "accelerator_ecc_corrected_errors_total", 1,
			func(d nvml.Device) (uint64, nvml.Return) {
				return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
			}),
		one("nvmlDeviceGetTotalEccErrors", "accelerator_ecc_uncorrected_errors_total", 1,
			func(d nvml.Device) (uint64, nvml.Return) {
				return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
			}),
		{"nvmlDeviceGetUtilizationRates", utilisation},
		codec("nvmlDeviceGetEncoderUtilization", "accelerator_encoder_utilization_ratio", nvml.Device.GetEncoderUtilization),
		codec("nvmlDeviceGetDecoderUtilization", "accelerator_decoder_utilization_ratio", nvml.Device.GetDecoderUtilization),
		{"nvmlDeviceGetMemoryInfo", memory},
		{"nvmlDeviceGetRemappedRows", rows},
		{"nvmlDeviceGetViolationStatus", throttling},
		{"nvmlDeviceGetFieldValues", fields},
	}
}

// readings reads all metrics that the device has.
func readings(c *calls, d nvml.Device) map[string]float64 {
	out := map[string]float64{}
	for _, r := range table() {
		if c.has(r.symbol) {
			r.read(c, d, func(name string, v float64) { out[name] = v })
		}
	}
	return out
}

func utilisation(c *calls, d nvml.Device, put func(string, float64)) {
	if u, ret := d.GetUtilizationRates(); c.ok(ret) {
		put("accelerator_utilization_ratio", float64(u.Gpu)*cent)
		put("accelerator_gpu_utilization", float64(u.Gpu))
		put("accelerator_memory_utilization_ratio", float64(u.Memory)*cent)
	}
}

// memory excludes the driver's own reservation, as nvidia-smi does, if NVML can tell.
func memory(c *calls, d nvml.Device, put func(string, float64)) {
	if c.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := d.GetMemoryInfo_v2(); c.ok(ret) {
			put("accelerator_memory_total_bytes", float64(m.Total))
			put("accelerator_memory_used_bytes", float64(m.Used))
			return
		}
	}
	if m, ret := d.GetMemoryInfo(); c.ok(ret) {
		put("accelerator_memory_total_bytes", float64(m.Total))
		put("accelerator_memory_used_bytes", float64(m.Used))
	}
}

func rows(c *calls, d nvml.Device, put func(string, float64)) {
	corrected, uncorrected, pending, failed, ret := d.GetRemappedRows()
	if !c.ok(ret) {
		return
	}
	put("accelerator_remapped_rows", float64(corrected+uncorrected))
	put("accelerator_row_remap_pending", truth(pending))
	put("accelerator_row_remap_failed", truth(failed))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// throttling reports how long heat or power limited the clocks: the longer of the two times, because they overlap.
func throttling(c *calls, d nvml.Device, put func(string, float64)) {
	longest, known := uint64(0), false
	for _, policy := range []nvml.PerfPolicyType{nvml.PERF_POLICY_THERMAL, nvml.PERF_POLICY_POWER} {
		if v, ret := d.GetViolationStatus(policy); c.ok(ret) {
			longest, known = max(longest, v.ViolationTime), true
		}
	}
	if known {
		put("accelerator_throttle_seconds_total", float64(longest)*nano)
	}
}

// all is the scope of a field for the total of all links.
const all = math.MaxUint32

// fields reads the metrics that NVML identifies by number.
func fields(c *calls, d nvml.Device, put func(string, float64)) {
	rows := []struct {
		id, scope uint32
		name      string
		scale     float64
	}{
		{nvml.FI_DEV_MEMORY_TEMP, 0, "accelerator_memory_temperature_celsius", 1},
		{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, all, "accelerator_link_transmitted_bytes_total", 1 << 10},
		{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, all, "accelerator_link_received_bytes_total", 1 << 10},
		{nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0, "accelerator_link_replays_total", 1},
		{nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, 0, "accelerator_link_recoveries_total", 1},
		{nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0, "accelerator_link_crc_errors_total", 1},
	}
	values := make([]nvml.FieldValue, len(rows))
	for i, r := range rows {
		values[i] = nvml.FieldValue{FieldId: r.id, ScopeId: r.scope}
	}
	if !c.ok(d.GetFieldValues(values)) {
		return
	}
	for i, r := range rows {
		if v, ok := number(values[i]); ok {
			put(r.name, v*r.scale)
		}
	}
}

// field reads one field; false if the device does not have it.
func field(c *calls, d nvml.Device, id uint32) (float64, bool) {
	if !c.has("nvmlDeviceGetFieldValues") {
		return 0, false
	}
	values := []nvml.FieldValue{{FieldId: id}}
	if !c.ok(d.GetFieldValues(values)) {
		return 0, false
	}
	return number(values[0])
}

// number returns the value of a field by its type; false if it has none.
func number(v nvml.FieldValue) (float64, bool) {
	if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	raw := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(raw), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(binary.NativeEndian.Uint32(v.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(raw), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(raw)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(v.Value[:]))), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(v.Value[:])), true
	}
	return 0, false
}
