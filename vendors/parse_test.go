package vendors

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// good is a valid definition; tests change one line of it.
const good = `kind: example-npu
vendor: example.com
resource: npu
match:
  - vendor: "f00d"
    device: "0100"
driver:
  binds: npu
  modules:
    - name: npu
  sources:
    - type: build
      path: /usr/src/npu-{{.DriverVersion}}
nodes:
  - glob: accel/npu*
metrics:
  - name: accelerator_temperature_celsius
    file: hwmon/hwmon*/temp1_input
steps:
  driver-container:
    after:
      - name: firmware is up
        waitForLogs:
          kernel: true
          match: npu .*ready
`

func TestRead(t *testing.T) {
	def, faults := Read([]byte(good))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if def.Resource != "example.com/npu" {
		t.Errorf("the vendor key does not complete the resource: %q", def.Resource)
	}
	if s := def.Steps[accel.DriverContainer].At(accel.After); len(s) != 1 || s[0].WaitForLogs == nil {
		t.Errorf("steps: %+v", def.Steps)
	}
}

// TestFaults changes one thing in a good definition; the fault must name line and field.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`kind: example-npu`, `kind: npu`, `1: kind: "npu" is not a kind: `},
		{`kind: example-npu`, `knd: example-npu`, `1: unknown field "knd": did you mean "kind"?`},
		{`kind: example-npu`, `kind: example-` + strings.Repeat("n", 40), `1: kind: "example-` + strings.Repeat("n",
			40) + `" is longer than 38 characters`},
		{`resource: npu`, `resource: "-npu"`, `3: resource: "example.com/-npu" is not `},
		{`    device: "0100"`, `    device: 11e8`, `6: match[0].device: must be text: YAML reads 11e8 without quotes as the number 1100000000; write "11e8" in quotes`},
		{`    device: "0100"`, `    device: "0x01"`, `6: match[0].device: "0x01" is not `},
		{`    device: "0100"`, `    class: ""`, `5: match[0]: a device or a class is needed`},
		{`  binds: npu`, `  binds: npu` + "\n  binds: npu", `9: driver.binds: is there twice`},
		{`    - name: npu`, `    - name: npu.ko`, `10: driver.modules[0].name: "npu.ko" is not `},
		{
			`    - name: npu`, `    - {name: npu, after: [late]}` + "\n    - name: late",
			`10: driver.modules[0].after[0]: module "late" comes after "npu" in the list`,
		},
		{
			`    - name: npu`, `    - name: npu` + "\n    - name: npu",
			`11: driver.modules[1].name: module "npu" is there twice`,
		},
		{
			`    - name: npu`, `    - {name: npu, firmware: [../npu.bin]}`,
			`10: driver.modules[0].firmware[0]: "../npu.bin" leaves the directory`,
		},
		{
			`    - type: build`, `    - type: biuld`,
			`12: driver.sources[0].type: "biuld" is not one of oci, build, bundle`,
		},
		{
			`{{.DriverVersion}}`, `{{.Version}}`,
			`13: driver.sources[0].path: no variable .Version (there are: .KernelVersion `,
		},
		{
			`npu-{{.DriverVersion}}`, `npu-{{ .Address}}`,
			`13: driver.sources[0].path: "/usr/src/npu-{{ .Address}}": .Address is known only in validate.argv`,
		},
		{`{{.DriverVersion}}`, `{{.DriverVersion`, `13: driver.sources[0].path: not a template: `},
		{
			`/usr/src/npu-`, `src/npu-`,
			`13: driver.sources[0].path: "src/npu-{{.DriverVersion}}" is not an absolute path`,
		},
		{`accel/npu*`, `../npu*`, `15: nodes[0].glob: "../npu*" leaves the directory that it is relative to`},
		{`accel/npu*`, `/etc/npu*`, `15: nodes[0].glob: "/etc/npu*" is not below /sys/`},
		{`accel/npu*`, `accel/[`, `15: nodes[0].glob: "accel/[" is not a pattern`},
		{
			`  - glob: accel/npu*`, `  - make: {path: /etc/npu, majors: [npu]}`,
			`15: nodes[0].make.path: "/etc/npu" is not a path below /dev`,
		},
		{
			`  - glob: accel/npu*`, `  - make: {path: "/dev/npu{{.Minor}}", majors: [npu]}`,
			`15: nodes[0].make.path: "/dev/npu{{.Minor}}": only {{.Address}} and {{.Number}} are known here`,
		},
		{
			`  - glob: accel/npu*`, `  - make: {path: /dev/npu, majors: [npu], module: other}`,
			`15: nodes[0].make.module: driver.modules has no module "other"`,
		},
		{`  - glob: accel/npu*`, `  - permissions: rw`, `15: nodes[0]: either glob or make is needed`},
		{
			`    file: hwmon/hwmon*/temp1_input`, `    file: /etc/shadow`,
			`18: metrics[0].file: "/etc/shadow" is not below /sys/`,
		},
		{`    file: hwmon/hwmon*/temp1_input`, `    scale: much`, `18: metrics[0].scale: "much" is not a number`},
		{
			`  driver-container:`, `  driver:`,
			`20: steps.driver: "driver" is not one of driver-container, runtime-enablement,`,
		},
		{
			`          kernel: true`, `          kernel: yes please`,
			`24: steps.driver-container.after[0].waitForLogs.kernel: "yes please" is not true or false`,
		},
		{
			`          kernel: true`, `          file: /x` + "\n          unit: x",
			`23: steps.driver-container.after[0].waitForLogs: exactly one of kernel, unit, file, pod and daemonSet is needed`,
		},
		{
			"          kernel: true", "          daemonSet: fabric",
			`24: steps.driver-container.after[0].waitForLogs.daemonSet: "fabric" is not a namespace and a name, `,
		},
		{
			"          kernel: true", "          kernel: true\n          container: main",
			`25: steps.driver-container.after[0].waitForLogs.container: only pod and daemonSet have containers`,
		},
		{
			"steps:\n", "states:\n  - {name: fabric, after: driver, steps: [{name: x, wait: {pod: a/b}}]}\nsteps:\n",
			`20: states[0].after: "driver" is not one of driver-container, `,
		},
		{
			"steps:\n", "states:\n  - {name: Fabric, after: device-plugin, steps: [{name: x, wait: {pod: a/b}}]}\nsteps:\n",
			`20: states[0].name: "Fabric" is not a name of lower-case letters`,
		},
		{"steps:\n", "states:\n  - {name: fabric, after: device-plugin}\nsteps:\n", `20: states[0].steps: a state needs a step`},
		{`npu .*ready`, `npu (`, "25: steps.driver-container.after[0].waitForLogs.match: error parsing regexp"},
		{
			`      - name: firmware is up`, `      - name: firmware is up` + "\n        run: {argv: [bin/npu]}",
			`22: steps.driver-container.after[0]: exactly one of run, wait, waitForLogs and validate is needed`,
		},
		{
			`      - name: firmware is up`, `      - name: firmware is up` + "\n        timeout: soon",
			`23: steps.driver-container.after[0].timeout: "soon" is not a duration`,
		},
		{`resource: npu`, "resource: npu\nallocation: DRA", `4: allocation: "DRA" is not one of devicePlugin, dra`},
		{`resource: npu`, "resource: npu\nsharing: {replicas: 1000}", `4: sharing.replicas: 1000 is not from 1 to 256`},
		{
			`resource: npu`, "resource: " + strings.Repeat("n", 60) + "\nsharing: {replicas: 2, rename: true}",
			`4: sharing.rename: "example.com/` + strings.Repeat("n", 60) + `.shared" is longer than 63 characters`,
		},
		{`resource: npu`, "resource: npu\nrename: npu", `4: rename: "npu" has no domain: write it in front`},
		{`resource: npu`, "resource: npu\nfabric: ../ring", `4: fabric: "../ring" leaves the directory`},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: memory}]",
			`4: capacity[0]: exactly one of value and file is needed`,
		},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: mem-ory, value: 8Gi}]",
			`4: capacity[0].name: "mem-ory" is not `,
		},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: memory, value: 8 GB}]",
			`4: capacity[0].value: "8 GB" is not `,
		},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: memory, value: '" + strings.Repeat("9", 19) + "'}]",
			`4: capacity[0].value: "` + strings.Repeat("9", 19) + `" is not `,
		},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: memory, value: '" + strings.Repeat("9", 60<<10) + "'}]",
			`4: capacity[0].value: "` + strings.Repeat("9", 64) + `" is not `,
		},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: memory, file: ../mem}]",
			`4: capacity[0].file: "../mem" leaves the directory`,
		},
		{
			`resource: npu`, "resource: npu\ncapacity: [{name: memory, value: 8Gi, share: {step: much}}]",
			`4: capacity[0].share.step: "much" is not `,
		},
		{`resource: npu`, "resource: npu\nmodel: ../model", `4: model: "../model" leaves the directory`},
		{`resource: npu`, "resource: npu\nserial: a|../b", `4: serial: "../b" leaves the directory`},
		{`resource: npu`, "resource: npu\nserial: a|", `4: serial: a file is needed`},
		{
			`resource: npu`, "resource: npu\nhealth: [{file: s, healthy: ok, match: '('}]",
			`4: health[0].match: error parsing regexp`,
		},
		{
			`resource: npu`, "resource: npu\nhealth: [{file: s, healthy: ok, verdicts: {ok: {state: degraded}}}]",
			`4: health[0].verdicts: "ok" is the healthy content`,
		},
		{
			`resource: npu`, "resource: npu\nhealth: [{file: s, healthy: ok, verdicts: {bad: {state: ill}}}]",
			`4: health[0].verdicts["bad"].state: "ill" is not one of degraded, unhealthy`,
		},
		{
			`resource: npu`, "resource: npu\nhealth: [{file: s, healthy: ok, otherwise: {state: degraded, for: 1m}}]",
			`4: health[0].otherwise.for: an attribute counts for as long as it says so`,
		},
		{
			`resource: npu`, "resource: npu\nhealth: [{file: s, healthy: ok, otherwise: {title: x}}]",
			`4: health[0].otherwise.state: is missing`,
		},
		{
			`resource: npu`,
			"resource: npu\nlimits: [{metric: accelerator_voltage_volts, above: 1, aboveMetric: accelerator_fan_rpm}]",
			`4: limits[0]: either above or aboveMetric is needed`,
		},
		{
			`resource: npu`, "resource: npu\nlimits: [{metric: accelerator_voltage_volts, aboveMetric: other}]",
			`4: limits[0].aboveMetric: "other" is not among the metrics`,
		},
		{
			`  binds: npu`, "  binds: npu\n  firmwarePackages: {Debian: x}",
			`9: driver.firmwarePackages: "Debian" is not `,
		},
		{
			`  binds: npu`, "  binds: npu\n  firmwarePackages: {debian: 'x y'}",
			`9: driver.firmwarePackages.debian: "x y" is not `,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, `    file: hwmon/hwmon*/temp1_input|/etc/shadow`,
			`18: metrics[0].file: "/etc/shadow" is not below /sys/`,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, "    file: x\n    match: '(a'",
			`19: metrics[0].match: error parsing regexp`,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, "    file: x\n    match: '[0-9]*'",
			`19: metrics[0].match: "[0-9]*" matches every line`,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, "    file: x\n    match: '([0-9]+)MHz'",
			`19: metrics[0].match: "([0-9]+)MHz" has groups, and none is (?P<value>…)`,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, "    file: x\n    combine: mean",
			`19: metrics[0].combine: "mean" is not one of first, sum, max, min, count`,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, "    file: x\n    combine: count",
			`17: metrics[0].match: is needed: it says what is counted`,
		},
		{
			`    file: hwmon/hwmon*/temp1_input`, "    file: x\n  - {name: accelerator_temperature_celsius, file: y}",
			`19: metrics[1].name: "accelerator_temperature_celsius" is there twice`,
		},
		{`match:`, `match: {}` + "\nexcept:", `4: match: must be a list`},
		{`match:`, `match`, `4: `},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in the good definition", c.old)
		}
		_, faults := Read([]byte(text))
		var got []string
		for _, f := range faults {
			got = append(got, fmt.Sprintf("%d: %s", f.Line, f))
		}
		if !strings.Contains("\n"+strings.Join(got, "\n"), "\n"+c.want) {
			t.Errorf("%q for %q: got %q, want %q", c.new, c.old, got, c.want)
		}
	}
}

