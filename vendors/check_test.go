package vendors

import (
	"strings"
	"testing"
)

// TestCheckFaults changes one thing in the self-test of a good definition.
func TestCheckFaults(t *testing.T) {
	const checked = `check:
  program:
    api: opencl
    library: libOpenCL.so.1
    env: [OCL_ICD_VENDORS=/etc/OpenCL]
    timeout: 1m
    optional: true
  sentence: computed
`
	if def, faults := Read([]byte(good + checked)); len(faults) > 0 || !def.Check.Program.Optional {
		t.Fatal(faults)
	}
	for _, c := range []struct{ old, new, want string }{
		{"opencl", "hip", `check.program.api: "hip" is not one of cuda, opencl`},
		{"    api: opencl\n", "", `check.program.api: "" is not one of`},
		{"libOpenCL", "/lib/libOpenCL", `check.program.library: "/lib/libOpenCL.so.1" is not `},
		{"OCL_ICD_VENDORS=", "OCL ICD=", `check.program.env[0]: "OCL ICD=/etc/OpenCL" is not `},
		{"1m", "soon", `check.program.timeout: "soon" is not a duration`},
		{"  sentence", "  want: x\n  sentence", `check: either program is possible, or file, write and want`},
		{"  sentence", "  write: x\n  sentence", `check: either program is possible, or file, write and want`},
	} {
		_, faults := Read([]byte(good + strings.Replace(checked, c.old, c.new, 1)))
		if len(faults) == 0 || !strings.Contains(faults[0].String(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, faults, c.want)
		}
	}
}
