package faults

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// Test15_UpgradeUnderHolder: another driver is wanted while a process has the device open.
func Test15_UpgradeUnderHolder(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	for _, version := range []string{stage.Version2, stage.Version} {
		c.must(c.s.SourceOf(t.Context(), c.g, version))
		c.store(version)
	}
	loads := c.countLoads()
	c.start()
	c.await("agent started", soon, healthy(1))
	c.sh("systemd-run --unit=holder --quiet edu-check -expect 1 -hold 1h; sleep 1")
	before := loads()
	c.config("kinds: {qemu-edu: {driver: {version: \"2.0.0\", upgrade: {holders: wait}}}}\n")
	m := c.await("version 2.0.0 configured -> waits", building, func(m accel.Machine) bool {
		u := m.Have[stage.Kind].Driver.Upgrade
		return u != nil && u.Phase == accel.UpgradeDraining && len(u.Holders) > 0
	})
	if who := m.Have[stage.Kind].Driver.Upgrade.Holders[0].String(); !strings.Contains(who, "edu-check") {
		t.Errorf("the holder is %q", who)
	}
	if n := loads() - before; n != 0 {
		t.Errorf("%d calls to load or unload under the holder", n)
	}
	c.sh("systemctl stop holder")
	c.await("the holder has ended -> version 2.0.0 serves", soon, func(m accel.Machine) bool {
		return healthy(1)(m) && m.Have[stage.Kind].Driver.Version == stage.Version2
	})
	c.sh(`test "$(cat /sys/module/edu/version)" = 2.0.0; edu-check -expect 1`)
}
