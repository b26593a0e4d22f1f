package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// Test33_Repair: with `repair: {reset: idle}` a device that needs a reset gets one as soon as nobody has it, while its
// neighbours compute; as often as allowed, and not if most devices are ill at once. An agent that is killed in between
// does not begin to count again.
func Test33_Repair(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 3})
	c.store(stage.Version)
	const limit = 6
	c.config(fmt.Sprintf("kinds:\n  qemu-edu:\n    repair: {reset: idle, attempts: %d}\n", limit))
	c.start()
	m := c.await("agent started", building, healthy(3))
	const device = "0000:01:00.0"
	node := m.Have[stage.Kind].Accelerators[0].Nodes[0].Path
	neighbour := m.Have[stage.Kind].Accelerators[1].Nodes[0].Path
	c.sh("systemd-run --unit=neighbour edu-check -devices $1 -hold 2h", neighbour)

	// A holder that computes could fail with the fault and exit.
	c.sh(`systemd-run --unit=holder sh -c 'exec sleep 2h 9<>"$1"' sh "$1"`, node)
	c.until("somebody has it", `ls -l /proc/$(systemctl show -P MainPID holder)/fd | grep -q "$1"`, node)
	c.sh(stage.Sicken, device)
	c.await("faulty -> waits for its holder", soon, repaired(accel.RepairWaits, "sleep (pid "))
	c.Logf("acceld status:\n%s", c.sh("acceld status || true"))
	c.sh("systemctl stop holder")
	c.await("nobody has it -> reset, proven, offered", soon, healthy(3))

	for i, file := range stage.ResetSteps(device) {
		c.sh(stage.KillAt, file)
		c.sh(stage.Sicken, device)
		c.until("the agent is killed before "+file, "! systemctl is-active -q killer")
		c.await("killed -> offered", soon, func(m accel.Machine) bool { return healthy(3)(m) && isIn(m, accel.Healthy, "") })
		if used := resets(c, device); used < i+2 {
			c.Errorf("%d resets are on record, want %d or more", used, i+2)
		}
	}
	givenUp := repaired(accel.RepairGivenUp, fmt.Sprintf("reset %d times", limit))
	for over := false; !over; {
		before := c.sh("acceld history $1", device)
		c.sh(stage.Sicken, device)
		c.until("ill again -> on record", `test "$(acceld history $1)" != "$2"`, device, before)
		c.await("ill again -> reset and offered, or given up", soon, func(m accel.Machine) bool {
			over = givenUp(m)
			return over || healthy(3)(m) && isIn(m, accel.Healthy, "")
		})
	}
	c.Logf("acceld history:\n%s", c.sh("acceld history $1", device))
	c.start()
	c.await("another agent -> still given up", soon, repaired(accel.RepairGivenUp, ""))
	c.sh("acceld reset $1", device)
	c.await("reset by hand -> offered", soon, healthy(3))

	const third = "0000:03:00.0"
	c.sh(stage.Sicken, device)
	c.await("given up -> the others are offered", soon, healthy(2))
	c.sh(stage.Sicken, third)
	c.await("two of three are ill -> neither is reset", soon, func(m accel.Machine) bool {
		a := m.Have[stage.Kind].Accelerators[2]
		return a.Repair != nil && a.Repair.State == accel.RepairGivenUp &&
			strings.Contains(a.Repair.Message, "2 of 3 devices")
	})
	if state := c.sh("systemctl show -P ActiveState neighbour; cat /sys/bus/pci/devices/0000:02:00.0/errors"); state !=
		"active\n0" {
		c.Errorf("who computes on the neighbour is %q", state)
	}
}

// repaired is a predicate for await: what is done about the first device.
func repaired(state accel.RepairState, text string) func(accel.Machine) bool {
	return func(m accel.Machine) bool {
		r := m.Have[stage.Kind].Accelerators[0].Repair
		return r != nil && r.State == state && strings.Contains(r.String(), text)
	}
}

// resets is how many resets of a device are on record.
func resets(c *scene, device string) int {
	c.Helper()
	return strings.Count(c.sh("acceld history $1", device), "by acceld")
}
