package docs

import (
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
)

// metricTables returns the tables of docs/metrics.md, including those of the further pages.
func metricTables(pages []accel.MetricPage) string {
	var b strings.Builder
	for _, s := range exporter.Table() {
		fmt.Fprintf(&b, "## %s\n\n%s\n", s.Title, markdown(s.Metrics))
	}
	for _, p := range pages {
		var labels []string
		for _, l := range p.Labels {
			labels = append(labels, "`"+l.Name+"`")
		}
		fmt.Fprintf(&b,
			"## On /metrics/%s: the names of %s\n\nWith `endpoint.compatible: [%s]` of the [configuration](config.yaml). Labels: %s.\n\n"+
				"| metric | type | meaning | from |\n|---|---|---|---|\n", p.Name, p.Title, p.Name,
			strings.Join(labels, " "))
		for _, r := range p.Rows {
			typ := "gauge"
			if r.Counter {
				typ = "counter"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, typ, cell(r.Help), origin(r))
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// markdown renders metrics as a table.
func markdown(metrics []exporter.Metric) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range metrics {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, cell(m.Help))
	}
	return b.String()
}

// origin says where the value of a row of a further page comes from.
func origin(r accel.PageRow) string {
	switch {
	case r.LastCode:
		return "`accelerator_driver_errors_total`"
	case r.Less != "":
		return "`" + r.Reading + "` - `" + r.Less + "`"
	case r.Reading != "":
		return "`" + r.Reading + "`"
	}
	return "the node"
}
