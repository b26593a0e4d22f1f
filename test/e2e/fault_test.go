package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestTrouble: each fault of the host ends in its own reason, and the host is otherwise as it was.
func TestTrouble(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true})
	g := n.Guest
	must(t, s.Units(t.Context(), g, ""))
	must(t, s.Source(t.Context(), g))

	part := func(name string, do func(*testing.T)) {
		t.Helper()
		if !t.Failed() { // the parts build on each other
			t.Run(name, do)
		}
	}
	start := func(t *testing.T) {
		t.Helper()
		sh(t, g, "systemctl reset-failed acceld.service 2>/dev/null || true; systemctl stop acceld.service; systemctl restart acceld.socket acceld.service")
	}
	stop := func(t *testing.T) {
		t.Helper()
		sh(t, g, "systemctl stop acceld.socket acceld.service; rmmod edu 2>/dev/null || true")
	}
	part("no rights", func(t *testing.T) {
		says(t, g, accel.PermissionDenied, "setpriv --reuid=65534 --regid=65534 --clear-groups acceld run")
	})
	part("broken configuration", func(t *testing.T) {
		sh(t, g, "printf 'nodde: x\\n' > /tmp/broken.yaml")
		out := says(t, g, accel.ConfigInvalid, "acceld run --config /tmp/broken.yaml")
		if !strings.Contains(out, "nodde") || !strings.Contains(out, "/tmp/broken.yaml") {
			t.Errorf("the message does not name field and file: %s", out)
		}
		says(t, g, accel.ConfigInvalid, "acceld run --config /nowhere.yaml")
	})
	part("read-only /var", func(t *testing.T) {
		sh(t, g, "rm -rf /var/lib/acceld; mkdir -p /var/lib/acceld; mount -t tmpfs -o ro none /var/lib/acceld")
		start(t)
		blocked(t, g, accel.ReadOnly, soon)
		sh(t, g, "test ! -d /sys/module/edu")
		stop(t)
		sh(t, g, "umount /var/lib/acceld")
	})
	part("full disk", func(t *testing.T) {
		sh(t, g, "mount -t tmpfs -o size=64k none /var/lib/acceld; dd if=/dev/zero of=/var/lib/acceld/fill bs=1k count=60 2>/dev/null || true")
		start(t)
		blocked(t, g, accel.NoSpace, 3*time.Minute)
		t.Logf("acceld status:\n%s", sh(t, g, "acceld status || true"))
		stop(t)
		sh(t, g, "umount /var/lib/acceld")
	})
	part("no headers", func(t *testing.T) {
		sh(t, g, "mv /usr/src/linux-headers-$(uname -r) /usr/src/away")
		start(t)
		m := blocked(t, g, accel.HeadersMissing, soon)
		if msg := m.Status[stage.Kind].Blocked.Message; !strings.Contains(msg, "linux-headers-") {
			t.Errorf("the message names no package: %s", msg)
		}
		sh(t, g, "mv /usr/src/away /usr/src/linux-headers-$(uname -r)")
		timed(t, "headers are back -> ready, by the event alone", func() { reaches(t, g, accel.Ready, 5*time.Minute) })
	})
	installed := "/lib/modules/$(uname -r)/extra/edu.ko"
	part("truncated module", func(t *testing.T) {
		stop(t)
		sh(t, g, "mkdir -p /root/keep $(dirname "+installed+"); cp /var/lib/acceld/kmod/*/edu.ko /root/keep/; rm -rf /var/lib/acceld/kmod; head -c 5000 /root/keep/edu.ko > "+installed+"; depmod")
		start(t)
		blocked(t, g, accel.ModuleInvalid, soon)
		sh(t, g, "test ! -d /sys/module/edu; dmesg | tail -20 | grep -c 'edu: ' || true")
		stop(t)
	})
	part("module for another kernel", func(t *testing.T) {
		// One more character in the release, as long as the text stays: the kernel with modversions would load it.
		sh(t, g, `r=$(uname -r); x=$(printf %s "$r" | sed 's/^6/7/'); sed "s/vermagic=$r/vermagic=$x/" /root/keep/edu.ko > `+installed+`; depmod`)
		start(t)
		m := blocked(t, g, accel.KernelMismatch, soon)
		t.Logf("the reason: %s", m.Status[stage.Kind].Blocked.Message)
		stop(t)
		sh(t, g, "rm "+installed+"; depmod")
	})
	part("driver refuses the device", func(t *testing.T) {
		sh(t, g, "printf 'kinds:\\n  qemu-edu:\\n    driver:\\n      parameters:\\n        edu: {fail_probe: \"1\"}\\n' > /etc/acceld/config.yaml")
		start(t)
		blocked(t, g, accel.ProbeFailed, 3*time.Minute)
		sh(t, g, "test ! -d /sys/module/edu") // what was loaded for nothing is taken back
		sh(t, g, "sed -i 's/fail_probe: \"1\"/no_such_parameter: \"1\"/' /etc/acceld/config.yaml")
		start(t)
		blocked(t, g, accel.ParameterUnknown, soon)
		sh(t, g, "rm /etc/acceld/config.yaml")
		stop(t)
	})
	part("and after all that it works", func(t *testing.T) {
		start(t)
		reaches(t, g, accel.Ready, 5*time.Minute)
		sh(t, g, "edu-check -expect 1; test -z \"$(systemctl --failed --no-legend)\"")
	})
}

// says runs a command that must fail with a reason, and returns what it said.
func says(t *testing.T, g *bed.Guest, reason accel.Reason, command string) string {
	t.Helper()
	res, err := g.Sh(within(t, soon), command)
	must(t, err)
	if res.Status != 1 || !strings.Contains(res.Stderr, string(reason)) {
		t.Errorf("%s: status %d, stderr %q, want status 1 and %s", command, res.Status, res.Stderr, reason)
	}
	return res.Stderr
}

// TestNoAccelerator: a host without one has an idle agent that says so.
func TestNoAccelerator(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{NoKubernetes: true})
	must(t, s.Units(t.Context(), n.Guest, ""))
	must(t, s.Enable(t.Context(), n.Guest))
	_, err := stage.WaitMachine(within(t, soon), n.Guest, "the agent", stage.InState(accel.Absent))
	must(t, err)
	if out := sh(t, n.Guest, "acceld status"); !strings.Contains(out, "no accelerator") {
		t.Errorf("status: %s", out)
	}
	must(t, s.Source(t.Context(), n.Guest))
	must(t, n.Plug(within(t, soon), 0))
	timed(t, "first device put in -> ready, driver built", func() { reaches(t, n.Guest, accel.Ready, 5*time.Minute) })
}
