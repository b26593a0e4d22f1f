package vendors

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/vendors/nvidia/pages"
)

// MetricPages returns the metric pages with the names of other exporters, in the order of docs/metrics.md.
func MetricPages() []accel.MetricPage { return []accel.MetricPage{pages.Exporter(), pages.Operator()} }
