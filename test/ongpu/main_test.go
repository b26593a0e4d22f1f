package main

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestReport: the report has what was noted, and none of what identifies the machine.
func TestReport(t *testing.T) {
	x := &trial{kind: "example-card", machine: accel.Machine{Have: map[string]accel.Have{
		"example-card": {Accelerators: []accel.Accelerator{{Serial: "SN-123456", UUID: "GPU-abcdef"}}},
	}}}
	x.learn()
	x.sections = []section{{"metrics", `accelerator_info{serial="SN-123456",uuid="GPU-abcdef"} 1`}}
	got := x.report()
	if !strings.Contains(got, "# acceld with example-card") || !strings.Contains(got, `serial="***",uuid="***"`) {
		t.Error(got)
	}
}

func TestLines(t *testing.T) {
	got := lines("a 1\nb 2\na 3", func(line string) bool { return strings.HasPrefix(line, "a") })
	if got != "a 1\na 3" {
		t.Errorf("%q", got)
	}
}
