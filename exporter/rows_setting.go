package exporter

import "github.com/acceld/acceld/accel"

// settingRows are the metrics about what is configured about devices.
func settingRows() []row {
	return []row{
		{
			name: "accelerator_setting_applied", help: "1 for a setting that an accelerator has as configured, 0 for one that it has not.", labels: []string{"setting"},
			device: func(d *device, emit emit) {
				for _, s := range d.Settings {
					if s.Want != "" {
						emit(truth(s.State == accel.SettingApplied), s.Name)
					}
				}
			},
		},
		{
			name: "accelerator_setting_drift_total", help: "How often something else than acceld was found to have changed a setting of an accelerator, since the agent started.", counter: true, labels: []string{"setting"},
			device: func(d *device, emit emit) {
				for _, s := range d.Settings {
					if s.Want != "" {
						emit(float64(s.Drifts), s.Name)
					}
				}
			},
		},
	}
}
