package exporter

import "github.com/acceld/acceld/accel"

// workRows are the metrics about work that takes long, and about kinds that somebody has to look at.
func workRows() []row {
	work := func(name, help string, value func(p accel.Progress, emit func(n float64))) row {
		return row{name: name, help: help, labels: []string{"stage"}, kind: func(v view, k string, emit emit) {
			for _, p := range v.Have[k].Work {
				value(p, func(n float64) { emit(n, string(p.Stage)) })
			}
		}}
	}
	return []row{
		work("acceld_work_started_timestamp_seconds",
			"When the work on a kind's driver that is in progress began, by stage, since the epoch. Absent without work.",
			func(p accel.Progress, emit func(float64)) { emit(seconds(p.Since)) }),
		work("acceld_work_done_ratio",
			"Share of that work that is done, 0 to 1. Absent while it is not known.",
			func(p accel.Progress, emit func(float64)) {
				if _, known := p.Percent(); known {
					emit(float64(p.Done) / float64(p.Total))
				}
			}),
		work("acceld_work_last_byte_timestamp_seconds",
			"When a transfer in progress brought bytes last, or began, since the epoch.",
			func(p accel.Progress, emit func(float64)) {
				if p.Stage.Unit() == accel.UnitByte {
					emit(seconds(accel.Latest(p.Since, p.Again, p.Moved)))
				}
			}),
		{
			name: "acceld_warning", labels: []string{"reason"},
			help: "1 for a kind that is not blocked and that somebody has to look at, by reason.",
			kind: func(v view, k string, emit emit) {
				for _, p := range v.Have[k].Warnings() {
					emit(1, string(p.Reason))
				}
			},
		},
	}
}
