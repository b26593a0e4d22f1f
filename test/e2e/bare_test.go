package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestBareMetal is a host with the systemd unit and no Kubernetes at all.
func TestBareMetal(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	before := snapshot(t, g)
	t.Run("no rights", func(t *testing.T) {
		says(t, g, accel.PermissionDenied, "setpriv --reuid=65534 --regid=65534 --clear-groups acceld run")
	})
	t.Run("broken configuration", func(t *testing.T) {
		sh(t, g, "printf 'nodde: x\\n' > /tmp/broken.yaml")
		out := says(t, g, accel.ConfigInvalid, "acceld run --config /tmp/broken.yaml")
		if !strings.Contains(out, "nodde") || !strings.Contains(out, "/tmp/broken.yaml") {
			t.Errorf("the message does not name field and file: %s", out)
		}
		says(t, g, accel.ConfigInvalid, "acceld run --config /nowhere.yaml")
		sh(t, g, "rm /tmp/broken.yaml")
	})
	timed(t, "units enabled -> ready, driver built", func() {
		stage.Check(t, s.Enable(t.Context(), g))
		reaches(t, g, accel.Ready, 10*time.Minute)
	})
	t.Run("curl and status", func(t *testing.T) {
		if out := sh(t, g, "curl -fsS http://127.0.0.1:9480/healthz"); !strings.Contains(out, stage.Kind) {
			t.Errorf("/healthz: %s", out)
		}
		if out := sh(t, g, "curl -fsS http://127.0.0.1:9480/metrics | grep -c ^accelerator_"); out == "0" {
			t.Error("/metrics has no device")
		}
		t.Logf("acceld status:\n%s", sh(t, g, "acceld status"))
		if out := sh(t, g, "systemctl show -p StatusText --value acceld"); !strings.Contains(out, "qemu-edu: ready") {
			t.Errorf("status line of the unit: %q", out)
		}
		sh(t, g, "edu-check -expect 2")
		sh(t, g, "acceld doctor")
	})
	t.Run("the page, and a report to share", func(t *testing.T) {
		page := sh(t, g,
			"curl -fsS -D /tmp/page.head http://127.0.0.1:9480/ && grep -i ^etag: /tmp/page.head && curl -fsS http://127.0.0.1:9480/v1/events")
		for _, want := range []string{"Ready.", "driver-unproven", "aria-current", `"to": "ready"`} {
			if !strings.Contains(page, want) {
				t.Errorf("the page or the events lack %q:\n%s", want, page)
			}
		}
		// Secrets where a host has them: the kernel log, the kubelet's credentials.
		sh(t, g,
			`mkdir -p /etc/kubernetes && printf 'users:\n- user:\n    token: planted-in-kubeconfig\n' > /etc/kubernetes/kubelet.conf
			logger -t acceld 'planted-in-kubeconfig password=planted-in-journal' || true
			acceld doctor --report /root/report.txt`)
		report := sh(t, g,
			"stat -c %a /root/report.txt; cat /root/report.txt; rm /root/report.txt /tmp/page.head; rm -r /etc/kubernetes")
		for _, want := range []string{
			"600\nacceld report\n", "==== agent /v1/machine ====",
			"==== journal of the agent ====", "==== kernel log ====", "all tasks ready",
			"edu: loading out-of-tree module",
		} {
			if !strings.Contains(report, want) {
				t.Errorf("the report lacks %q", want)
			}
		}
		if strings.Contains(report, "planted-in") {
			t.Error("a secret is in the report")
		}
	})
	t.Run("kill -9 twenty times under a holder", func(t *testing.T) { killTwenty(t, g) })
	t.Run("a second agent is refused", func(t *testing.T) {
		out := sh(t, g, "acceld run 2>&1 || true")
		if !strings.Contains(out, string(accel.AlreadyRunning)) {
			t.Errorf("the second agent said %q", out)
		}
	})
	t.Run("unload names who holds the driver", func(t *testing.T) {
		sh(t, g, "systemctl stop acceld.socket acceld.service")
		out := sh(t, g,
			"systemd-run --unit=holder edu-check -hold 1h >/dev/null 2>&1; sleep 2; acceld driver unload qemu-edu 2>&1 || echo status $?; systemctl stop holder")
		if !strings.Contains(out, string(accel.InUse)) || !strings.Contains(out, "edu-check") ||
			!strings.Contains(out, "status 1") {
			t.Errorf("unload said %q", out)
		}
		sh(t, g, "test -d /sys/module/edu && acceld driver unload qemu-edu && test ! -d /sys/module/edu")
		sh(t, g, "systemctl start acceld.socket acceld.service")
		reaches(t, g, accel.Ready, soon)
	})
	t.Run("purge leaves the host as it was", func(t *testing.T) { purged(t, g, before) })
}

// snapshot is everything that a purge must bring back: the files, and what the kernel and systemd have.
func snapshot(t *testing.T, g *bed.Guest) string {
	t.Helper()
	sh(t, g, "systemctl is-system-running --wait || true; udevadm settle") // a boot still loads modules after its login
	return files(t, g) + sh(t, g,
		`find /dev -mindepth 1 ! -path '/dev/pts/*' -printf '%p %y %m %U:%G\n' | sort; tree -kernel`)
}

// purged takes acceld back after all that was done before, and looks for what is not as it was.
func purged(t *testing.T, g *bed.Guest, before string) {
	sh(t, g,
		"systemctl disable --now acceld.service acceld.socket acceld-early.service; rm -rf /run/systemd/system/acceld.service.d; systemctl daemon-reload")
	t.Logf("acceld purge:\n%s", sh(t, g, "acceld purge"))
	if diff := stage.Unlike(before, snapshot(t, g)); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
}

// killTwenty kills the unit's agent under a process that holds a device.
func killTwenty(t *testing.T, g *bed.Guest) {
	sh(t, g, "systemd-run --unit=holder edu-check -expect 2 -hold 2h")
	before := facts(t, g)
	holder := sh(t, g, "systemctl show -p MainPID --value holder")
	killAgent(t, g, 20)
	if after := facts(t, g); after != before {
		t.Errorf("module before %q, after %q", before, after)
	}
	if now := sh(t, g, "systemctl show -p MainPID --value holder; journalctl -u holder | grep -c gone || true"); now !=
		holder+"\n0" {
		t.Errorf("holder %q, before %q", now, holder)
	}
	sh(t, g, "systemctl stop holder")
}

// killAgent kills the unit's agent times over, each time as soon as it was ready again, with everything that this
// means: with a kubelet, that a new process has registered and the kubelet offers every device.
func killAgent(t *testing.T, g *bed.Guest, times int) {
	t.Helper()
	sh(t, g,
		"mkdir -p /run/systemd/system/acceld.service.d; printf '[Unit]\\nStartLimitIntervalSec=0\\n' > /run/systemd/system/acceld.service.d/limit.conf; systemctl daemon-reload")
	for i := range times {
		pid := agentPID(t, g)
		sh(t, g, `kill -9 "$1"; while kill -0 "$1" 2>/dev/null; do sleep 0.05; done`, pid)
		begin := time.Now()
		reaches(t, g, accel.Ready, soon)
		t.Logf("kill %2d -> ready again %5.2f s (1 s of it systemd's RestartSec)", i+1, time.Since(begin).Seconds())
	}
}
