package exporter

import (
	"fmt"
	"strings"
)

// Docs returns the tables of docs/metrics.md in Markdown.
func Docs() string {
	var b strings.Builder
	section := func(title string, rows []row) {
		fmt.Fprintf(&b, "## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", title)
		for _, r := range rows {
			labels := "–"
			if len(r.labels) > 0 {
				labels = "`" + strings.Join(r.labels, "` `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.name, r.typ(), labels, strings.ReplaceAll(r.help, "|", `\|`))
		}
		b.WriteString("\n")
	}
	section("The agent and the kinds", agentRows())
	section("Every accelerator", deviceRows())
	section("What a definition may read", readingRows())
	return strings.TrimSuffix(b.String(), "\n")
}
