package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The image has no time zones, so the program has them.
func TestTimeZones(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Error("the program has no time zones")
	}
}
