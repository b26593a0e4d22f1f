// Command man writes the manual pages of the programs and their shell completions, from the programs' own help and
// from the annotated configuration. It runs in the root of the repository; `make man` starts it.
package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Sections of the manual for programs that administrators run, and for files.
const (
	programs = 8
	files    = 5
)

// page is one manual page.
type page struct {
	name    string // such as "acceld-driver-list"
	section int
	text    string
}

// file returns the path below a directory of manual pages.
func (p page) file() string { return fmt.Sprintf("man%d/%s.%d", p.section, p.name, p.section) }

// pages renders root and every command below it that help lists.
func pages(root *cobra.Command, version string, more ...string) []page {
	out := []page{command(root, version, more)}
	for _, sub := range root.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, pages(sub, version, more...)...)
		}
	}
	return out
}

func nameOf(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// command renders one command. more is about the whole program and only goes on its first page.
func command(c *cobra.Command, version string, more []string) page {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	b.WriteString(".SH SYNOPSIS\n.B " + escape(c.CommandPath()) + "\n" +
		escape(strings.TrimSpace(strings.TrimPrefix(c.UseLine(), c.CommandPath()))) + "\n")
	text, codes, _ := strings.Cut(cmp.Or(c.Long, c.Short+"."), "\n\nExit codes: ")
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(text))
	options(&b, "OPTIONS", c.NonInheritedFlags())
	options(&b, "GLOBAL OPTIONS", c.InheritedFlags())
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, nameOf(sub))
			if len(names) == 1 {
				b.WriteString(".SH COMMANDS\n")
			}
			b.WriteString(".TP\n.B " + escape(sub.Name()) + "\n" + escape(sub.Short) + ".\n")
		}
	}
	if codes != "" {
		b.WriteString(".SH EXIT STATUS\n")
		for code := range strings.SplitSeq(strings.TrimSuffix(codes, "."), "; ") {
			number, meaning, _ := strings.Cut(strings.ReplaceAll(code, "\n", " "), " ")
			b.WriteString(".TP\n.B " + escape(number) + "\n" + escape(meaning) + "\n")
		}
	}
	if c.HasParent() {
		names = append([]string{nameOf(c.Parent())}, names...)
	} else {
		for _, m := range more {
			b.WriteString(m)
		}
	}
	seeAlso(&b, names)
	return newPage(nameOf(c), programs, version, c.Short, b.String())
}

// newPage returns a page with its title above body.
func newPage(name string, section int, version, short, body string) page {
	title := fmt.Sprint(`.TH `, escape(strings.ToUpper(name)), ` `, section, ` "" "`, escape("acceld "+version), `" "acceld"`)
	return page{name, section, title + "\n.nh\n.ad l\n.SH NAME\n" + escape(name) + ` \- ` + escape(short) + "\n" + body}
}

// options writes a section with flags.
func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		words := "\\fB" + escape("--"+f.Name) + "\\fR"
		if f.Shorthand != "" {
			words = "\\fB" + escape("-"+f.Shorthand) + "\\fR, " + words
		}
		if name != "" {
			words += " \\fI" + escape(name) + "\\fR"
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		b.WriteString(".TP\n" + words + "\n" + escape(usage) + "\n")
	})
}

func seeAlso(b *strings.Builder, names []string) {
	if len(names) == 0 {
		return
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, n := range names {
		mark := ","
		if i == len(names)-1 {
			mark = ""
		}
		b.WriteString(".BR " + escape(n) + " (" + fmt.Sprint(programs) + ")" + mark + "\n")
	}
}

// paragraphs converts text whose paragraphs are separated by empty lines to roff.
func paragraphs(text string) string {
	var b strings.Builder
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		b.WriteString(".PP\n" + escape(p) + "\n")
	}
	return b.String()
}

// verbatim converts text to roff line by line, without filling.
func verbatim(text string) string {
	return ".PP\n.nf\n" + escape(strings.TrimSuffix(text, "\n")) + "\n.fi\n"
}

// escape escapes text for roff: no line becomes a request, and a dash can be copied as a dash.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "“", `"`, "”", `"`).Replace(s)
	return regexp.MustCompile(`(?m)^[.']`).ReplaceAllString(s, `\&$0`)
}
