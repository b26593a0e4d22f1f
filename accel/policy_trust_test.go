package accel

import (
	"reflect"
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
		Nodes: []NodeSource{{Glob: "accel/*"}, {Make: &MadeNode{Path: "/dev/y"}}},
		Container: Edits{
			Env: []string{"A=1"}, Mounts: []Mount{{HostPath: "/", ContainerPath: "/host"}}, Nodes: []string{"/dev/kfd"},
			Libraries: []Libraries{{Path: "/l", Names: []string{"libx.so"}}},
		},
		Steps: map[Published]StateSteps{
			DevicePlugin: {Before: []CustomStep{{Name: "w", Wait: &WaitStep{File: "/f"}}}},
			DriverContainer: {
				Before: []CustomStep{{Name: "r", Run: &RunStep{Argv: []string{"sh"}}}},
				After: []CustomStep{
					{Name: "f", Validate: &ValidateStep{File: "state", Want: "ok"}},
					{Name: "v", Validate: &ValidateStep{Argv: []string{"sh"}}},
				},
			},
		},
		Partitions: &Partitions{Nodes: []NodeSource{{Make: &MadeNode{Path: "/dev/z"}}}, Told: true},
	}
	want := []string{
		"driver.makeNodes: makes device nodes", "driver.sign: signs with a key of the host",
		"driver.sources: brings kernel modules", "nodes[1].make: makes device nodes",
		"container.mounts: mounts files of the host", "check: writes to the device",
		"steps.driver-container.before[0].run: runs a program",
		"steps.driver-container.after[1].validate.argv: runs a program",
		"partitions.nodes[0].make: makes device nodes", "probe: runs a program",
	}
	if diff := cmp.Diff(want, def.Privileged()); diff != "" {
		t.Errorf("of a definition (-want +got):\n%s", diff)
	}
	k := KindConfig{Resource: "a.b/c", Driver: KindDriverOverride{
		Version: "2", Sources: []Source{{Type: SourceOCI}}, Sign: &Signer{},
		Parameters: map[string]map[string]string{"m": {"a": "1"}},
	}}
	want = []string{"driver.sources: brings kernel modules", "driver.sign: signs with a key of the host"}
	if diff := cmp.Diff(want, k.Privileged()); diff != "" {
		t.Errorf("of an override (-want +got):\n%s", diff)
	}
	k.Driver.Sources, k.Driver.Sign = []Source{}, nil
	if got := k.Privileged(); got != nil {
		t.Errorf("a list without entries needs %q", got)
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
			c.trust.Definition(plain) == "", c.trust.Definition(rooted) == "", c.trust.Override(override) == "",
			c.trust.Override(sourced) == "",
		}
		if diff := cmp.Diff([]bool{c.plain, c.rooted, c.override, c.sourced}, got); diff != "" {
			t.Errorf("%q takes (-want +got):\n%s", c.trust, diff)
		}
	}
}

// TestEveryFieldIsDecided counts the fields of a definition and of an override that the cluster may set on every host.
// Whoever adds a field decides whether it needs the tag "privileged", and then changes the number.
func TestEveryFieldIsDecided(t *testing.T) {
	got := map[string]int{}
	undecided(got, reflect.TypeFor[Definition]())
	undecided(got, reflect.TypeFor[KindConfig]())
	want := map[string]int{
		"Belonging": 5, "Capacity": 5, "CustomStep": 6, "Definition": 28, "DriverDefinition": 8,
		"Edits": 4, "HealthSource": 6, "KindConfig": 7, "KindDriverOverride": 4, "Layout": 2,
		"Libraries": 3, "Limit": 7, "LogRule": 4, "LogStep": 4, "Match": 4, "MetricSource": 8,
		"Module": 6, "NodeSource": 4, "Partitions": 14, "Profile": 5, "Share": 4, "Sharing": 3,
		"StateSteps": 2, "UpgradePolicy": 6, "ValidateStep": 4, "Verdict": 4, "WaitStep": 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields without privileges, by type (-decided +there are):\n%s", diff)
	}
}

func undecided(into map[string]int, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		undecided(into, t.Elem())
	case reflect.Struct:
		if _, done := into[t.Name()]; done || t.PkgPath() != reflect.TypeFor[Definition]().PkgPath() {
			return
		}
		into[t.Name()] = 0
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("privileged") == "" {
				into[t.Name()]++
				undecided(into, t.Field(i).Type)
			}
		}
	}
}
