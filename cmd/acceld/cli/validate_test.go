package cli

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/vendors"
)

const (
	validConfig = `logLevel: info
resync: 5m
kubernetes:
  enabled: auto
  policies: on
endpoint:
  listen: 127.0.0.1:9480
  remote:
    listen: 0.0.0.0:9481
    tokens: true
build:
  memory: 80%
  jobs: 4
runtime:
  edit: dropin
kinds:
  qemu-edu:
    enabled: true
    driver:
      version: "1.0.0"
      sources:
        - type: build
          path: /usr/src/edu-{{.DriverVersion}}
      upgrade:
        holders: wait
        timeout: 30m
`
	validPolicy = `apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata:
  name: example
spec:
  nodeSelector:
    pool: edu
  priority: 10
  kinds:
    qemu-edu:
      allocation: devicePlugin
      resource: example.com/edu
      driver:
        version: "1.0.0"
        sources:
          - type: oci
            image: registry.example/edu
  upgrade:
    maxParallel: 2
    maxUnavailable: 25%
    timeout: 1h
    windows:
      - days: [Sat, Sun]
        from: "22:00"
        to: "06:00"
  partition:
    taints:
      - key: example.com/edu
        effect: NoSchedule
`
	validValues = `registry: registry.example
agent:
  config:
    logLevel: info
    kinds:
      qemu-edu:
        driver:
          version: "1.0.0"
  nodeSelector:
    pool: edu
controller:
  enabled: true
`
	validDefinition = `kind: example-npu
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
)

// mistake is one change of a valid file.
type mistake struct {
	// file is the valid one; old is in it once, and new is written instead.
	file, old, new string
	// below is how many lines below the first one of old the error is.
	below int
	// cure is what the message must say to write.
	cure string
}

// faultsOf returns what validate says of a file.
func faultsOf(t *testing.T, text string) string {
	t.Helper()
	known, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	var out bytes.Buffer
	v := validation{out: &out, known: known, from: map[string]string{}, text: map[string][]byte{}}
	v.any("f", []byte(text))
	v.together()
	return out.String()
}

// named reports whether what was said of a mistake names its line and its cure.
func (m mistake) named(t *testing.T) (says string, ok bool) {
	t.Helper()
	if strings.Count(m.file, m.old) != 1 {
		t.Fatalf("%q is %d times in the file", m.old, strings.Count(m.file, m.old))
	}
	before, _, _ := strings.Cut(m.file, m.old)
	line := 1 + strings.Count(before, "\n") + m.below
	says = faultsOf(t, strings.Replace(m.file, m.old, m.new, 1))
	for l := range strings.Lines(says) {
		if strings.HasPrefix(l, fmt.Sprintf("f:%d: ", line)) && strings.Contains(l, m.cure) {
			return says, true
		}
	}
	return says, false
}

// TestMistakes makes one mistake at a time in a valid file. At least 95 of 100 messages name the line and what to
// write.
func TestMistakes(t *testing.T) {
	for _, text := range []string{validConfig, validPolicy, validValues, validDefinition} {
		if says := faultsOf(t, text); says != "" {
			t.Fatalf("a valid file: %s", says)
		}
	}
	all := []mistake{
		// Misspelt fields and words.
		{validConfig, "logLevel:", "logLvl:", 0, `did you mean "logLevel"?`},
		{validConfig, "logLevel:", "log_level:", 0, `did you mean "logLevel"?`},
		{validConfig, "tokens:", "token:", 0, `did you mean "tokens"?`},
		{validConfig, "auto", "atuo", 0, `did you mean "auto"?`},
		{validConfig, "dropin", "drop-in", 0, `did you mean "dropin"?`},
		{validConfig, "qemu-edu", "qemu-edo", 0, `did you mean "qemu-edu"?`},
		{validConfig, "type: build", "type: bulid", 0, `did you mean "build"?`},
		{validConfig, "holders: wait", "holders: waits", 0, `did you mean "wait"?`},
		{validConfig, ".DriverVersion", ".DriverVerson", 0, `did you mean ".DriverVersion"?`},
		{validConfig, "sources:", "source:", 0, `did you mean "sources"?`},
		{validPolicy, "v1alpha1", "v1alpha2", 0, `did you mean "acceld.dev/v1alpha1"?`},
		{validPolicy, "AcceleratorPolicy", "AcceleratorPolcy", 0, `did you mean "AcceleratorPolicy"?`},
		{validPolicy, "devicePlugin", "deviceplugin", 0, `did you mean "devicePlugin"?`},
		{validPolicy, "type: oci", "type: registrx", 0, `did you mean "oci"?`},
		{validPolicy, "maxParallel", "maxParalel", 0, `did you mean "maxParallel"?`},
		{validPolicy, "kinds:", "kind:", 0, `did you mean "kinds"?`},
		{validPolicy, "NoSchedule", "NoShedule", 0, `did you mean "NoSchedule"?`},
		{validPolicy, "[Sat, Sun]", "[Saturday]", 0, `is not one of Mon, Tue,`},
		{validValues, "logLevel:", "loglevel:", 0, `did you mean "logLevel"?`},
		{validValues, "agent:", "agents:", 0, `did you mean "agent"?`},
		{validDefinition, "resource:", "resorce:", 0, `did you mean "resource"?`},
		{validDefinition, "temperature", "temprature", 0, `did you mean "accelerator_temperature_celsius"?`},
		{validDefinition, "driver-container", "driver_container", 0, `did you mean "driver-container"?`},
		// Numbers as text, units, and other types.
		{validConfig, `"1.0.0"`, "550.90", 0, `the number 550.9; write "550.90" in quotes`},
		{validValues, `"1.0.0"`, "550.90", 0, `the number 550.9; write "550.90" in quotes`},
		{validPolicy, `"1.0.0"`, "1_000", 0, `the number 1000; write "1_000" in quotes`},
		{validDefinition, `"0100"`, "0100", 0, `write "0100" in quotes`},
		{validDefinition, `"0100"`, "1e10", 0, `write "1e10" in quotes`},
		{validConfig, "resync: 5m", "resync: 5", 0, "write 5s for seconds, 5m for minutes"},
		{validConfig, "resync: 5m", "resync: 5min", 0, "is not a time such as 5m"},
		{validConfig, "timeout: 30m", "timeout: 30", 0, "write 30s for seconds, 30m for minutes"},
		{validConfig, "timeout: 30m", `timeout: "30"`, 0, "write 30s for seconds, 30m for minutes"},
		{validConfig, "80%", "80", 0, "write 80% for a share of the memory"},
		{validConfig, "80%", "4GB", 0, "such as 4Gi"},
		{validConfig, "jobs: 4", `jobs: "4"`, 0, "write 4 without quotes"},
		{validConfig, "enabled: true", `enabled: "true"`, 0, "write true without quotes"},
		{validPolicy, "priority: 10", "priority: high", 0, "is not a whole number"},
		{validPolicy, "25%", "25 percent", 0, "a share such as 25%"},
		{validPolicy, `"22:00"`, "10pm", 0, "a time of the day such as 22:00"},
		// Values that cannot be.
		{validConfig, "127.0.0.1:9480", "0.0.0.0:9480", 0, "set endpoint.remote.listen"},
		{validConfig, "127.0.0.1:9480", "127.0.0.1", 0, "with a port, such as 127.0.0.1:9480"},
		{validConfig, "/usr/src", "usr/src", 0, "begin it with a slash"},
		{validConfig, "{{.DriverVersion}}", "{{.DriverVersion", 0, `close it with "}}"`},
		{validPolicy, "example.com/edu\n      driver", "edu\n      driver", 0, "such as example.com/edu"},
		{validPolicy, "registry.example/edu", "edu", 0, "such as registry.example/driver"},
		{validDefinition, `"f00d"`, `"0xF00D"`, 0, `write "f00d"`},
		{validDefinition, "kind: example-npu", "kind: Example_NPU", 0, `write "example-npu"`},
		{validDefinition, "name: npu\n", "name: npu.ko\n", 0, `write "npu"`},
		{validDefinition, "accel/npu*", "/dev/npu*", 0, "is not below /sys/"},
		// Indentation, lists and punctuation.
		{validConfig, "  edit:", "\tedit:", 0, "replace it by spaces, two for each level"},
		{validConfig, "  jobs: 4", "   jobs: 4", 0, "indent it by 2 spaces like that line"},
		{validConfig, "  edit:", "edit:", 0, `"edit" indented below "runtime"`},
		{validConfig, "    driver:\n", "  driver:\n", 0, `it belongs below "qemu-edu" of line 17`},
		{validConfig, "      upgrade:", "       upgrade:", 0, "indent it like one of those that it can be beside"},
		{validConfig, "logLevel: info", "logLevel:info", 0, `write "logLevel: info"`},
		{validConfig, "logLevel: info", "logLevel: info\nlogLevel: debug", 1, "remove one of the two"},
		{validConfig, "        - type: build\n  ", "          type: build\n  ", 0, `begin each entry with "- "`},
		{validConfig, "path: /usr/src/edu-{{.DriverVersion}}", "path: {{.DriverVersion}}/edu", 0, "needs quotes"},
		{validPolicy, "[Sat, Sun]", "[Sat, Sun", 0, `add the missing "]"`},
		{validPolicy, `"22:00"`, `"22:00`, 0, "close it on the same line"},
		{validValues, "  nodeSelector:\n    pool", "    nodeSelector:\n      pool", 0, "it belongs further left"},
		{validDefinition, "    - name: npu\n", "    - npu\n", 0, "each as name: value"},
		{validDefinition, "- type: build\n", "-type: build\n", 0, `write "- type: build"`},
	}
	named := 0
	for _, m := range all {
		says, ok := m.named(t)
		if ok {
			named++
			continue
		}
		t.Logf("%q for %q: %s\nwant %q", m.new, m.old, says, m.cure)
	}
	t.Logf("%d of %d mistakes have their line and their cure", named, len(all))
	if named*100 < len(all)*95 {
		t.Errorf("%d of %d", named, len(all))
	}
}

