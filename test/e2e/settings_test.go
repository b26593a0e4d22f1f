package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestSettings: what the configuration sets is in sysfs, is there again after an upgrade of the driver, a new binding,
// a kill of the agent and a hand that changes it, and is gone when it is no longer configured, or after a purge.
func TestSettings(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, limited(stage.Version)))
	for _, version := range []string{stage.Version2, stage.Version} {
		stage.Check(t, s.SourceOf(t.Context(), g, version))
		stage.Check(t, s.Store(t.Context(), g, version))
	}
	t.Run("over an upgrade", func(t *testing.T) { settingsOverUpgrade(t, g) })
	module, err := s.Module(t.Context(), g, stage.Version)
	stage.Check(t, err)
	stage.Check(t, g.Put(t.Context(), module, "/root/edu.ko", 0o644))
	t.Run("a driver that acceld has not loaded", func(t *testing.T) { settingsRestored(t, g) })
}

// limited is a configuration that sets every device to 80.
func limited(version string) string {
	return fmt.Sprintf("sampleEvery: 1s\nkinds: {qemu-edu: {settings: {limitPercent: 80}, "+
		"driver: {version: %q, upgrade: {holders: wait}}}}\n", version)
}

// limitsOf returns what the attributes of all devices say, to the byte.
func limitsOf(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `for d in /sys/bus/pci/drivers/edu/0*; do cat $d/limit; done | tr '\n' ' '`)
}

// applied waits until every device is set, and the agent says so and offers it.
func applied(t *testing.T, g *bed.Guest, what string) accel.Machine {
	t.Helper()
	begin := time.Now()
	for got := limitsOf(t, g); strings.TrimSpace(got) != "80 80"; got = limitsOf(t, g) {
		if time.Since(begin) > soon {
			t.Fatalf("%s: the attributes say %q", what, got)
		}
		time.Sleep(100 * time.Millisecond)
	}
	// The agent may not have seen yet what has changed.
	m, err := stage.WaitMachine(stage.Within(t, 5*time.Minute), g, what, func(m accel.Machine) bool {
		accs := m.Have[stage.Kind].Accelerators
		return m.Status[stage.Kind].State == accel.Ready && len(accs) == 2 &&
			!slices.ContainsFunc(accs, func(a accel.Accelerator) bool {
				return !a.Offered() || len(a.Settings) != 1 || a.Settings[0].State != accel.SettingApplied
			})
	})
	stage.Check(t, err)
	t.Logf("%-60s %6.2f s", what, time.Since(begin).Seconds())
	if got := strings.TrimSpace(limitsOf(t, g)); got != "80 80" {
		t.Errorf("%s: the attributes say %q", what, got)
	}
	return m
}

// drifts is how often something else has changed a setting.
func drifts(m accel.Machine) (n int) {
	for _, a := range m.Have[stage.Kind].Accelerators {
		for _, s := range a.Settings {
			n += s.Drifts
		}
	}
	return n
}

func settingsOverUpgrade(t *testing.T, g *bed.Guest) {
	stage.Check(t, stage.Must(g.Sh(t.Context(), "systemctl enable --now acceld.socket acceld.service")))
	applied(t, g, "agent started -> set")
	if out := sh(t, g, "curl -fsS http://127.0.0.1:9480/metrics | grep -c '^accelerator_setting_applied.* 1$'"); out != "2" {
		t.Errorf("%s devices are set by the metrics", out)
	}
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(limited(stage.Version2)), 0o644))
	_, err := stage.WaitMachine(stage.Within(t, 5*time.Minute), g, "version 2.0.0 to serve", func(m accel.Machine) bool {
		return m.Have[stage.Kind].Driver.Version == stage.Version2
	})
	stage.Check(t, err)
	if m := applied(t, g, "the other driver serves -> set"); drifts(m) != 0 {
		t.Errorf("an upgrade counts as drift: %d", drifts(m))
	}
	sh(t, g, "systemctl disable --now acceld.service acceld.socket")
	out := sh(t, g, "acceld purge; test ! -d /sys/module/edu")
	if !strings.Contains(out, "/limit") {
		t.Errorf("the purge does not name the setting:\n%s", out)
	}
}

func settingsRestored(t *testing.T, g *bed.Guest) {
	sh(t, g, `insmod /root/edu.ko; udevadm settle
set -- /sys/bus/pci/drivers/edu/0*; echo 55 > $1/limit`)
	before := limitsOf(t, g)
	if strings.TrimSpace(before) != "55 100" {
		t.Fatalf("before: %q", before)
	}
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(limited(stage.Version)), 0o644))
	sh(t, g, "systemctl enable --now acceld.socket acceld.service")
	applied(t, g, "agent started -> set")

	sh(t, g, "set -- /sys/bus/pci/drivers/edu/0*; echo 33 > $1/limit")
	_, err := stage.WaitMachine(stage.Within(t, soon), g, "the drift to be counted", func(m accel.Machine) bool {
		return drifts(m) == 1
	})
	stage.Check(t, err)
	applied(t, g, "changed by hand -> repaired")
	if log := sh(t, g, "journalctl -u acceld -o cat | grep -c 'something else has changed a setting'"); log != "1" {
		t.Errorf("logged %s times", log)
	}

	sh(t, g, `set -- /sys/bus/pci/drivers/edu/0*; d=$(basename $2)
echo $d > /sys/bus/pci/drivers/edu/unbind; test -e /sys/bus/pci/devices/$d/driver || echo $d > /sys/bus/pci/drivers/edu/bind`)
	applied(t, g, "bound again -> set")

	sh(t, g, "systemctl kill -s KILL acceld.service")
	applied(t, g, "killed -> set")

	without := strings.Replace(limited(stage.Version), "settings: {limitPercent: 80}, ", "", 1)
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(without), 0o644))
	_, err = stage.WaitMachine(stage.Within(t, soon), g, "no setting to be shown", func(m accel.Machine) bool {
		shown := func(a accel.Accelerator) bool { return a.Settings != nil }
		return !slices.ContainsFunc(m.Have[stage.Kind].Accelerators, shown)
	})
	stage.Check(t, err)
	if got := limitsOf(t, g); got != before {
		t.Errorf("no longer configured: %q, before %q", got, before)
	}

	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(limited(stage.Version)), 0o644))
	applied(t, g, "configured again -> set")
	sh(t, g, "systemctl disable --now acceld.service acceld.socket")
	t.Logf("acceld purge:\n%s", sh(t, g, "acceld purge"))
	if got := limitsOf(t, g); got != before {
		t.Errorf("purged: %q, before %q", got, before)
	}
	sh(t, g, "rmmod edu")
}
