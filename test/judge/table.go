package main

import (
	"fmt"
	"slices"
	"strings"
)

// column is what one subject did.
type column struct {
	name     string
	verdicts []verdict
}

// table is the result, in Markdown: a row for each scenario, a column for each subject, and the reasons below.
func table(scenarios []*Scenario, columns []column) string {
	var b, reasons strings.Builder
	b.WriteString("| scenario |")
	for _, c := range columns {
		b.WriteString(" " + cell(c.name) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for i, s := range scenarios {
		fmt.Fprintf(&b, "| %s: %s |", s.Name, cell(s.What))
		for _, c := range columns {
			v := c.verdicts[i]
			switch {
			case v.notFor != "":
				b.WriteString(" does not apply |")
				fmt.Fprintf(&reasons, "- %s, %s: does not apply: %s\n", cell(c.name), s.Name, cell(v.notFor))
			case v.untried:
				b.WriteString(" not tried |")
			case v.err != nil:
				b.WriteString(" **failed** |")
			default:
				fmt.Fprintf(&b, " %.0f s |", v.took.Seconds())
			}
			if v.err != nil {
				fmt.Fprintf(&reasons, "- %s, %s: %s\n", cell(c.name), s.Name, cell(v.err.Error()))
			}
		}
		b.WriteString("\n")
	}
	if reasons.Len() > 0 {
		b.WriteString("\n" + reasons.String())
	}
	return b.String()
}

// cell is a text that breaks no table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ").Replace(strings.TrimSpace(text))
}

func anyFailed(columns []column) bool {
	return slices.ContainsFunc(columns, func(c column) bool {
		return slices.ContainsFunc(c.verdicts, func(v verdict) bool { return v.err != nil })
	})
}
