package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
)

// outputFormat is the value of an -o flag; the first allowed one is the default.
type outputFormat struct {
	allowed []string
	value   string
}

// flag adds the flag to cmd: JSON, or by default the format for people.
func (f *outputFormat) flag(cmd *cobra.Command, people string) { f.flags(cmd, people, "json") }

// flags adds the flag to cmd with its values, the default first.
func (f *outputFormat) flags(cmd *cobra.Command, allowed ...string) {
	f.allowed, f.value = allowed, allowed[0]
	cmd.Flags().VarP(f, "output", "o", strings.Join(allowed, " or "))
}

// String, Set and Type make it a flag value.
func (f *outputFormat) String() string { return f.value }

// Set accepts only the allowed values.
func (f *outputFormat) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(f.allowed, ", "))
	}
	f.value = s
	return nil
}

// Type names the flag's type in help.
func (f *outputFormat) Type() string { return "format" }

func (f *outputFormat) json() bool { return f.value == "json" }

// programs reports whether the format is for programs.
func (f *outputFormat) programs() bool { return f.json() || f.value == "yaml" }

// print prints v as JSON or YAML, or the text that write writes.
func (f *outputFormat) print(out io.Writer, v any, write func(s *tableWriter)) error {
	switch {
	case f.json():
		return writeJSON(out, v)
	case f.programs():
		b, err := yaml.Marshal(v)
		if err == nil {
			_, err = out.Write(append([]byte("---\n"), b...))
		}
		if err != nil {
			return exit{exitFailed, err}
		}
		return nil
	}
	s := newSheet(out)
	write(s)
	_, err := io.WriteString(out, s.String())
	return err
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return exit{exitFailed, err}
	}
	return nil
}

// count returns "1 device", "2 devices" and so on.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plain makes text from a driver, a compiler or another program safe for a terminal: one line without control
// characters.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// filled joins the texts that are not empty.
func filled(between string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), between)
}

// users lists who uses a driver.
func users(holders []accel.Holder) string {
	var who []string
	for _, h := range holders {
		who = append(who, plain(h.String()))
	}
	return strings.Join(who, ", ")
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func nodes(a accel.Accelerator) string {
	var paths []string
	for _, n := range a.Nodes {
		paths = append(paths, n.Path)
	}
	return strings.Join(paths, ",")
}
