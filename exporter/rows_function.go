package exporter

import "github.com/acceld/acceld/accel"

// functionRows are the metrics about the PCI functions of devices that can have virtual ones.
func functionRows() []row {
	virtual := func(name, help string, value func(accel.SRIOV) int) row {
		return row{name: name, help: help, device: func(d *device, emit emit) {
			if d.pci.SRIOV.TotalVFs > 0 && d.Present() && d.Profile == "" {
				emit(float64(value(d.pci.SRIOV)))
			}
		}}
	}
	return []row{
		virtual("accelerator_sriov_virtual_functions", "Virtual functions that the device has now.",
			func(s accel.SRIOV) int { return s.NumVFs }),
		virtual("accelerator_sriov_max_virtual_functions", "Virtual functions that the device could have.",
			func(s accel.SRIOV) int { return s.TotalVFs }),
	}
}
