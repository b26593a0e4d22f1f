package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestFindingsFit: problem, evidence, what to do and who must act are in columns if there is room, and otherwise
// below each other.
func TestFindingsFit(t *testing.T) {
	findings := []finding{
		found("configuration", "/etc/acceld/config.yaml", nil),
		found("qemu-edu driver", "", &accel.Problem{
			Reason:  accel.OtherModuleLoaded,
			Message: `module "edu" is loaded in version "1.0", wanted is "1.0.0"`, Tried: []string{"store: none"},
		}),
		ill(accel.Accelerator{ID: "0000:00:05.0", Health: accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceFault, Action: accel.ActionResetDevice, Message: "fault 79",
			Evidence: "edu 0000:00:05.0: fault 79",
		}}),
		{About: "hooks", Reason: accel.HooksUnread},
		{About: "qemu-edu peers", Message: "slow", Remedy: "Boot.", Actor: accel.ActorOperator},
	}
	for width, want := range map[int]string{
		100: `configuration    ok                 /etc/acceld/config.yaml
qemu-edu driver  OtherModuleLoaded  module "edu" is loaded in version "1.0", wanted is "1.0.0"
    tried    store: none
    do       Unload it when it is not in use (` + "`acceld driver unload`" + `); acceld does not touch a
             driver it did not choose. (node operator)
0000:00:05.0     DeviceFault        unhealthy: fault 79
    seen     edu 0000:00:05.0: fault 79
    do       reset it, or bind its driver again: acceld reset 0000:00:05.0 (hardware)
hooks            HooksUnread
qemu-edu peers   advice             slow
    do       Boot. (node operator)
`,
		60: `configuration  ok
    /etc/acceld/config.yaml
qemu-edu driver  OtherModuleLoaded
    module "edu" is loaded in version "1.0", wanted is
        "1.0.0"
    tried    store: none
    do       Unload it when it is not in use (` + "`acceld driver" + `
             unload` + "`" + `); acceld does not touch a driver it did
             not choose. (node operator)
0000:00:05.0  DeviceFault
    unhealthy: fault 79
    seen     edu 0000:00:05.0: fault 79
    do       reset it, or bind its driver again: acceld
             reset 0000:00:05.0 (hardware)
hooks  HooksUnread
qemu-edu peers  advice
    slow
    do       Boot. (node operator)
`,
	} {
		s := &tableWriter{width: width}
		printFindings(s, findings)
		if diff := cmp.Diff(want, s.String()); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", width, diff)
		}
		for line := range strings.Lines(s.String()) {
			if visible(strings.TrimRight(line, "\n")) > width {
				t.Errorf("at %d: %q", width, line)
			}
		}
	}
}
