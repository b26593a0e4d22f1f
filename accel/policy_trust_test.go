package accel

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrivileged sets every field that needs the host's trust, and one that does not beside each.
func TestPrivileged(t *testing.T) {
	def := &Definition{
		Kind: "a-b", Check: &Check{File: "f"}, Probe: &Probe{Argv: []string{"p"}},
		Driver: DriverDefinition{
			Modules: []Module{{Name: "m", Parameters: map[string]string{"a": "1"}}}, Binds: "m",
			Conflicts: []string{"x"}, Takeover: true, KABI: "weak", Upgrade: UpgradePolicy{Holders: HoldersEvict},
			MakeNodes: []MadeNode{{Path: "/dev/x"}}, Sign: &Signer{Key: "/k"}, Sources: []Source{{Type: SourceBuild}},
		},
		Nodes: []NodeSource{
			{Glob: "accel/*", Siblings: []string{"/sys/class/accel/ctl{{.Number}}", "/sys/class/misc/kvm"}},
			{Make: &MadeNode{Path: "/dev/y"}},
			{Glob: "/sys/class/nvme/*"},
		},
		Serial: "serial|/sys/class/iscsi_session/session1/password", UUID: "/proc/driver/x/{{.Address}}/uuid#UUID",
		Container: Edits{
			Env: []string{"A=1"}, Mounts: []Mount{{HostPath: "/", ContainerPath: "/host"}}, Nodes: []string{"/dev/kfd"},
			OptionalNodes: []string{"/dev/sda"},
			Libraries:     []Libraries{{Path: "/l", Names: []string{"libx.so"}}},
		},
		Steps: map[Published]StateSteps{
			DevicePlugin: {Before: []CustomStep{
				{Name: "f", Wait: &WaitStep{File: "/f"}},
				{Name: "n", Wait: &WaitStep{Node: "/dev/../f"}},
				{Name: "s", Wait: &WaitStep{Socket: "/s"}},
				{Name: "d", Wait: &WaitStep{Node: "/dev/d"}},
				{Name: "u", Wait: &WaitStep{Unit: "u"}},
				{Name: "k", WaitForLogs: &LogStep{Kernel: true}},
				{Name: "l", WaitForLogs: &LogStep{File: "/etc/shadow"}},
				{Name: "j", WaitForLogs: &LogStep{Unit: "u"}},
			}},
			DriverContainer: {
				Before: []CustomStep{{Name: "r", Run: &RunStep{Argv: []string{"sh"}}}},
				After: []CustomStep{
					{Name: "f", Validate: &ValidateStep{File: "state", Want: "ok"}},
					{Name: "v", Validate: &ValidateStep{Argv: []string{"sh"}}},
				},
			},
		},
		Partitions: &Partitions{
			Find: "/dev/*", Nodes: []NodeSource{{Make: &MadeNode{Path: "/dev/z"}}}, Told: true,
			NumberFrom: "/sys/n", Profile: "p", Of: &Belonging{File: "/sys/f", Device: "/sys/d", Domain: "/sys/e"},
		},
		Handover: &Handover{
			Leftovers: LeftoversKill, Scrub: ScrubProgram, File: "f", Argv: []string{"p"}, Beside: []string{"u.service"},
		},
		VFIO:     &VFIO{},
		Settings: []Setting{{Name: "a", File: "f", MinFile: "g"}, {Name: "b"}},
		Health:   []HealthSource{{File: "/sys/h"}, {File: "h"}}, Metrics: []MetricSource{{File: "/sys/m"}, {File: "m"}},
		Capacity: []Capacity{{File: "/sys/c"}, {File: "c"}},
	}
	want := []string{
		"driver.conflicts: takes devices from other drivers", "driver.makeNodes: makes device nodes",
		"driver.takeover: takes devices from other drivers", "driver.sign: signs with a key of the host",
		"driver.sources: brings kernel modules",
		"nodes[0].siblings[1]: gives out nodes of other devices", "nodes[1].make: makes device nodes",
		"nodes[2].glob: gives out nodes of other devices", "container.mounts: mounts files of the host",
		"container.nodes: gives out nodes of other devices", "container.optionalNodes: gives out nodes of other devices",
		"check: writes to the device or loads a library",
		"steps.device-plugin.before[0].wait.file: looks for a file of the host",
		"steps.device-plugin.before[1].wait.node: looks for a file of the host",
		"steps.device-plugin.before[2].wait.socket: looks for a file of the host",
		"steps.device-plugin.before[6].waitForLogs.file: reads a file of the host",
		"steps.device-plugin.before[7].waitForLogs.unit: reads a log of the host",
		"steps.driver-container.before[0].run: runs a program",
		"steps.driver-container.after[1].validate.argv: runs a program",
		"capacity[0].file: reads a file of the host", "partitions.find: looks for files of the host",
		"partitions.numberFrom: reads a file of the host", "partitions.of.file: reads a file of the host",
		"partitions.of.device: reads a file of the host", "partitions.of.domain: reads a file of the host",
		"partitions.nodes[0].make: makes device nodes", "serial: reads a file of the host",
		"handover.leftovers: ends processes", "handover.file: writes to the device", "handover.argv: runs a program",
		"handover.beside: lets programs keep devices open", "settings[0].file: writes to the device",
		"vfio: gives whole PCI functions away",
		"health[0].file: reads a file of the host", "metrics[0].file: reads a file of the host",
		"probe: runs a program",
	}
	if diff := cmp.Diff(want, def.Privileged()); diff != "" {
		t.Errorf("of a definition (-want +got):\n%s", diff)
	}
	on, off := true, false
	k := KindConfig{Resource: "a.b/c", Driver: KindDriverOverride{
		Version: "2", Takeover: &on, Sources: []Source{{Type: SourceOCI}}, Sign: &Signer{},
		Parameters: map[string]map[string]string{"m": {"a": "1"}},
	}, VFIO: &VFIO{Ask: AskByClaim}, Settings: map[string]SettingValue{"a": "1"}}
	want = []string{
		"driver.sources: brings kernel modules", "driver.takeover: takes devices from other drivers",
		"driver.sign: signs with a key of the host", "vfio: gives whole PCI functions away",
	}
	if diff := cmp.Diff(want, k.Privileged()); diff != "" {
		t.Errorf("of an override (-want +got):\n%s", diff)
	}
	k.Driver.Sources, k.Driver.Sign, k.Driver.Takeover, k.VFIO = []Source{}, nil, &off, nil
	if got := k.Privileged(); got != nil {
		t.Errorf("a list without entries and a switch that is off need %q", got)
	}
}

