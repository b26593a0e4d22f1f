package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/vendors"
)

// TestEveryKindHasARow holds the table of all kinds to the definitions: each has a row, and one without a check is
// called unchecked there.
func TestEveryKindHasARow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "vendors.md"))
	if err != nil {
		t.Fatal(err)
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	for kind, def := range defs {
		_, row, ok := strings.Cut(string(text), "\n| `"+kind+"` | ")
		row, _, _ = strings.Cut(row, "\n")
		if columns := strings.Split(row, " | "); !ok || len(columns) != 7 {
			t.Errorf("the table has no row of %s with eight columns: %q", kind, row)
		} else if unchecked := columns[3] == "unchecked"; unchecked != (def.Check == nil) {
			t.Errorf("the proof of %s is %q", kind, columns[3])
		}
	}
}

// TestVendorsPage holds the page to the definitions: each kind that is read from files has its table, with what it
// says.
func TestVendorsPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "vendors.md"))
	if err != nil {
		t.Fatal(err)
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	for kind, def := range defs {
		if strings.HasPrefix(kind, "nvidia-") || strings.HasPrefix(kind, "qemu-") {
			continue // not on this page
		}
		_, table, ok := strings.Cut(string(text), "<!-- what "+kind+" has, generated -->")
		table, _, closed := strings.Cut(table, "<!-- end -->")
		if !ok || !closed {
			t.Errorf("the page has no table of %s", kind)
			continue
		}
		for _, m := range def.Metrics {
			if !strings.Contains(table, "| `"+m.Name+"` | ") {
				t.Errorf("the table of %s has no %s", kind, m.Name)
			}
		}
		for _, r := range def.Log {
			if r.Code != "" && !strings.Contains(table, "code `"+r.Code+"`") {
				t.Errorf("the table of %s has no code %s", kind, r.Code)
			}
		}
	}
}
