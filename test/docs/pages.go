// Package docs renders the generated pages of docs and reads the written ones. `make generate` writes the former, and
// its test holds both to the code. It runs nothing.
package docs

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/cmd/acceld/cli"
	"github.com/acceld/acceld/vendors"
)

// Page is one generated file.
type Page struct {
	// Path is relative to the root of the repository.
	Path string
	Text string
}

// Pages renders every generated file of the repository at root.
func Pages(root string) []Page {
	return append([]Page{
		{"docs/cli.md", commandLine()},
		{"docs/definition-fields.md", definitionFields(root)},
		{"docs/metrics.md", metrics()},
		{"packaging/monitoring/dashboard.json", dashboard()},
		{"packaging/monitoring/prometheusrule.yaml", prometheusRule(root)},
		{"docs/reasons.md", reasons()},
		{"docs/states.md", states()},
		{statesPicture, drawStates()},
		{roomsPicture, drawRooms()},
		{"docs/vendors.md", vendorsPage(root)},
		crdPage(root),
		chartPage(root),
	}, schemaPages(root)...)
}

func reasons() string {
	var b strings.Builder
	b.WriteString("# Reasons\n\nGenerated from the reasons of package accel; do not edit.\n\n" +
		"A kind of accelerator that is blocked says why with one of these codes: in `acceld status`, in the node condition\n" +
		"`AcceleratorsReady`, in events and in the metrics. A permanent one is not tried again before something changes.\n\n" +
		"| code | what happened | who acts | what to do | tried again |\n|---|---|---|---|---|\n")
	for _, r := range accel.Reasons() {
		again := "yes"
		if r.Permanent {
			again = "after a change"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Reason, cell(r.Sentence), r.Actor, cell(r.Remedy), again)
	}
	return b.String()
}

func metrics() string {
	return "# Metrics\n\nGenerated from the rows of package exporter, and from what the controller's packages describe; do not edit.\n\n" +
		"The agent's are served on `/metrics` of the local endpoint, and of the [remote one](monitoring.md). A scrape shows the last reading and\n" +
		"never touches a driver. What is not known is an absent series, never a zero.\n\n" +
		strings.TrimSpace(metricTables(vendors.MetricPages())) + "\n\n" + controllerTable()
}

// cell escapes what ends a cell, and what would be markup outside of code.
func cell(s string) string {
	parts := strings.Split(strings.ReplaceAll(s, "|", `\|`), "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.ReplaceAll(parts[i], "<", "&lt;")
	}
	return strings.Join(parts, "`")
}

func commandLine() string {
	var b strings.Builder
	b.WriteString("# Command line\n\nGenerated from the program's own help; do not edit.\n")
	describe(&b, cli.New())
	return b.String()
}

// describe writes the help of c, then that of every command below it that help lists.
func describe(b *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	text := c.Long
	if text == "" {
		text = c.Short
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), text, clean(c.UsageString()))
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			describe(b, sub)
		}
	}
}

// clean takes trailing space off every line.
func clean(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Join(lines, "\n")
}