func TestPolicyTrust(t *testing.T) {
	plain := &Definition{Kind: "a-b", Driver: DriverDefinition{Modules: []Module{{Name: "m"}}}}
	rooted := &Definition{Kind: "a-b", Probe: &Probe{Argv: []string{"p"}}}
	override := KindConfig{Driver: KindDriverOverride{Version: "2"}}
	sourced := KindConfig{Driver: KindDriverOverride{Sources: []Source{{Type: SourceBuild}}}}
	for _, c := range []struct {
		trust                            PolicyTrust
		plain, rooted, override, sourced bool
	}{
		{PolicyTrustOff, false, false, true, false},
		{PolicyTrustData, true, false, true, false},
		{PolicyTrustAll, true, true, true, true},
		{"", true, false, true, false}, // nobody has read a configuration
	} {
		got := []bool{
			c.trust.Definition(plain, true) == "", c.trust.Definition(rooted, true) == "", c.trust.Override(override) == "",
			c.trust.Override(sourced) == "",
		}
		if diff := cmp.Diff([]bool{c.plain, c.rooted, c.override, c.sourced}, got); diff != "" {
			t.Errorf("%q takes (-want +got):\n%s", c.trust, diff)
		}
	}
}

// TestPinnedDefinitions: whoever may copy text into the status of a policy brings nothing privileged to any host, and
// what he brings is confined.
func TestPinnedDefinitions(t *testing.T) {
	storage := func() *Definition { return &Definition{Kind: "a-b", Match: []Match{{Vendor: "144d", Class: "0108"}}} }
	for _, c := range []struct {
		trust  PolicyTrust
		pinned bool
		def    *Definition
		says   string
	}{
		{PolicyTrustAll, true, &Definition{Probe: &Probe{}}, ""},
		{PolicyTrustAll, false, &Definition{Probe: &Probe{}}, "without a digest in definitionsFrom"},
		{PolicyTrustAll, true, storage(), ""},
		{PolicyTrustAll, false, storage(), "match[0].class: recognises what the host itself needs"},
		{PolicyTrustData, true, storage(), "match[0].class: recognises what the host itself needs"},
		{PolicyTrustAll, false, &Definition{}, ""},
		{PolicyTrustData, true, &Definition{}, ""},
	} {
		got := c.trust.Definition(c.def, c.pinned)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s, pinned %v: %q, want %q", c.trust, c.pinned, got, c.says)
		}
		if whole := c.trust == PolicyTrustAll && c.pinned; c.def.Confined == whole {
			t.Errorf("%s, pinned %v: confined %v", c.trust, c.pinned, c.def.Confined)
		}
	}
}

func TestConfinedRecognises(t *testing.T) {
	def := &Definition{Match: []Match{{Vendor: "1234", Device: "0001"}}}
	for class, want := range map[string]bool{
		"010802": false, "020000": false, "060400": false, "0c0330": false, "050200": false, "080501": false, // of a host
		"030200": true, "120000": true, "0b4000": true, "058000": true, "088000": true, "00ff00": true, "": true,
	} {
		d := PCIDevice{Vendor: "1234", Device: "0001", Class: class}
		for _, def.Confined = range []bool{false, true} {
			if got := def.Recognises(d); got != (want || !def.Confined) {
				t.Errorf("class %q, confined %v: %v", class, def.Confined, got)
			}
		}
	}
}

