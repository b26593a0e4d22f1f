package yamlfile

import (
	"regexp"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

type file struct {
	LogLevel string `json:"logLevel,omitempty" enum:"debug,info"`
	Resync   string `json:"resync,omitempty" form:"duration"`
	Endpoint struct {
		Listen string   `json:"listen,omitempty"`
		Hosts  []string `json:"hosts,omitempty"`
		Remote struct {
			Tokens bool `json:"tokens,omitempty"`
		} `json:"remote,omitzero"`
	} `json:"endpoint,omitzero"`
	Memory   string           `json:"memory,omitempty" form:"memory"`
	Jobs     int32            `json:"jobs,omitempty"`
	Policies Switch           `json:"policies,omitempty" enum:"on,off"`
	Limit    accel.Portion    `json:"limit,omitempty"`
	Kinds    map[string]*kind `json:"kinds,omitempty"`
	Embedded `json:",inline"`
}

type kind struct {
	Enabled *bool `json:"enabled,omitempty"`
	Driver  struct {
		Version    string                       `json:"version,omitempty"`
		Sources    []accel.Source               `json:"sources,omitempty"`
		Parameters map[string]map[string]string `json:"parameters,omitempty"`
	} `json:"driver,omitzero"`
}

// Embedded is not a level of the file.
type Embedded struct {
	Cert string `json:"cert,omitempty"`
}

func TestReads(t *testing.T) {
	var f file
	places, empty, faults := Read([]byte("logLevel: info\nendpoint:\n  remote: {tokens: yes}\npolicies: no\nlimit: 3\n"+
		"kinds:\n  a-b: &x\n    enabled: off\n    driver: {parameters: {m: {p: \"1\"}}}\n  c-d: *x\n  1: {}\n  e-f:\ncert: c\n"), &f)
	if empty || len(faults) > 0 {
		t.Fatal(faults)
	}
	k := f.Kinds["c-d"]
	if f.LogLevel != "info" || !f.Endpoint.Remote.Tokens || f.Limit != "3" || f.Cert != "c" || k == nil || *k.Enabled ||
		k.Driver.Parameters["m"]["p"] != "1" || f.Kinds["1"] == nil || f.Kinds["e-f"] != nil || f.Policies != "no" {
		t.Errorf("%+v", f)
	}
	for field, want := range map[string]int{"kinds.a-b.enabled": 8, "kinds.a-b.nothing": 7, "nothing": 0} {
		if got := places.Line(field); got != want {
			t.Errorf("%s is in line %d, want %d", field, got, want)
		}
	}
	for _, text := range []string{"", "# only a comment\n", "---\n", "{}", "null\n"} {
		if _, empty, faults := Read([]byte(text), &f); len(faults) > 0 || empty != (text != "{}") {
			t.Errorf("%q: %v, empty %t", text, faults, empty)
		}
	}
	for text, want := range map[string]Switch{"policies: off": "off", "policies: false": "off", "policies: true": "on"} {
		if _, _, faults := Read([]byte(text), &f); len(faults) > 0 || f.Policies != want {
			t.Errorf("%q: %q, %v", text, f.Policies, faults)
		}
	}
}

// TestFaults: each mistake has its line, its field, and what to write.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"logLvl: info":    `line 1: unknown field "logLvl": did you mean "logLevel"?`,
		"log_level: info": `line 1: unknown field "log_level": did you mean "logLevel"?`,
		"quux: 1":         `line 1: unknown field "quux" (there are: logLevel, resync, endpoint, memory, jobs, policies, limit, kinds, cert)`,
		"\nresync: 30":    `line 2: resync: 30 has no unit: write 30s for seconds, 30m for minutes or 30h for hours`,
		"memory: 4":       `line 1: memory: 4 has no unit: write 4% for a share of the memory, or 4Gi`,
		"kinds: {a-b: {driver: {version: 550.90}}}":      `line 1: kinds.a-b.driver.version: must be text: YAML reads 550.90 without quotes as the number 550.9; write "550.90" in quotes`,
		"kinds: {a-b: {driver: {version: 0x10}}}":        `reads 0x10 without quotes as the number 16; write "0x10" in quotes`,
		"kinds: {a-b: {driver: {version: 5}}}":           `reads 5 without quotes as a number; write "5" in quotes`,
		"logLevel: true":                                 `YAML reads true without quotes as a switch; write "true" in quotes`,
		"logLevel: [info]":                               `line 1: logLevel: must be text, and not a list or fields`,
		"jobs: \"4\"":                                    `line 1: jobs: "4" is not a whole number: write 4 without quotes`,
		"jobs: many":                                     `line 1: jobs: "many" is not a whole number`,
		"jobs: 4000000000":                               `line 1: jobs: number 4000000000 does not fit`,
		"kinds: {a-b: {enabled: \"true\"}}":              `kinds.a-b.enabled: "true" is not true or false: write true without quotes`,
		"kinds: {a-b: {enabled: maybe}}":                 `kinds.a-b.enabled: "maybe" is not true or false`,
		"endpoint:\nlisten: x":                           `line 2: unknown field "listen": it belongs below "endpoint": write endpoint.listen, with "listen" indented below "endpoint"`,
		"tokens: true":                                   `line 1: unknown field "tokens": it belongs below "endpoint.remote": write endpoint.remote.tokens`,
		"endpoint:\n  listen: x\n  resync: 5m":           `line 3: endpoint: unknown field "resync": it belongs further left: write resync, indented as far as "endpoint"`,
		"kinds:\n  a-b:\n  driver:\n    version: x":      `line 3: kinds.driver: is not indented: it belongs below "a-b" of line 2`,
		"kinds:\n  a-b:\n    driver:\n    version: x":    `line 4: kinds.a-b: unknown field "version": it belongs below "kinds.a-b.driver"`,
		"endpoint: {hosts: a}":                           `line 1: endpoint.hosts: must be a list: write [a]`,
		"kinds: {a-b: {driver: {sources: {type: oci}}}}": `kinds.a-b.driver.sources: must be a list: begin each entry with "- ", as in "- type: …"`,
		"jobs: 4\rendpoint:\r\tlisten: x":                `line 3: a tab indents this line`,
		"endpoint: [x]":                                  `line 1: endpoint: must have fields, not a list: leave out "- " and the brackets (there are: listen,`,
		"endpoint: x":                                    `line 1: endpoint: must have fields, each as name: value, indented on a line below; "x" is none (there are: listen,`,
		"endpoint:\n  listen:x":                          `line 2: endpoint: must have fields: write a space after the colon, "listen: x"`,
		"logLevel: info\nlogLevel: debug":                `line 2: logLevel: is there twice: remove one of the two`,
		"limit: [1]":                                     `line 1: limit: must be a number such as 3 or a share such as 25%`,
		"a: &a [*a]":                                     `unknown field "a"`,
		"kinds: {? [x] : y}":                             `line 1: kinds: a name is expected before the colon`,
		"<<: {logLevel: info}":                           `line 1: merge keys (<<) are not known here`,
		"logLevel: info\n---\nlogLevel: info":            `line 3: only one document can be in a file`,
		// No YAML at all.
		"endpoint:\n\tlisten: x":                 `line 2: a tab indents this line, and YAML takes spaces only`,
		"endpoint:\n  listen: x\n   hosts: [y]":  `line 3: this line is indented further than line 2, which has a value already: indent it by 2 spaces like that line`,
		"endpoint:\n    listen: x\n  hosts: [y]": `line 3: this line is indented by 2 spaces, and no line above it is: indent it like one of those that it can be beside: 0 (line 1), 4 (line 2)`,
		"logLevel:info\nresync: 5m":              `line 1: a space is missing after the colon: write "logLevel: info"`,
		"logLevel: \"info\nresync: 5m":           `line 1: the quote that begins here does not end`,
		"endpoint:\n  hosts: [a, b\nresync: 5m":  `line 2: a bracket that is open here is not closed`,
		"endpoint:\n  listen: {{.Address}}\n":    "line 2",
		"logLevel: a: b":                         `line 1: text with ": " in it needs quotes: write logLevel: "a: b"`,
		"logLevel: %x":                           `line 1: what begins with "%" needs quotes`,
		"logLevel: *x":                           `needs quotes`,
	} {
		var f file
		_, _, faults := Read([]byte(text), &f)
		if got := Join(faults); len(faults) == 0 || !strings.Contains(got, want) {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestAliases: a file of a few hundred bytes cannot keep the reader busy.
func TestAliases(t *testing.T) {
	text := "kinds:\n  a-b: &k\n    driver:\n      sources: &s\n" + strings.Repeat("      - &x {type: oci}\n", 1)
	for range 3000 {
		text += "      - *x\n"
	}
	for i := range 300 {
		text += "  k" + strings.Repeat("x", i) + ": *k\n"
	}
	_, _, faults := Read([]byte(text), &file{})
	if got := Join(faults); !strings.Contains(got, "names its anchors too often") {
		t.Errorf("got %.200s", got)
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"logLevel: info\n", "kinds: {a-b: {driver: {sources: [{type: oci}]}}}\n", "a: &a [*a]", "x:\n\ty", "- - - a: b\n -c", "a: |\n  b\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := len(regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]").FindAll(data, -1)) + 2 // as YAML counts them
		var v file
		_, _, faults := Read(data, &v)
		for _, fault := range faults {
			if fault.Message == "" || fault.Line < 0 || fault.Line > lines {
				t.Errorf("%+v in %d lines", fault, lines)
			}
		}
	})
}
