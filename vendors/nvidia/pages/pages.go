// Package pages holds, as data, the metric names that dashboards and alerts for NVIDIA's own exporters query:
// NVIDIA's names, units and labels with acceld's numbers. It may import nothing of acceld but the vocabulary.
package pages

import "github.com/acceld/acceld/accel"

const (
	mega    = 1e-6
	milli   = 1e3
	percent = 1e2
	mebi    = 1.0 / (1 << 20)
)

// Exporter returns the page of dcgm-exporter. Names, units and labels follow its etc/default-counters.csv and its
// internal/pkg/rendermetrics, read 2026-05, with both spellings of the host's label, which changed at that time. A
// metric that dcgm-exporter calls a counter although it is not one is a gauge here. If no definition has a row's
// reading, the exporter leaves the row out instead of showing 0.
func Exporter() accel.MetricPage {
	return accel.MetricPage{
		Name: "dcgm", Title: "dcgm-exporter",
		Labels: []accel.PageLabel{
			{Name: "gpu", Fact: accel.PageIndex},
			{Name: "UUID", Fact: accel.PageUUID},
			{Name: "pci_bus_id", Fact: accel.PageAddress},
			{Name: "device", Fact: accel.PageDeviceNode},
			{Name: "modelName", Fact: accel.PageModel},
			{Name: "GPU_I_PROFILE", Fact: accel.PageProfile},
			{Name: "GPU_I_ID", Fact: accel.PagePartition},
			{Name: "Hostname", Fact: accel.PageNode},
			{Name: "hostname", Fact: accel.PageNode},
			{Name: "DCGM_FI_DRIVER_VERSION", Fact: accel.PageDriverVersion},
			{Name: "container", Fact: accel.PageContainer},
			{Name: "namespace", Fact: accel.PageNamespace},
			{Name: "pod", Fact: accel.PagePod},
			{Name: "pod_uid", Fact: accel.PagePodUID},
		},
		Rows: []accel.PageRow{
			{Name: "DCGM_FI_DEV_SM_CLOCK", Help: "SM clock frequency, MHz.", Reading: "accelerator_sm_clock_hertz", Scale: mega},
			{Name: "DCGM_FI_DEV_MEM_CLOCK", Help: "Memory clock frequency, MHz.", Reading: "accelerator_memory_clock_hertz", Scale: mega},
			{Name: "DCGM_FI_DEV_GPU_TEMP", Help: "Temperature of the GPU, C.", Reading: "accelerator_temperature_celsius"},
			{Name: "DCGM_FI_DEV_MEMORY_TEMP", Help: "Temperature of the memory, C.", Reading: "accelerator_memory_temperature_celsius"},
			{Name: "DCGM_FI_DEV_POWER_USAGE", Help: "Power draw, W.", Reading: "accelerator_power_usage_watts"},
			{Name: "DCGM_FI_DEV_POWER_MGMT_LIMIT", Help: "Power limit, W.", Reading: "accelerator_power_limit_watts"},
			{Name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Help: "Energy used, mJ.", Counter: true, Reading: "accelerator_energy_joules_total", Scale: milli},
			{Name: "DCGM_FI_DEV_GPU_UTIL", Help: "GPU utilization, percent.", Reading: "accelerator_gpu_utilization"},
			{Name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", Help: "Share of time in which the engine was busy, 0 to 1.", Reading: "accelerator_utilization_ratio"},
			{Name: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Help: "Share of time in which the tensor cores were busy, 0 to 1.", Reading: "accelerator_tensor_activity_ratio"},
			{Name: "DCGM_FI_DEV_MEM_COPY_UTIL", Help: "Memory utilization, percent.", Reading: "accelerator_memory_utilization_ratio", Scale: percent},
			{Name: "DCGM_FI_DEV_ENC_UTIL", Help: "Encoder utilization, percent.", Reading: "accelerator_encoder_utilization_ratio", Scale: percent},
			{Name: "DCGM_FI_DEV_DEC_UTIL", Help: "Decoder utilization, percent.", Reading: "accelerator_decoder_utilization_ratio", Scale: percent},
			{Name: "DCGM_FI_DEV_FB_USED", Help: "Framebuffer memory used, MiB.", Reading: "accelerator_memory_used_bytes", Scale: mebi},
			{Name: "DCGM_FI_DEV_FB_FREE", Help: "Framebuffer memory free, MiB.", Reading: "accelerator_memory_total_bytes", Less: "accelerator_memory_used_bytes", Scale: mebi},
			{Name: "DCGM_FI_DEV_FB_TOTAL", Help: "Framebuffer memory, MiB.", Reading: "accelerator_memory_total_bytes", Scale: mebi},
			{Name: "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", Help: "PCIe retries.", Counter: true, Reading: "accelerator_pcie_replays_total"},
			{Name: "DCGM_FI_DEV_XID_ERRORS", Help: "The last XID error, 0 for none.", LastCode: true},
			{Name: "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", Help: "Single-bit memory errors.", Counter: true, Reading: "accelerator_ecc_corrected_errors_total"},
			{Name: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Help: "Double-bit memory errors.", Counter: true, Reading: "accelerator_ecc_uncorrected_errors_total"},
			{Name: "DCGM_FI_DEV_ROW_REMAP_FAILURE", Help: "Whether remapping of rows has failed.", Reading: "accelerator_row_remap_failed"},
			{Name: "DCGM_FI_DEV_ROW_REMAP_PENDING", Help: "Whether remapping of rows waits for a reset.", Reading: "accelerator_row_remap_pending"},
		},
	}
}

// Operator returns the page of the GPU Operator's node-status-exporter: its validator/metrics.go, read 2026-05.
func Operator() accel.MetricPage {
	return accel.MetricPage{
		Name: "gpu-operator", Title: "the GPU Operator's node-status-exporter",
		Labels: []accel.PageLabel{{Name: "node", Fact: accel.PageNode}},
		Rows: []accel.PageRow{
			{Name: "gpu_operator_node_driver_ready", Help: "1 when the driver is ready.", Node: accel.NodeDriverReady},
			{Name: "gpu_operator_node_toolkit_ready", Help: "1 when containers get the devices.", Node: accel.NodeRuntimeReady},
			{Name: "gpu_operator_node_plugin_ready", Help: "1 when the kubelet offers the devices.", Node: accel.NodePluginReady},
			{Name: "gpu_operator_node_cuda_ready", Help: "1 when the devices have computed.", Node: accel.NodeProven},
			{Name: "gpu_operator_node_driver_validation", Help: "1 when the driver was validated.", Node: accel.NodeProven},
			{Name: "gpu_operator_node_driver_validation_last_success_ts_seconds", Help: "When the driver was last validated.", Node: accel.NodeProvenTime},
			{Name: "gpu_operator_node_device_plugin_devices_total", Help: "Devices that the kubelet offers.", Node: accel.NodeAllocatable},
			{Name: "gpu_operator_node_device_plugin_validation_last_success_ts_seconds", Help: "When the kubelet was last seen to offer the devices.", Node: accel.NodeOfferedTime},
			{Name: "gpu_operator_nvidia_pci_devices_total", Help: "Accelerators on the bus.", Node: accel.NodeAccelerators},
			{Name: "gpu_operator_node_metrics_ready_ts_seconds", Help: "When the metrics were last read.", Node: accel.NodeCollectedTime},
		},
	}
}
