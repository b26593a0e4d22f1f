package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// bindings are the drivers' links of both devices: each binding has another inode number.
const bindings = `stat -c %i /sys/bus/pci/devices/0000:01:00.0/driver /sys/bus/pci/devices/0000:02:00.0/driver 2>&1`

// killed runs a reset under strace that ends it as kill -9 does when it is about to write to $2.
const killed = `strace -f -qq -o /dev/null -e signal=none -P "$2" -e trace=write -e inject=write:signal=KILL:when=1 acceld reset "$1" 2>&1`

// lacking counts how often the kind was without its driver.
const lacking = `journalctl -q -u acceld.service -o cat | grep -c 'to=driver-missing' || true`

// Test28_Reset: a device is ill until its driver is bound again. `acceld reset` refuses while somebody has it and says
// who, then mends it, while its neighbour computes on; killed at whatever step, it leaves nothing that the agent, or
// the next one, does not put right.
func Test28_Reset(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 2})
	c.store(stage.Version)
	c.start()
	const device = "0000:01:00.0"
	m := c.await("agent started", building, healthy(2))
	if methods := c.sh("cat /sys/bus/pci/devices/$1/reset_method", device); methods != "bus" {
		t.Fatalf("the kernel resets it by %q, want bus", methods)
	}
	nodes := [2]string{}
	for i, a := range m.Have[stage.Kind].Accelerators {
		nodes[i] = a.Nodes[0].Path
	}
	c.sh("systemd-run --unit=neighbour edu-check -devices $1 -hold 2h", nodes[1])
	c.sh("echo dead > /sys/bus/pci/devices/$1/inject_error; echo none > /sys/bus/pci/devices/$1/inject_error", device)
	c.await("what only a new binding ends", soon, func(m accel.Machine) bool {
		return isIn(m, accel.Unhealthy, accel.DeviceFault) &&
			m.Have[stage.Kind].Accelerators[0].Health.Action == accel.ActionResetDevice
	})
	for _, ask := range []string{"acceld status", "acceld doctor"} {
		if out, _ := c.says(ask); !strings.Contains(out, "acceld reset "+device) {
			t.Errorf("%s does not say what to do:\n%s", ask, out)
		}
	}
	c.sh("systemd-run --unit=holder edu-check -devices $1 -hold 2h", nodes[0])
	c.until("somebody has it", `ls -l /proc/$(systemctl show -P MainPID holder)/fd | grep -q "$1"`, nodes[0])
	before, lacked := c.sh(bindings), c.sh(lacking)
	for _, flag := range []string{"", " --dry-run"} {
		out, status := c.says("acceld reset "+device+flag+" 2>&1", device)
		if status != 1 || !strings.Contains(out, `device "`+device+`" is in use by edu-check (pid `) ||
			!strings.Contains(out, string(accel.InUse)) {
			t.Errorf("reset%s under a holder: status %d, %s", flag, status, out)
		}
	}
	if now := c.sh(bindings); now != before {
		t.Errorf("a reset that was refused has bound a driver again:\n%s\nwas\n%s", now, before)
	}
	c.sh("systemctl stop holder")
	t.Logf("acceld reset --dry-run:\n%s", c.sh("acceld reset --dry-run $1", device))
	out := c.sh("acceld reset $1", device)
	t.Logf("acceld reset:\n%s", out)
	if !strings.HasPrefix(out, device+": reset (bus), bound to edu, in ") || !strings.HasSuffix(out, ": healthy") {
		t.Errorf("it said %q", out)
	}
	c.await("reset -> both usable", soon, func(m accel.Machine) bool {
		return healthy(2)(m) && isIn(m, accel.Healthy, "")
	})
	c.neighbour(before)
	if now := c.sh(lacking); now != lacked {
		t.Errorf("the kind was without its driver %s times, %s before", now, lacked)
	}
	c.killedResets(device, nodes[0], before)
}

// neighbour looks that the other device computes on, with the driver that it had.
func (c *scene) neighbour(before string) {
	c.Helper()
	_, was, _ := strings.Cut(before, "\n")
	if _, now, _ := strings.Cut(c.sh(bindings), "\n"); now != was {
		c.Errorf("the other device was bound again: %s, was %s", now, was)
	}
	if state := c.sh("systemctl show -P ActiveState neighbour; cat /sys/bus/pci/devices/0000:02:00.0/errors"); state !=
		"active\n0" {
		c.Errorf("who computes on the other device is %q", state)
	}
}

// killedResets kills the command before it unbinds, resets and binds, under an agent and without one.
func (c *scene) killedResets(device, node, before string) {
	c.Helper()
	for _, file := range []string{
		"/sys/bus/pci/drivers/edu/unbind", "/sys/bus/pci/devices/" + device + "/reset",
		"/sys/bus/pci/drivers/edu/bind",
	} {
		c.sh("echo dead > /sys/bus/pci/devices/$1/inject_error; echo none > /sys/bus/pci/devices/$1/inject_error",
			device)
		c.await("ill again", soon, healthy(1))
		if out, status := c.says(killed, device, file); status == 0 {
			c.Errorf("not killed before %s: %s", file, out)
		}
		if strings.HasSuffix(file, "unbind") {
			c.await("killed before it unbinds -> as it was", soon, func(m accel.Machine) bool {
				return healthy(1)(m) && isIn(m, accel.Unhealthy, accel.DeviceFault)
			})
			c.sh("acceld reset $1", device)
		}
		c.await(fmt.Sprintf("killed before %s -> both usable", file), soon, func(m accel.Machine) bool {
			return healthy(2)(m) && isIn(m, accel.Healthy, "")
		})
	}
	c.halt()
	if out, status := c.says(killed, device, "/sys/bus/pci/drivers/edu/bind"); status == 0 {
		c.Errorf("not killed: %s", out)
	}
	if now := c.sh("basename $(readlink /sys/bus/pci/devices/$1/driver) 2>/dev/null || echo none",
		device); now != "none" {
		c.Errorf("killed before it binds, the device has driver %q", now)
	}
	c.Logf("the next one, without an agent:\n%s", c.sh("acceld reset $1", device))
	c.sh("edu-check -devices $1 -expect 1", node)
	c.neighbour(before)
	c.start()
	c.await("another agent -> both usable", soon, healthy(2))
}
