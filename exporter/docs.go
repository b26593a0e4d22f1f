package exporter

import (
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Section is a section of the table of metrics.
type Section struct {
	Title   string
	Metrics []Metric
}

// Metric is one row of the table, without its value.
type Metric struct {
	Name, Help string
	// Type is "gauge" or "counter".
	Type   string
	Labels []string
}

// Table returns the metrics that /metrics may have, in the order of docs/metrics.md.
func Table() []Section {
	section := func(title string, rows []row) Section {
		s := Section{Title: title}
		for _, r := range rows {
			s.Metrics = append(s.Metrics, Metric{r.name, r.help, r.typ(), r.labels})
		}
		return s
	}
	return []Section{
		section("The agent and the kinds", agentRows()),
		section("Every accelerator", deviceRows()),
		section("What a definition may read", readingRows()),
	}
}

// Docs returns the tables of docs/metrics.md in Markdown, including those of the further pages.
func Docs(pages []accel.MetricPage) string {
	var b strings.Builder
	for _, s := range Table() {
		fmt.Fprintf(&b, "## %s\n\n%s\n", s.Title, s.Markdown())
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
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, typ, cell(r.Help), source(r))
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Markdown renders the rows as a table.
func (s Section) Markdown() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range s.Metrics {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, cell(m.Help))
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// source says where the value of a row of a further page comes from.
func source(r accel.PageRow) string {
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