// TestPins: a digest in the policy decides which text of a config map is taken.
func TestPins(t *testing.T) {
	const right, wrong = "sha256:98cf1e3b3f158410a2756bc324ac88173f2fd330ad56140295d375ca0020f8c7", "sha256:00"
	n := NamedDefinition{Name: "defs/a.yaml", Text: "kind: a-b\n"}
	for _, c := range []struct {
		from                   []DefinitionSource
		named, pinned, settled bool
	}{
		{nil, false, false, true},
		{[]DefinitionSource{{ConfigMap: "defs", Key: "b.yaml"}, {ConfigMap: "def"}}, false, false, true},
		{[]DefinitionSource{{ConfigMap: "defs", Key: "a.yaml"}}, true, false, true},
		{[]DefinitionSource{{ConfigMap: "defs"}}, true, false, true},
		{[]DefinitionSource{{ConfigMap: "defs", Key: "a.yaml", Digest: right}}, true, true, true},
		{[]DefinitionSource{{ConfigMap: "defs"}, {ConfigMap: "defs", Key: "a.yaml", Digest: right}}, true, true, true},
		{[]DefinitionSource{{ConfigMap: "defs", Key: "a.yaml", Digest: wrong}}, true, false, false},
		{[]DefinitionSource{{ConfigMap: "defs"}, {ConfigMap: "defs", Key: "a.yaml", Digest: wrong}}, true, false, false},
	} {
		p := Policy{Spec: PolicySpec{DefinitionsFrom: c.from}, Named: []NamedDefinition{n}}
		pinned, why := p.Spec.Pins(n)
		if got := p.Spec.Names(n.Name); got != c.named || pinned != c.pinned || p.Settled() != c.settled ||
			(why == "") != c.settled {
			t.Errorf("%+v: named %v, pinned %v, settled %v, %q", c.from, got, pinned, p.Settled(), why)
		}
	}
}

// TestEveryFieldIsDecided counts the fields of a definition and of an override that the cluster may set on every host.
// Whoever adds a field decides whether it needs the tag "privileged", and then changes the number. A field with the tag
// "unless" is decided by its text.
func TestEveryFieldIsDecided(t *testing.T) {
	got, rules := map[string]int{}, map[string]string{}
	undecided(got, rules, reflect.TypeFor[Definition]())
	undecided(got, rules, reflect.TypeFor[KindConfig]())
	want := map[string]int{
		"Belonging": 2, "Capacity": 4, "CustomStep": 6, "Definition": 32, "DriverDefinition": 7,
		"Edits": 3, "Handover": 3, "HealthSource": 5, "KindConfig": 12, "KindDriverOverride": 4, "Layout": 2,
		"Libraries": 4, "Limit": 7, "LogRule": 4, "LogStep": 3, "Making": 3, "Match": 5, "MetricSource": 7,
		"Module": 6, "NodeSource": 2, "OwnState": 3, "Partitions": 12, "Profile": 6, "Programs": 2, "Repair": 6,
		"Setting": 11,
		"Share":   4, "ShareOf": 5, "Sharing": 4,
		"StateSteps": 2, "Unrequested": 2, "UpgradePolicy": 6, "Usage": 2, "ValidateStep": 3, "Verdict": 4, "WaitStep": 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields without privileges, by type (-decided +there are):\n%s", diff)
	}
	byText := map[string]string{
		"Belonging.device": "own", "Belonging.domain": "own", "Belonging.file": "own", "Capacity.file": "own",
		"Definition.fabric": "own", "Definition.model": "own", "Definition.serial": "own", "Definition.uuid": "own",
		"HealthSource.file": "own", "MetricSource.file": "own", "NodeSource.glob": "own",
		"NodeSource.siblings": "numbered", "Partitions.find": "own", "Partitions.numberFrom": "own",
		"Partitions.profile": "own", "ValidateStep.file": "own", "WaitStep.node": "dev",
	}
	if diff := cmp.Diff(byText, rules); diff != "" {
		t.Errorf("fields whose text decides (-decided +there are):\n%s", diff)
	}
}

func undecided(into map[string]int, rules map[string]string, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		undecided(into, rules, t.Elem())
	case reflect.Struct:
		if _, done := into[t.Name()]; done || t.PkgPath() != reflect.TypeFor[Definition]().PkgPath() {
			return
		}
		into[t.Name()] = 0
		for f := range t.Fields() {
			switch rule := f.Tag.Get("unless"); {
			case f.Tag.Get("privileged") == "":
				into[t.Name()]++
				undecided(into, rules, f.Type)
			case rule != "":
				rules[t.Name()+"."+FieldName(f)] = rule
			}
		}
	}
}
