package vendors

import (
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestOverrideFaults changes one thing in a good definition of a driver that knows no ids.
func TestOverrideFaults(t *testing.T) {
	text := strings.NewReplacer("  binds: npu\n", "  binds: vfio-pci\n  override: true\n",
		"- glob: accel/npu*", "- glob: /sys/class/vfio/{{.IOMMUGroup}}").Replace(good)
	def, faults := Read([]byte(text))
	if len(faults) > 0 || !def.Driver.Override || !def.UsesGroup() {
		t.Fatal(faults)
	}
	for _, want := range []string{
		"driver.override: binds devices to a driver that does not know them",
		"nodes[0].glob: gives out nodes of other devices",
	} {
		if all := def.Privileged(); !slices.Contains(all, want) {
			t.Errorf("%q is not privileged: %q", want, all)
		}
	}
	if why := accel.PolicyTrustData.Definition(def, true); !strings.Contains(why, "driver.override") {
		t.Errorf("the host takes it from a policy: %q", why)
	}
	if def, faults := Read([]byte(good + "functions: {count: 4, autoprobe: false}\n")); len(faults) > 0 ||
		def.Functions.Count != 4 || *def.Functions.Autoprobe {
		t.Error(faults)
	}
	for text, want := range map[string]string{
		"{count: -1}":          "functions.count: -1 is not from 0 to 65535",
		"{count: many}":        "functions.count: ",
		"4":                    "functions: ",
		"{count: 1, probe: x}": "functions",
	} {
		if _, faults := Read([]byte(good + "functions: " + text + "\n")); len(faults) == 0 ||
			!strings.HasPrefix(faults[0].String(), want) {
			t.Errorf("functions: %s: %v", text, faults)
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{"override: true", "override: vfio-pci", `driver.override: `},
		{"    device: \"0100\"", "    device: \"0100\"\n    driver: igb", `match[0].driver: with driver.override a device`},
		{"driver:\n", "except:\n  - driver: vfio-pci\ndriver:\n", `except[0].driver: with driver.override a device`},
		{"{{.IOMMUGroup}}", "{{.Group}}", `nodes[0].glob: "/sys/class/vfio/{{.Group}}": only {{.Address}} and`},
		{"/sys/class/vfio/", "/dev/vfio/", `nodes[0].glob: "/dev/vfio/{{.IOMMUGroup}}" is not below /sys/`},
	} {
		if !strings.Contains(text, c.old) {
			t.Fatalf("nothing to change: %q", c.old)
		}
		_, faults := Read([]byte(strings.Replace(text, c.old, c.new, 1)))
		if len(faults) == 0 || !strings.Contains(faults[0].String(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, faults, c.want)
		}
	}
}
