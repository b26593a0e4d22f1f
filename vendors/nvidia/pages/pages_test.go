package pages

import (
	"slices"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestWhatDashboardsAsk checks the names and labels of dcgm-exporter's own dashboard (12239), of OpenShift's console
// plugin, of the schedulers and autoscalers that work with a fake GPU Operator, and of the GPU Operator's alerts.
func TestWhatDashboardsAsk(t *testing.T) {
	for _, c := range []struct {
		page          accel.MetricPage
		names, labels []string
	}{
		{
			Exporter(),
			[]string{
				"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL",
				"DCGM_FI_DEV_FB_USED",
				"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
				"DCGM_FI_DEV_XID_ERRORS",
			},
			[]string{
				"gpu", "UUID", "modelName", "Hostname", "hostname", "GPU_I_ID", "GPU_I_PROFILE", "pod",
				"namespace", "container",
			},
		},
		{
			Operator(),
			[]string{
				"gpu_operator_node_driver_ready", "gpu_operator_node_toolkit_ready", "gpu_operator_node_plugin_ready",
				"gpu_operator_node_cuda_ready",
				"gpu_operator_node_device_plugin_devices_total",
			},
			[]string{"node"},
		},
	} {
		for _, name := range c.names {
			if !slices.ContainsFunc(c.page.Rows, func(r accel.PageRow) bool { return r.Name == name }) {
				t.Errorf("%s has no %s", c.page.Name, name)
			}
		}
		for _, name := range c.labels {
			if !slices.ContainsFunc(c.page.Labels, func(l accel.PageLabel) bool { return l.Name == name }) {
				t.Errorf("%s has no label %s", c.page.Name, name)
			}
		}
	}
}

// TestRows: each name occurs once, and each row has exactly one source.
func TestRows(t *testing.T) {
	for _, p := range []accel.MetricPage{Exporter(), Operator()} {
		seen := map[string]bool{}
		for _, r := range p.Rows {
			sources := 0
			for _, has := range []bool{r.Reading != "", r.LastCode, r.Node != ""} {
				if has {
					sources++
				}
			}
			if seen[r.Name] || sources != 1 || r.Help == "" || r.Less != "" && r.Reading == "" {
				t.Errorf("%s: %+v", p.Name, r)
			}
			seen[r.Name] = true
		}
	}
}
