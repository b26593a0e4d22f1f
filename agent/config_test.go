package agent

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

func TestReferenceConfigHoldsTheDefaults(t *testing.T) {
	data, err := os.ReadFile("../docs/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, problem := ParseConfig("docs/config.yaml", data)
	if problem != nil {
		t.Fatal(problem)
	}
	want, _ := ParseConfig("nothing", nil)
	got.Kinds, got.Prebuilt, got.Places = nil, nil, nil // the parts that have no default
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/config.yaml differs from the defaults (-defaults +file):\n%s", diff)
	}
}

// The file in the packages sets nothing, so that changed defaults reach hosts that nobody has configured.
func TestPackagedConfigSaysNothing(t *testing.T) {
	data, err := os.ReadFile("../packaging/packages/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, problem := ParseConfig("config.yaml", data)
	if problem != nil {
		t.Fatal(problem)
	}
	want, _ := ParseConfig("nothing", nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-defaults +file):\n%s", diff)
	}
	// Its examples are valid.
	var example strings.Builder
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "# "); ok && example.Len() > 0 || text == "kubernetes:\n" {
			example.WriteString(text)
		}
	}
	if c, problem := ParseConfig("the example", []byte(example.String())); problem != nil || c.Kubeconfig == "" ||
		len(c.Kinds) != 1 {
		t.Errorf("%+v, %v", c, problem)
	}
}

