package main

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// tensors finds out how busy the tensor cores of a device are: NVML's GPU performance monitoring, which Hopper and
// newer models have (nvml.h of 580). NVML compares two samples, so the first reading has no value.
type tensors struct {
	last nvml.GpmSample
	none bool // the device does not tell
}

// read takes a sample and returns the share of time since the last one in which the tensor cores worked, 0 to 1.
func (t *tensors) read(c *calls, d nvml.Device) (share float64, known bool) {
	lacks := func(symbol string) bool { return !c.has(symbol) }
	if t.none || slices.ContainsFunc([]string{
		"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
	}, lacks) {
		return 0, false
	}
	if t.last == nil {
		support, ret := d.GpmQueryDeviceSupport()
		if !c.ok(ret) || support.IsSupportedDevice == 0 {
			t.none = ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_SUPPORTED
			return 0, false
		}
	}
	sample, ret := c.lib.GpmSampleAlloc()
	if !c.ok(ret) {
		return 0, false
	}
	if !c.ok(sample.Get(d)) {
		_ = sample.Free() // it is only memory
		return 0, false
	}
	before := t.last
	if t.last = sample; before == nil {
		return 0, false
	}
	q := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: before, Sample2: sample}
	q.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL)
	ret = c.lib.GpmMetricsGet(&q)
	_ = before.Free() // it is only memory
	m := q.Metrics[0]
	if !c.ok(ret) || nvml.Return(m.NvmlReturn) != nvml.SUCCESS || !(m.Value >= 0 && m.Value <= 100) {
		return 0, false
	}
	return m.Value * cent, true
}
