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

// textFormat is the value of an -o flag with its own choices; the first is the default.
type textFormat struct {
	allowed []string
	value   string
}

func (f *textFormat) flag(cmd *cobra.Command) {
	f.value = f.allowed[0]
	cmd.Flags().VarP(f, "output", "o", strings.Join(f.allowed, " or "))
}

// String, Set and Type make it a flag value.
func (f *textFormat) String() string { return f.value }

// Set accepts only the allowed values.
func (f *textFormat) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(f.allowed, ", "))
	}
	f.value = s
	return nil
}

// Type names the flag's type in help.
func (f *textFormat) Type() string { return "format" }

// outputFormat is the value of the -o flag of most commands.
type outputFormat struct{ textFormat }

func (f *outputFormat) flag(cmd *cobra.Command) {
	f.allowed = []string{"text", "json"}
	f.textFormat.flag(cmd)
}

func (f *outputFormat) json() bool { return f.value == "json" }

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

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func nodes(a accel.Accelerator) string {
	var paths []string
	for _, n := range a.Nodes {
		paths = append(paths, n.Path)
	}
	return strings.Join(paths, ",")
}