// The example of prebuilt sources is a comment, because it has no default. It must still be valid.
func TestReferenceConfigsExample(t *testing.T) {
	data, err := os.ReadFile("../docs/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "# prebuilt:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	text = "prebuilt:\n" + regexp.MustCompile(`(?m)^# `).ReplaceAllString(text, "")
	c, problem := ParseConfig("the example", []byte(text))
	if problem != nil {
		t.Fatal(problem)
	}
	if len(c.Prebuilt) != 2 || c.Prebuilt[0].Image == "" || c.Prebuilt[1].Path == "" {
		t.Errorf("%+v", c.Prebuilt)
	}
	got, problem := c.Override(map[string]*accel.Definition{"a-b": {
		Kind:   "a-b",
		Driver: accel.DriverDefinition{Sources: []accel.Source{{Type: accel.SourceBuild}}},
	}})
	if problem != nil || len(got["a-b"].Driver.Sources) != 3 || got["a-b"].Driver.Sources[2].Type != accel.SourceBuild {
		t.Errorf("%v %+v", problem, got["a-b"])
	}
}

// The example of a policy on signatures is a comment, too. The driver manager gets what it says.
func TestReferenceConfigsTrust(t *testing.T) {
	data, err := os.ReadFile("../docs/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "# trust:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	text = "trust:\n" + regexp.MustCompile(`(?m)^# `).ReplaceAllString(text, "")
	c, problem := ParseConfig("the example", []byte(text))
	if problem != nil {
		t.Fatal(problem)
	}
	want := accel.Trust{
		Keys: []string{"/etc/acceld/drivers.pub"}, Require: true,
		Identities: []accel.Identity{{Name: "ci@example.com", Authority: "/etc/acceld/signing-ca.pem"}},
	}
	h, err := host.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, (&Setup{Config: c, Host: h}).DriverOptions().Trust); diff != "" {
		t.Error(diff)
	}
}

// The words of docs/config.yaml need no quotes.
func TestConfigSwitch(t *testing.T) {
	for written, want := range map[string]string{
		"on": "on", "off": "off", "auto": "auto", "'on'": "on", "true": "on",
		"false": "off", "''": "auto",
	} {
		c, problem := ParseConfig("it", []byte("kubernetes: {enabled: "+written+"}"))
		if problem != nil || c.Kubernetes != want {
			t.Errorf("%s: %q, %v", written, c.Kubernetes, problem)
		}
	}
	for written, want := range map[string]bool{"on": true, "off": false, "'on'": true, "'off'": false, "''": true} {
		c, problem := ParseConfig("it", []byte("kubernetes: {policies: "+written+"}"))
		if problem != nil || c.Policies != want {
			t.Errorf("policies %s: %v, %v", written, c.Policies, problem)
		}
		c, problem = ParseConfig("it", []byte("kubernetes: {maintenance: "+written+"}"))
		if problem != nil || c.Maintenance != want {
			t.Errorf("maintenance %s: %v, %v", written, c.Maintenance, problem)
		}
		c, problem = ParseConfig("it", []byte("kubernetes: {taintOnRegression: "+written+"}"))
		if problem != nil || c.TaintOnRegression != (want && written != "''") {
			t.Errorf("taintOnRegression %s: %v, %v", written, c.TaintOnRegression, problem)
		}
	}
	for written, want := range map[string]bool{"on": true, "off": false, "''": false, "true": true} {
		c, problem := ParseConfig("it", []byte("kubernetes: {listAttributes: "+written+"}"))
		if problem != nil || c.ListAttributes != want {
			t.Errorf("listAttributes %s: %v, %v", written, c.ListAttributes, problem)
		}
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"unknown field", "nodde: a", `unknown field "nodde"`},
		{"duplicate key", "node: a\nnode: b", "line 2: node: is there twice"},
		{"not yaml", "node: [", "did not find"},
		{"wrong type", "resync: [1]", "resync"},
		{"word", "kubernetes: {taintOnRegression: always}", `kubernetes.taintOnRegression: "always"`},
		{"neither on nor off", "kubernetes: {listAttributes: auto}", `kubernetes.listAttributes: "auto" is not one of on, off`},
		{"duration", "resync: soon", `resync: "soon" is not a time such as 5m`},
		{"too short", "sampleEvery: 10ms", "sampleEvery: must be at least 1s"},
		{"reachable from outside", "endpoint: {listen: '0.0.0.0:9480'}", "not a loopback address"},
		{"remote without address", "endpoint: {remote: {tokens: true}}", "endpoint.remote.listen: is missing"},
		{
			"remote address", "endpoint: {remote: {listen: '9481', tokens: true}}",
			`endpoint.remote.listen: "9481" is not an address`,
		},
		{
			"remote host name", "endpoint: {remote: {listen: 'node:9481', tokens: true}}",
			`endpoint.remote.listen: "node:9481" is not an address`,
		},
		{"remote for nobody", "endpoint: {remote: {listen: ':9481'}}", "endpoint.remote: nobody would be let in"},
		{
			"remote half certificate", "endpoint: {remote: {listen: ':9481', tokens: true, key: /k}}",
			"endpoint.remote: certificate and key must be both there",
		},
		{
			"remote relative file", "endpoint: {remote: {listen: ':9481', clientCA: ca.crt}}",
			`endpoint.remote.clientCA: "ca.crt" is not an absolute path`,
		},
		{
			"remote clients", "endpoint: {remote: {listen: ':9481', tokens: true, clients: [a]}}",
			"endpoint.remote.clients: without clientCA",
		},
		{"remote option", "endpoint: {remote: {listen: ':9481', token: true}}", `unknown field "token"`},
		{"relative path", "stateDir: var", `stateDir: "var" is not an absolute path`},
		{"allocation", "kubernetes: {allocation: DRA}", `kubernetes.allocation: "DRA" is not one of devicePlugin, dra`},
		{"allocation of a kind", "kinds: {a: {allocation: both}}", `kinds.a.allocation: "both" is not one of`},
		{"resource", "kinds: {a: {resource: npu}}", `line 1: kinds.a.resource: "npu" has no domain`},
		{
			"too few replicas", "kinds: {a: {sharing: {rename: true}}}",
			"kinds.a.sharing.replicas: 0 is not from 1 to 256",
		},
		{
			"claims are shared otherwise", "kinds: {a: {allocation: dra, sharing: {replicas: 2}}}",
			"kinds.a.sharing: is for allocation devicePlugin",
		},
		{"policies", "kubernetes: {policies: maybe}", "not one of on, off"},
		{"maintenance", "kubernetes: {maintenance: maybe}", "kubernetes.maintenance: \"maybe\" is not one of on, off"},
		{"condition", "kinds: {a: {ignoreConditions: [Ready]}}", `kinds.a.ignoreConditions[0]: "Ready" is not one of`},
		{"switch", "kubernetes: {enabled: maybe}", "not one of auto, on, off"},
		{"memory", "build: {memory: 90}", `line 1: build.memory: 90 has no unit: write 90%`},
		{"memory share", "build: {memory: 120%}", `build.memory: "120%" is not from`},
		{"weight", "build: {cpuWeight: 0}", "build.cpuWeight: 0 is not from 1 to 10000"},
		{"jobs", "build: {jobs: -1}", "build.jobs: -1"},
		{"level", "logLevel: loud", "not one of debug"},
		{
			"prebuilt source", "prebuilt: [{type: build, path: /src}]",
			`prebuilt[0].type: "build" is not one of oci, bundle`,
		},
		{"prebuilt image", "prebuilt: [{type: oci, image: driver}]", `prebuilt[0].image: "driver" names no registry`},
		{
			"source of a kind", "kinds: {a-b: {driver: {sources: [{type: oci, image: r.example/x, digest: x}]}}}",
			`kinds.a-b.driver.sources[0].digest: "x" is not sha256:`,
		},
		{"trust key", "trust: {keys: [drivers.pub]}", `trust.keys[0]: "drivers.pub" is not an absolute path`},
		{"trust name", "trust: {identities: [{authority: /ca}]}", "trust.identities[0].name: is empty"},
		{"trust authority", "trust: {identities: [{name: x}]}", `trust.identities[0].authority: "" is not an absolute path`},
		{"trust in nobody", "trust: {require: true}", "trust.require: name a key or an identity"},
		{"trust of a kind", "kinds: {a: {driver: {trust: {require: false}}}}", `unknown field "trust"`},
		{
			"push without a signature",
			"{trust: {keys: [/k], require: true}, prebuilt: [{type: oci, image: r.example/x, push: true}]}",
			"prebuilt[0].push: a host has no key to sign with",
		},
		{"store", "store: {mib: -1}", "store: entries and mib must not be negative"},
		{
			"upgrade policy", "kinds: {a: {driver: {upgrade: {holders: shoot}}}}",
			`kinds.a.driver.upgrade.holders: "shoot" is not one of`,
		},
		{
			"upgrade timeout", "kinds: {a: {driver: {upgrade: {timeout: soon}}}}",
			`kinds.a.driver.upgrade.timeout: "soon"`,
		},
		{"upgrade by hand", "kinds: {a: {driver: {upgrade: {asked: 2026-01-02T03:04:05Z}}}}", "acceld driver upgrade"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problem := ParseConfig("c.yaml", []byte(c.text))
			if problem == nil {
				t.Fatal("accepted")
			}
			if problem.Reason != accel.ConfigInvalid || !strings.Contains(problem.Message, c.says) ||
				!strings.Contains(problem.Message, "c.yaml") {
				t.Errorf("got %v, want ConfigInvalid naming c.yaml and %q", problem, c.says)
			}
		})
	}
}

