package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/exporter"
)

// prometheusRule makes the Prometheus operator's object of the plain file of rules.
func prometheusRule(root string) string {
	const name = "packaging/monitoring/rules.yaml"
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err.Error() // the page then differs, and says why
	}
	var b strings.Builder
	b.WriteString("# Generated from rules.yaml by `make generate`; do not edit.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: acceld\n  namespace: acceld-system\n" +
		"  labels:\n    app.kubernetes.io/name: acceld\nspec:\n")
	_, groups, _ := strings.Cut(string(data), "\ngroups:\n")
	for line := range strings.Lines("groups:\n" + groups) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		b.WriteString(line)
	}
	return b.String()
}

// panel is one of a dashboard: what it is called, how it is drawn, and what it asks for.
type panel struct {
	title, kind, unit, expr, legend, help string
	width                                 int
}

// dashboard is Grafana's: the questions of people first, and then, in rows that are closed until somebody opens them,
// one panel for each reading that a definition may have, so that a new row of the table has its panel at once.
func dashboard() string {
	var panels []map[string]any
	id, y := 0, 0
	place := func(all []panel) []map[string]any {
		var placed []map[string]any
		x := 0
		for _, p := range all {
			if x+p.width > 24 {
				x, y = 0, y+panelHeight
			}
			id++
			placed = append(placed, p.json(id, x, y))
			x += p.width
		}
		y += panelHeight
		return placed
	}
	section := func(title string, all []panel) {
		id++
		row := map[string]any{
			"id": id, "type": "row", "title": title, "collapsed": true,
			"gridPos": map[string]int{"h": 1, "w": 24, "x": 0, "y": y},
		}
		y++
		row["panels"] = place(all)
		panels = append(panels, row)
	}
	panels = place(questions())
	section("Pods", podPanels())
	for _, g := range groups() {
		section(g.title, g.panels())
	}
	section("Agents", agentPanels())
	section("Controller", controllerPanels())
	text, err := json.MarshalIndent(map[string]any{
		"title": "Accelerators", "uid": "acceld", "tags": []string{"acceld"}, "schemaVersion": 39, "editable": true,
		"refresh": "30s",
		"time":    map[string]string{"from": "now-6h", "to": "now"}, "templating": map[string]any{"list": variables()},
		"panels": panels,
	}, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text) + "\n"
}

func variables() []map[string]any {
	query := func(name, label, text string) map[string]any {
		return map[string]any{
			"name": name, "label": label, "type": "query", "query": text, "definition": text, "refresh": 2,
			"multi": true, "includeAll": true,
			"allValue": ".*", "datasource": source(), "current": map[string]any{"text": "All", "value": "$__all"},
			"sort": 1,
		}
	}
	return []map[string]any{
		{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
		query("node", "Node", "label_values(accelerator_info, instance)"),
		query("accelerator", "Accelerator", `label_values(accelerator_info{instance=~"$node"}, accelerator_id)`),
	}
}

func source() map[string]string {
	return map[string]string{"type": "prometheus", "uid": "${datasource}"}
}

// panelHeight is the height of a panel, in the grid of Grafana.
const panelHeight = 8

func (p panel) json(id, x, y int) map[string]any {
	target := map[string]any{"refId": "A", "expr": p.expr, "datasource": source(), "legendFormat": p.legend}
	out := map[string]any{
		"id": id, "type": p.kind, "title": p.title, "description": p.help, "datasource": source(),
		"targets":     []any{target},
		"gridPos":     map[string]int{"h": panelHeight, "w": p.width, "x": x, "y": y},
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit}, "overrides": []any{}},
	}
	if p.kind == "table" {
		target["instant"], target["format"] = true, "table"
		hidden := map[string]bool{"Time": true, "Value": true, "__name__": true, "job": true}
		out["transformations"] = []any{map[string]any{
			"id":      "organize",
			"options": map[string]any{"excludeByName": hidden},
		}}
	}
	return out
}

const (
	onNodes   = `{instance=~"$node"}`
	onDevices = `{instance=~"$node", accelerator_id=~"$accelerator"}`
)

func podPanels() []panel {
	of := func(reading string) string {
		return `by (namespace, pod) (accelerator_allocation_info` + onDevices +
			` * on (instance, accelerator_id) group_left () ` + reading + `)`
	}
	return []panel{
		{
			"Utilization by pod", "timeseries", "percentunit", `avg ` + of("accelerator_utilization_ratio"),
			"{{namespace}}/{{pod}}", "A device that several containers share counts for each of them.", 12,
		},
		{
			"Memory by pod", "timeseries", "bytes", `sum ` + of("accelerator_memory_used_bytes"),
			"{{namespace}}/{{pod}}",
			"", 12,
		},
		{
			"Power by pod", "timeseries", "watt", `sum ` + of("accelerator_power_usage_watts"), "{{namespace}}/{{pod}}",
			"", 12,
		},
	}
}

func agentPanels() []panel {
	return []panel{
		{"Memory of the agents", "timeseries", "bytes", `process_resident_memory_bytes` + onNodes +
			` and on (instance, job) acceld_build_info`, "{{instance}}", "", 8},
		{"Processor time of the agents", "timeseries", "percentunit", `rate(process_cpu_seconds_total` + onNodes +
			`[$__rate_interval]) and on (instance, job) acceld_build_info`, "{{instance}}", "Share of one core.", 8},
		{
			"Age of the readings", "timeseries", "s", `time() - acceld_collector_last_success_timestamp_seconds` +
				onNodes,
			"{{instance}} {{kind}}", "", 8,
		},
		{
			"States", "timeseries", "none", `sum by (kind, state) (acceld_kind_state` + onNodes + `)`,
			"{{kind}} {{state}}", "Nodes by the state of each kind.", 8,
		},
		{"Changes of state", "timeseries", "none", `sum by (kind, to) (increase(acceld_state_transitions_total` +
			onNodes + `[$__rate_interval]))`, "{{kind}} to {{to}}", "", 8},
		{"Failed steps", "timeseries", "none", `sum by (kind, reason) (increase(acceld_step_failures_total` + onNodes +
			`[$__rate_interval]))`, "{{kind}} {{reason}}", "", 8},
	}
}