// TestReviewedMistakes are those that somebody made who tried the program for the first time. All of them have line and
// cure.
func TestReviewedMistakes(t *testing.T) {
	for _, m := range []mistake{
		{validConfig, "logLevel:", "logLvl:", 0, `did you mean "logLevel"?`},
		{validConfig, "sources:", "source:", 0, `kinds.qemu-edu.driver: unknown field "source": did you mean "sources"?`},
		{validConfig, "  jobs: 4", "   jobs: 4", 0, "this line is indented further than line 12"},
		{validConfig, "  edit:", "\tedit:", 0, "a tab indents this line"},
		{validConfig, "127.0.0.1:9480", "0.0.0.0:9480", 0, "endpoint.remote.listen, which needs TLS"},
		{validConfig, `"1.0.0"`, "550.90", 0, "YAML reads 550.90 without quotes as the number 550.9"},
		{validConfig, "{{.DriverVersion}}", "{{.KernelVerson}}", 0, `did you mean ".KernelVersion"?`},
		{validConfig, "enabled: true", "resource: gpu", 0, "such as example.com/gpu"},
		{validDefinition, `"f00d"`, `"0xf00d"`, 0, `write "f00d"`},
		{validPolicy, "type: oci", "type: registrx", 0, `did you mean "oci"?`},
		{validValues, "logLevel:", "logLvl:", 0, `agent.config: unknown field "logLvl": did you mean "logLevel"?`},
		// What was good stays good.
		{validConfig, "qemu-edu", "nobody-knows", 0, "(known: amd-alveo,"},
		{validConfig, "dropin", "drop-in", 0, "is not one of never, dropin, full"},
		{validConfig, "80%", "4GB", 0, "nor at least 64Mi such as 4Gi"},
		{validDefinition, `"f00d"`, "0x10de", 0, `write "0x10de" in quotes`},
		{validDefinition, "nodes:", "devices:\nnodes:", 0, "devices"},
	} {
		if says, ok := m.named(t); !ok {
			t.Errorf("%q for %q: %s\nwant %q", m.new, m.old, says, m.cure)
		}
	}
	// A definition without a resource: there is no line to name.
	if says := faultsOf(t, strings.Replace(validDefinition, "resource: npu\n", "", 1)); !strings.Contains(says,
		"resource: is missing: write a domain and a name, such as example.com/npu") {
		t.Error(says)
	}
}

// The values that validate knows are those of the chart's schema.
func TestValuesOfTheChart(t *testing.T) {
	data, err := os.ReadFile("../../../packaging/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"properties"`
	}
	if err := yaml.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	check := func(what string, t0 reflect.Type, want int, has func(string) bool) {
		if t0.NumField() != want {
			t.Errorf("%s: %d fields here, %d in the schema", what, t0.NumField(), want)
		}
		for i := range t0.NumField() {
			if name := accel.FieldName(t0.Field(i)); !has(name) {
				t.Errorf("%s: the schema has no %q", what, name)
			}
		}
	}
	values := reflect.TypeFor[chartValues]()
	check("values", values, len(schema.Properties), func(n string) bool { _, ok := schema.Properties[n]; return ok })
	of, _ := values.FieldByName("Agent")
	agent := schema.Properties["agent"].Properties
	check("agent", of.Type, len(agent), func(n string) bool { return agent[n] != nil })
}
