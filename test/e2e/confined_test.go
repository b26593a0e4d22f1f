package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestRuntimeComesLater is a container runtime that is installed on a host whose agent runs already, taken away and
// installed again. Its directories are read-only to the unit that was there before them, and nobody restarts it: it
// gets the drop-in and the hook written by itself, under a process that holds a device.
func TestRuntimeComesLater(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true})
	g := n.Guest
	// As a package brings it: its directories made, its files in them, its unit started. It reads no spec of acceld.
	const install = `mkdir -p /usr/share/containers/oci/hooks.d; cp -r /root/package /etc/crio; systemctl start crio`
	sh(t, g,
		`cp -r /etc/crio /root/package; sed -i 's|^\[crio.runtime\]$|&\ncdi_spec_dirs = ["/opt/cdi"]|' /root/package/crio.conf
		rm -rf /etc/crio /usr/share/containers`)
	stage.Check(t, s.Units(t.Context(), g, "runtime: {restart: now}\n"))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, soon)
	sh(t, g, "systemd-run --unit=holder edu-check -expect 1 -hold 2h")
	// the runtime loads modules of its own
	driver := func() string { d, _, _ := strings.Cut(facts(t, g), "\n"); return d }
	before, holder := driver(), sh(t, g, "systemctl show -p MainPID --value holder")
	for i, round := range []string{"installed", "installed again"} {
		t.Run(round, func(t *testing.T) {
			m, err := stage.Machine(stage.Within(t, soon), g)
			stage.Check(t, err)
			started, pid := m.Agent.Started, agentPID(t, g)
			if i > 0 {
				sh(t, g, "systemctl stop crio; rm -rf /etc/crio /usr/share/containers")
			}
			sh(t, g, install)
			timed(t, "container runtime "+round+" -> a new agent has made it give devices", func() {
				_, err := stage.WaitMachine(stage.Within(t, 2*soon), g, "the hook of a new agent",
					func(m accel.Machine) bool {
						return m.Agent.Started.After(started) && m.Have[stage.Kind].Runtime.Hook != "" &&
							stage.InState(accel.Ready)(m)
					})
				stage.Check(t, err)
			})
			sh(t, g,
				`grep -q /var/run/cdi /etc/crio/crio.conf.d/*acceld* && test -s /usr/share/containers/oci/hooks.d/50-acceld.json && acceld runtime check`)
			again := agentPID(t, g)
			if again == pid {
				t.Errorf("the agent is still process %s", pid)
			}
			if out := sh(t, g,
				`sleep 3; for p in NRestarts Result ActiveState; do systemctl show -p $p --value acceld; done
				journalctl -u acceld | grep -c 'the agent ends, to be started again'`); out != fmt.Sprintf("%d\nsuccess\nactive\n%d", i+1, i+1) {
				t.Errorf("restarts, result, state and farewells of the unit: %q", out)
			}
			if now := agentPID(t, g); now != again {
				t.Errorf("the agent was process %s and is %s: it starts over and over", again, now)
			}
		})
	}
	if after := driver(); after != before {
		t.Errorf("module before %q, after %q", before, after)
	}
	if now := sh(t, g, "systemctl show -p MainPID --value holder; journalctl -u holder | grep -c gone || true"); now !=
		holder+"\n0" {
		t.Errorf("holder %q, before %q", now, holder)
	}
}