func controllerPanels() []panel {
	return []panel{
		{
			"Leader", "timeseries", "none", `acceld_controller_leader`, "{{instance}}",
			"1 for the replica that does the work.", 8,
		},
		{
			"Nodes of policies", "timeseries", "none", `sum by (policy, state) (acceld_policy_nodes)`,
			"{{policy}} {{state}}", "", 8,
		},
		{
			"Why nodes are not as asked", "timeseries", "none", `sum by (policy, reason) (acceld_policy_blocked_nodes)`,
			"{{policy}} {{reason}}", "", 8,
		},
		{
			"Slots", "timeseries", "none", `sum by (policy) (acceld_policy_slots)`, "{{policy}}",
			"Nodes that may replace a driver now.", 8,
		},
		{
			"Policies that wait for somebody", "table", "none", `acceld_policy_problem == 1`, "",
			"Conditions that stay until somebody acts.", 8,
		},
		{
			"Writes that fail", "timeseries", "none",
			`sum by (instance) (increase(acceld_controller_write_failures_total[1h]))`, "{{instance}}",
			"In an hour; those that somebody else was faster with are not among them.", 8,
		},
		{
			"Time for the scheduler", "timeseries", "s",
			`histogram_quantile(0.99, sum by (verb, le) (rate(acceld_extender_request_seconds_bucket[$__rate_interval])))`,
			"{{verb}}", "99 of 100 requests took less.", 8,
		},
		{
			"Cards in use", "timeseries", "percentunit",
			`sum by (resource) (acceld_extender_used) / sum by (resource) (acceld_extender_capacity)`, "{{resource}}",
			"Of what all cards have.", 8,
		},
		{
			"Largest request that fits", "timeseries", "none", `max by (resource) (acceld_extender_largest_free)`,
			"{{resource}}", "The most that one card has free.", 8,
		},
	}
}

// group is the readings that belong together.
type group struct {
	title   string
	metrics []exporter.Metric
}

// groups divides the readings by their names; each is in exactly one.
func groups() []group {
	patterns := []struct{ title, pattern string }{
		{"Errors", `error|failed|pending|timeouts|resets|remapped|retired|replays|throttle`},
		{"Memory", `memory_.*bytes`},
		{"Temperature, power and clocks", `celsius|watts|joules|volts|fan|hertz`},
		{"Use", `utilization|active|occupancy|operations|interrupts|open_files`},
		{"Bus and links", `pcie|link|dma|bandwidth`},
		{"More", `.`},
	}
	out := make([]group, len(patterns))
	for i, p := range patterns {
		out[i].title = p.title
	}
	for _, s := range exporter.Table() {
		for _, m := range s.Metrics {
			if s.Title != "What a definition may read" && !strings.Contains(m.Name, "_pcie_") {
				continue
			}
			for i, p := range patterns {
				if regexp.MustCompile(p.pattern).MatchString(m.Name) {
					out[i].metrics = append(out[i].metrics, m)
					break
				}
			}
		}
	}
	return slices.DeleteFunc(out, func(g group) bool { return len(g.metrics) == 0 })
}

func (g group) panels() []panel {
	var all []panel
	for _, m := range g.metrics {
		legend := "{{instance}} {{accelerator_id}}"
		for _, l := range m.Labels {
			if l != "accelerator_id" && l != "vendor" {
				legend += " {{" + l + "}}"
			}
		}
		title := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(m.Name, "accelerator_"), "_total"), "_", " ")
		expr, unit := m.Name+onDevices, unitOf(m.Name)
		switch {
		case m.Type == "counter" && g.title == "Errors" && !strings.Contains(m.Name, "_seconds_"):
			expr, unit = fmt.Sprintf("increase(%s%s[1h])", m.Name, onDevices), "none"
		case m.Type == "counter":
			expr, unit = fmt.Sprintf("rate(%s%s[$__rate_interval])", m.Name, onDevices), rateOf(m.Name)
		}
		all = append(all, panel{strings.ToUpper(title[:1]) + title[1:], "timeseries", unit, expr, legend, m.Help, 8})
	}
	return all
}

// unitOf is Grafana's name of the unit that a metric's name ends in.
func unitOf(name string) string {
	for _, u := range []struct{ suffix, unit string }{
		{"_bytes_per_second", "Bps"},
		{"_transfers_per_second", "none"},
		{"_celsius", "celsius"},
		{"_ratio", "percentunit"},
		{"_utilization", "percent"},
		{"_bytes", "bytes"},
		{"_watts", "watt"},
		{"_joules", "joule"},
		{"_volts", "volt"},
		{"_hertz", "hertz"},
		{"_seconds", "s"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return "none"
}

// rateOf is the unit of a counter's rate.
func rateOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_bytes_total"):
		return "Bps"
	case strings.HasSuffix(name, "_joules_total"):
		return "watt"
	case strings.HasSuffix(name, "_seconds_total"):
		return "percentunit"
	}
	return "cps"
}