func TestOverride(t *testing.T) {
	defs := map[string]*accel.Definition{
		"a-one": {Kind: "a-one", Driver: accel.DriverDefinition{Version: "1", Modules: []accel.Module{{Name: "m"}}}},
		"a-two": {Kind: "a-two"},
	}
	no, yes := false, true
	c := Config{Kinds: map[string]accel.KindConfig{
		"a-one": {Driver: accel.KindDriverOverride{
			Version:    "2",
			Parameters: map[string]map[string]string{"m": {"p": "1"}},
			Upgrade:    &accel.UpgradePolicy{Holders: accel.HoldersWait}, Takeover: &yes,
			Sign: &accel.Signer{Key: "k"},
		}},
		"a-two": {Enabled: &no},
	}}
	got, problem := c.Override(defs)
	if problem != nil {
		t.Fatal(problem)
	}
	want := map[string]*accel.Definition{"a-one": {Kind: "a-one", Driver: accel.DriverDefinition{
		Version: "2",
		Modules: []accel.Module{{Name: "m", Parameters: map[string]string{"p": "1"}}},
		Upgrade: accel.UpgradePolicy{Holders: accel.HoldersWait}, Takeover: true, Sign: &accel.Signer{Key: "k"},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("override (-want +got):\n%s", diff)
	}
	if defs["a-one"].Driver.Version != "1" || defs["a-one"].Driver.Modules[0].Parameters != nil {
		t.Error("the built-in definition was changed")
	}
	for _, kinds := range []map[string]accel.KindConfig{
		{"a-three": {}},
		{"a-one": {Driver: accel.KindDriverOverride{Parameters: map[string]map[string]string{"q": {}}}}},
	} {
		if _, problem := (Config{Kinds: kinds}).Override(defs); problem == nil ||
			problem.Reason != accel.ConfigInvalid {
			t.Errorf("%v: got %v, want ConfigInvalid", kinds, problem)
		}
	}
}

func TestBuildMemory(t *testing.T) {
	for text, want := range map[string]int64{"": 800, "memory: 50%": 500, "memory: 1Gi": 1 << 30, "memory: none": 0} {
		c, problem := ParseConfig("c.yaml", []byte("build: {"+text+"}"))
		if problem != nil || c.Build.MemoryBytes(1000) != want {
			t.Errorf("%s: %d, %v, want %d", text, c.Build.MemoryBytes(1000), problem, want)
		}
	}
}

// TestAllocation: the kind's own options win over its definition, and the definition wins over the option for all
// kinds.
func TestAllocation(t *testing.T) {
	def := func(a accel.Allocation) map[string]*accel.Definition {
		return map[string]*accel.Definition{"a-b": {Kind: "a-b", Allocation: a}}
	}
	for _, c := range []struct{ kind, definition, all, want accel.Allocation }{
		{"", "", "", accel.AllocateByPlugin},
		{"", "", accel.AllocateByDRA, accel.AllocateByDRA},
		{"", accel.AllocateByPlugin, accel.AllocateByDRA, accel.AllocateByPlugin},
		{accel.AllocateByDRA, accel.AllocateByPlugin, "", accel.AllocateByDRA},
	} {
		config := Config{Allocation: c.all, Kinds: map[string]accel.KindConfig{"a-b": {Allocation: c.kind}}}
		got, problem := config.Override(def(c.definition))
		if problem != nil || got["a-b"].AllocatedBy() != c.want {
			t.Errorf("%+v: %v %s", c, problem, got["a-b"].AllocatedBy())
		}
	}
}

// TestSharing: the kind's own options replace those of its definition.
func TestSharing(t *testing.T) {
	def := map[string]*accel.Definition{"a-b": {Kind: "a-b", Resource: "a/b", Sharing: &accel.Sharing{
		Replicas: 4,
		Rename:   true,
	}}}
	for text, want := range map[string]string{
		"{}": "4 a/b.shared", "{sharing: {replicas: 1}}": "1 a/b",
		"{sharing: {replicas: 8}}": "8 a/b",
	} {
		c, problem := ParseConfig("c.yaml", []byte("kinds: {a-b: "+text+"}"))
		if problem != nil {
			t.Fatal(problem)
		}
		out, problem := c.Override(def)
		if problem != nil || fmt.Sprint(out["a-b"].Replicas(), " ", out["a-b"].Offered()) != want {
			t.Errorf("%s: %v, %d of %q, want %s", text, problem, out["a-b"].Replicas(), out["a-b"].Offered(), want)
		}
	}
}

// TestResource: the configuration sets the name that pods request, the definition sets the CDI kind, and no two kinds
// have the same name.
func TestResource(t *testing.T) {
	defs := map[string]*accel.Definition{"a-b": {Kind: "a-b", Resource: "a/b"}, "c-d": {Kind: "c-d", Resource: "c/d"}}
	for text, want := range map[string]string{
		"a-b: {}":              "a/b a/b",
		"a-b: {resource: x/y}": "x/y a/b",
		"a-b: {resource: c/d}": `kinds.c-d: the resource "c/d" is that of kind "a-b"`,
		"{a-b: {resource: c/d}, c-d: {enabled: false}}":              "c/d a/b",
		"{a-b: {resource: c/d}, c-d: {resource: a/b}}":               "c/d a/b",
		"a-b: {resource: c/d, sharing: {replicas: 2, rename: true}}": "c/d.shared a/b",
		"a-b: {resource: c/" + strings.Repeat("n", 60) +
			", sharing: {replicas: 2, rename: true}}": `.shared" is longer than 63 characters`,
	} {
		if !strings.HasPrefix(text, "{") {
			text = "{" + text + "}"
		}
		c, problem := ParseConfig("c.yaml", []byte("kinds: "+text))
		if problem != nil {
			t.Fatal(problem)
		}
		out, problem := c.Override(defs)
		got := fmt.Sprint(problem)
		if problem == nil {
			got = out["a-b"].Offered() + " " + out["a-b"].Resource
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
