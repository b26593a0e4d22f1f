package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/vendors"
)

// vendorsPage is docs/vendors.md: written by hand, with a table of each kind between two comments.
func vendorsPage(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "docs", "vendors.md"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs: cannot read the page about vendors:", err)
		return ""
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		fmt.Fprintln(os.Stderr, "docs: cannot read the definitions:", problem)
		return string(text)
	}
	tables := regexp.MustCompile(`(?s)(<!-- what ([a-z0-9-]+) has, generated -->\n).*?(<!-- end -->)`)
	return tables.ReplaceAllStringFunc(string(text), func(old string) string {
		m := tables.FindStringSubmatch(old)
		def := defs[m[2]]
		if m[2] == "every-device" {
			def = &accel.Definition{Metrics: accel.DefaultMetrics(), Limits: accel.DefaultLimits()}
		}
		if def == nil {
			return m[1] + "There is no such kind.\n" + m[3]
		}
		return m[1] + kindTable(def) + m[3]
	})
}

// kindTable is what a definition says, in two columns.
func kindTable(def *accel.Definition) string {
	var b strings.Builder
	b.WriteString("| what | from |\n|---|---|\n")
	seen := map[string]bool{}
	row := func(what string, from ...string) {
		from = slices.DeleteFunc(from, func(s string) bool { return s == "" || s == "``" })
		if text := fmt.Sprintf("| %s | %s |\n", what, cell(strings.Join(from, "; "))); len(from) > 0 && !seen[text] {
			seen[text] = true
			b.WriteString(text)
		}
	}
	row("resource", code(def.Resource))
	row("PCI functions", functions(def)...)
	for i, m := range def.Driver.Modules {
		optional := ""
		if m.Optional {
			optional = ", where there is one"
		}
		row(map[bool]string{true: "driver", false: "module"}[i == 0], code(m.Name)+optional)
	}
	row("firmware", packages(def.Driver.FirmwarePackages)...)
	row("device nodes", nodeList(def.Nodes)...)
	row("of all devices together", each(def.Container.Nodes, code)...)
	row("serial number", files(def.Serial))
	row("model", files(def.Model))
	row("links to each other", files(def.Fabric))
	for _, c := range def.Capacity {
		row("capacity "+code(c.Name), files(c.File))
	}
	partitionRows(row, def)
	for _, h := range def.Health {
		row("health", files(h.File)+": "+verdicts(h))
	}
	for _, m := range def.Metrics {
		row(code(m.Name), reading(m))
	}
	for _, l := range def.Limits {
		row("degraded", code(l.Metric)+" above "+code(l.AboveMetric)+", for "+l.For)
	}
	for _, r := range def.Log {
		logRows(row, r)
	}
	return b.String()
}

func code(s string) string { return "`" + s + "`" }

func each(all []string, f func(string) string) []string {
	var out []string
	for _, s := range all {
		out = append(out, f(s))
	}
	return out
}

// files says a HealthSource.File.
func files(file string) string {
	if file == "" {
		return ""
	}
	return strings.Join(each(accel.Alternatives(file), code), " or ")
}

func functions(def *accel.Definition) []string {
	var ids, out []string
	for _, m := range def.Match {
		switch {
		case m.Device != "":
			ids = append(ids, m.Device)
		case m.Driver != "":
			out = append(out, "class "+code(m.Class)+" of "+code(m.Vendor)+" that "+code(m.Driver)+" has")
		default:
			out = append(out, "class "+code(m.Class)+" of "+code(m.Vendor))
		}
	}
	if len(ids) > 0 {
		out = append(out, "`"+def.Match[len(def.Match)-1].Vendor+"`: "+strings.Join(ids, " "))
	}
	return out
}

func packages(all map[string]string) []string {
	var out []string
	for _, system := range slices.Sorted(maps.Keys(all)) {
		if system != "*" {
			out = append(out, code(all[system])+" on "+system)
		}
	}
	if all["*"] != "" {
		out = append(out, code(all["*"])+" elsewhere")
	}
	return out
}

func nodeList(nodes []accel.NodeSource) []string {
	var out []string
	for _, n := range nodes {
		if n.Make != nil {
			out = append(out, code(n.Make.Path))
			continue
		}
		out = append(out, code(n.Glob))
		out = append(out, each(n.Siblings, code)...)
	}
	return out
}

func partitionRows(row func(string, ...string), def *accel.Definition) {
	d := def.Partitions
	if d == nil {
		return
	}
	row("parts", code(d.Find))
	row("profile of a part", files(d.Profile))
	row("nodes of a part", nodeList(d.Nodes)...)
	for _, p := range d.Profiles {
		row("resource of "+code(p.Name), code(def.OfferedAs(p.Name)))
	}
}

func verdicts(h accel.HealthSource) string {
	well := code(h.Healthy) + " is well"
	if h.Healthy == "" {
		well = "empty is well"
	}
	out := []string{well}
	for _, content := range slices.Sorted(maps.Keys(h.Verdicts)) {
		out = append(out, code(content)+" is "+verdict(h.Verdicts[content]))
	}
	if h.Otherwise.State == "" {
		return strings.Join(append(out, "all else is unhealthy"), ", ")
	}
	return strings.Join(append(out, "all else is "+verdict(h.Otherwise)), ", ")
}

func verdict(v accel.Verdict) string {
	state := string(v.State)
	if state == "" {
		state = "well"
	}
	if v.For != "" {
		state += " for " + v.For
	}
	var more []string
	for _, s := range []string{v.Title, string(v.Action)} {
		if s != "" {
			more = append(more, s)
		}
	}
	if more == nil {
		return state
	}
	return state + " (" + strings.Join(more, ", ") + ")"
}

func reading(m accel.MetricSource) string {
	text := files(m.File)
	if m.Match != "" {
		text += ", " + code(m.Match)
	}
	if m.Combine != "" {
		text += ", " + string(m.Combine)
	}
	switch {
	case m.Scale > 0 && m.Scale < 1:
		text += fmt.Sprintf(", ÷ %.0f", 1/m.Scale)
	case m.Scale != 0:
		text += fmt.Sprintf(", × %.0f", m.Scale)
	}
	for _, word := range slices.Sorted(maps.Keys(m.Values)) {
		text += fmt.Sprintf(", %s is %v", code(word), m.Values[word])
	}
	return text
}

// logRows say what a rule makes of a line.
func logRows(row func(string, ...string), r accel.LogRule) {
	tell := func(code string, v accel.Verdict) {
		state := "counted"
		if v.State != "" {
			state = verdict(v)
		} else if v.Title != "" {
			state += " (" + v.Title + ")"
		}
		row("kernel log, code `"+code+"`", state)
	}
	for _, c := range slices.Sorted(maps.Keys(r.Codes)) {
		tell(c, r.Codes[c])
	}
	if r.Code != "" {
		tell(r.Code, r.Otherwise)
	}
}
