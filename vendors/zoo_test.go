package vendors

import (
	"os"
	"path/filepath"
	"testing"
)

// TestZoo: the definitions of the zoo are well formed.
func TestZoo(t *testing.T) {
	files, err := filepath.Glob("../test/zoo/*.yaml")
	if err != nil || len(files) < 14 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		def, faults := Read(text)
		for _, f := range faults {
			t.Errorf("%s: %s", file, f)
		}
		if def != nil && "zoo-"+trimmed(file) != def.Kind {
			t.Errorf("%s is of kind %q", file, def.Kind)
		}
	}
}

func trimmed(file string) string {
	base := filepath.Base(file)
	return base[:len(base)-len(".yaml")]
}