// TestPartitionFaults changes one thing in the partitions of a good definition.
func TestPartitionFaults(t *testing.T) {
	const parts = `partitions:
  find: parts/*
  form: (?P<name>p[0-9])$
  profile: profile
  nodes:
    - glob: .
  env: ["PART={{.Name}}"]
  counters: {slots: "4"}
  profiles:
    - {name: half, rename: npu-half, uses: {slots: "2"}, possible: [p0], capacity: [{name: memory, file: memory}]}
`
	if def, faults := Read([]byte(good + parts)); len(faults) > 0 ||
		def.Partitions.Profiles[0].Rename != "example.com/npu-half" {
		t.Fatalf("%+v, %v", def, faults)
	}
	for _, c := range []struct{ old, new, want string }{
		{`parts/*`, `../parts/*`, `partitions.find: "../parts/*" leaves the directory`},
		{`parts/*`, `/etc/parts/*`, `partitions.find: "/etc/parts/*" is not below /sys/`},
		{`parts/*`, `/proc/driver/../x`, `partitions.find: "/proc/driver/../x" is not below /proc/driver/`},
		{`parts/*`, `parts/[`, `partitions.find: "parts/[" is not a pattern`},
		{`parts/*`, `"/proc/driver/x/gpu{{.Number}}/*"`, `partitions.find: {{.Number}} needs numberFrom`},
		{`(?P<name>p[0-9])$`, `"("`, `partitions.form: error parsing regexp`},
		{`(?P<name>p[0-9])$`, `(?P<profile>p[0-9])$`, `partitions: the profile comes either from the file`},
		{"  profile: profile\n", ``, `partitions: the profile comes either from the file`},
		{`  profile: profile`, `  profile: ../../../x`, `partitions.profile: "../x" leaves the directory`},
		{"  nodes:\n    - glob: .\n  env: [\"PART={{.Name}}\"]\n", ``, `partitions.nodes: a container needs a device node`},
		{`glob: .`, `glob: ../x`, `partitions.nodes[0].glob: "../x" leaves the directory`},
		{
			`glob: .`, `make: {path: "/dev/x{{.Number}}", majors: [x], minorFrom: ../../../m}`,
			`partitions.nodes[0].make.minorFrom: "../m" leaves`,
		},
		{
			`{{.Name}}`, `{{.Serial}}`,
			`partitions.env[0]: "PART={{.Serial}}": only {{.Address}}, {{.Name}} and {{.Profile}} are known here`,
		},
		{`PART={{.Name}}`, `{{.Name}}`, `partitions.env[0]: "0" is not `},
		{`counters: {slots: "4"}`, `counters: {Slots: "4"}`, `partitions.counters: "Slots" is not `},
		{`counters: {slots: "4"}`, `counters: {slots: "many"}`, `partitions.counters.slots: "many" is not `},
		{`uses: {slots: "2"}`, `uses: {other: "2"}`, `partitions.profiles[0].uses: partitions.counters has no "other"`},
		{`uses: {slots: "2"}, `, ``, `partitions.profiles[0].uses: where there are counters`},
		{`  counters: {slots: "4"}` + "\n", ``, `partitions.profiles[0].possible: is for definitions with counters`},
		{`name: half`, `name: "--"`, `partitions.profiles[0].name: a name with a letter or a digit is needed`},
		{`npu-half`, `kubernetes.io/x`, `partitions.profiles[0].rename: "kubernetes.io/x" is a name of Kubernetes`},
		{`possible: [p0]`, `possible: ["p 0"]`, `partitions.profiles[0].possible[0]: "p 0" is not a name of letters`},
		{
			`  profile: profile`, "  profile: profile\n  of: {file: n}",
			`partitions.of: either device or place is needed`,
		},
		{
			`  profile: profile`, "  profile: profile\n  of: {file: n, device: d, place: true}",
			`partitions.of: either device or place is needed`,
		},
		{
			`  profile: profile`, "  profile: profile\n  of: {file: n, device: d, domain: x}",
			`partitions.of.domain: is for place`,
		},
		{
			`  profile: profile`, "  profile: profile\n  of: {file: n, place: true, domain: ../../../x}",
			`partitions.of.domain: "../x" leaves the directory`,
		},
		{
			`file: memory`, `file: /etc/memory`,
			`partitions.profiles[0].capacity[0].file: "/etc/memory" is not below /sys/`,
		},
		{
			`    - {name: half`, "    - {name: half, uses: {slots: \"1\"}}\n    - {name: half",
			`partitions.profiles[1].name: "half" is there twice`,
		},
	} {
		if !strings.Contains(parts, c.old) {
			t.Fatalf("nothing to change: %q", c.old)
		}
		_, faults := Read([]byte(good + strings.Replace(parts, c.old, c.new, 1)))
		found := false
		for _, f := range faults {
			found = found || strings.HasPrefix(f.String(), c.want) && f.Line > 0
		}
		if !found {
			t.Errorf("%q: %v, want %q with its line", c.new, faults, c.want)
		}
	}
}

func TestWholeFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "the file is empty",
		good + "---\n" + good:    "only one document can be in a file",
		"[1]":                    "must have fields",
		"a: &a [*a]\n":           "unknown field",
		"kind: [\n":              "",
		"kind: x\n\tkind: y\n":   "",
		"match: [" + "[],[],[]]": "must have fields",
	} {
		def, faults := Read([]byte(text))
		if def != nil || len(faults) == 0 || !strings.Contains(faults[0].Message, want) {
			t.Errorf("%q: got %v, %v, want %q", text[:min(len(text), 20)], def, faults, want)
		}
	}
}

// TestLoad: kinds that wait for each other are left out and reported.
func TestLoad(t *testing.T) {
	file := func(kind, after string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Replace(good, "kind: example-npu",
			"kind: "+kind+"\nafter: ["+after+"]", 1))}
	}
	defs := map[string]*accel.Definition{}
	problems := Load(fstest.MapFS{
		"a.yaml": file("example-a", "example-b"), "b.yaml": file("example-b", "example-a"),
		"c.yaml": file("example-c", "example-d"), "d.yaml": file("example-d", ""),
	}, defs)
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "example-a after example-b after example-a") {
		t.Errorf("problems: %v", problems)
	}
	var kinds []string
	ordered, _ := accel.InOrder(defs)
	for _, def := range ordered {
		kinds = append(kinds, def.Kind)
	}
	if diff := cmp.Diff([]string{"example-d", "example-c"}, kinds); diff != "" {
		t.Error(diff)
	}
}

// TestConfinedHasNoPrivilege: what a confined definition may not have is an error with its line.
func TestConfinedHasNoPrivilege(t *testing.T) {
	const text = "kind: a-b\nresource: a.b/c\nmatch: [{vendor: f00d, device: \"0001\"}]\ndriver: {binds: m, modules: [{name: m}]}\n" +
		"nodes: [{glob: accel/a*}]\nserial: serial\n%s"
	for more, want := range map[string]string{
		"": "", "confined: true\n": "", "container: {nodes: [/dev/sda]}\n": "",
		"confined: true\ncontainer: {nodes: [/dev/sda]}\n": "8 container.nodes: gives out nodes of other devices, and the definition is confined",
		"confined: true\nmodel: /sys/x\n":                  "8 model: reads a file of the host, and the definition is confined",
	} {
		got := ""
		_, faults := Read(fmt.Appendf(nil, text, more))
		for _, f := range faults {
			got += fmt.Sprintf("%d %s", f.Line, f)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", more, got, want)
		}
	}
}
