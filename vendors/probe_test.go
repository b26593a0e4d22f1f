package vendors

import (
	"strings"
	"testing"
)

// TestProbeFaults changes one thing in the probe program of a good definition, or in the partitions that it reports.
func TestProbeFaults(t *testing.T) {
	const watched = `probe:
  argv: [npu-watch, --json]
  silence: 10s
partitions:
  told: true
  rename: example.com/part-{{.Profile}}
  withDevice: true
  layout:
    - {devices: ["0000:01:00.0"], parts: {half: 2}}
    - {}
limits:
  - {metric: accelerator_sm_clock_hertz, above: 300}
`
	if _, faults := Read([]byte(good + watched)); len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, c := range []struct{ old, new, want string }{
		{`[npu-watch, --json]`, `[]`, `probe.argv: a program is needed`},
		{
			`npu-watch,`, `./npu-watch,`,
			`probe.argv[0]: "./npu-watch" is neither the name of a program beside the agent nor an absolute path`,
		},
		{`npu-watch,`, `/opt/../npu-watch,`, `probe.argv[0]: "/opt/../npu-watch" is neither`},
		{`npu-watch,`, `..,`, `probe.argv[0]: ".." is not `},
		{`silence: 10s`, `silence: soon`, `probe.silence: "soon" is not a duration`},
		{
			"probe:\n  argv: [npu-watch, --json]\n  silence: 10s\n", ``,
			`partitions.told: there is no probe that could tell`,
		},
		{
			"probe:\n  argv: [npu-watch, --json]\n  silence: 10s\n", ``,
			`limits[0].metric: "accelerator_sm_clock_hertz" is not among the metrics`,
		},
		{`told: true`, "told: true\n  find: parts/*", `partitions.told: the program finds partitions`},
		{`told: true`, `find: "virtfn*"`, `partitions.layout: is for partitions that the probe program tells`},
		{`part-{{.Profile}}`, `part`, `partitions.rename: without {{.Profile}} all profiles would be one resource`},
		{`example.com/part`, `kubernetes.io/part`, `partitions.rename: "kubernetes.io/part-0" is a name of Kubernetes`},
		{`{half: 2}`, `{half: 65}`, `partitions.layout: [0].parts: 65 of "half" is not between 0 and 64`},
		{`{half: 2}`, `{"a half": 2}`, `partitions.layout: [0].parts: "a half" is no name of a profile`},
		{
			`devices: ["0000:01:00.0"], `, ``,
			`partitions.layout: [0].devices: is missing, and so the rows below would never hold`,
		},
	} {
		if !strings.Contains(watched, c.old) {
			t.Fatalf("nothing to change: %q", c.old)
		}
		_, faults := Read([]byte(good + strings.Replace(watched, c.old, c.new, 1)))
		found := false
		for _, f := range faults {
			found = found || strings.HasPrefix(f.String(), c.want)
		}
		if !found {
			t.Errorf("%q: %v, want %q", c.new, faults, c.want)
		}
	}
}
