package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
)

// outputFormat is the value of -o.
type outputFormat string

func (f *outputFormat) flag(cmd *cobra.Command) {
	*f = "text"
	cmd.Flags().VarP(f, "output", "o", "text or json")
}

func (f *outputFormat) json() bool { return *f == "json" }

// String, Set and Type make it a flag.
func (f *outputFormat) String() string { return string(*f) }

// Set accepts text and json.
func (f *outputFormat) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q is not one of text, json", s)
	}
	*f = outputFormat(s)
	return nil
}

// Type names the flag's type in help.
func (f *outputFormat) Type() string { return "format" }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// count is "1 device", "2 devices".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plain makes text of a driver, a compiler or another program safe for a terminal: one line, nothing that it obeys.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func nodes(a accel.Accelerator) string {
	var paths []string
	for _, n := range a.Nodes {
		paths = append(paths, n.Path)
	}
	return strings.Join(paths, ",")
}
