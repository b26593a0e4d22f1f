package exporter

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
			s.Metrics = append(s.Metrics, Metric{r.name, r.help, r.typ(), r.allLabels()})
		}
		return s
	}
	return []Section{
		section("The agent and the kinds", agentRows()),
		section("Every accelerator", deviceRows()),
		section("What a definition may read", readingRows()),
	}
}
