package e2e

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// TestCRIO and TestContainerd: the real runtime is configured so that it reads no spec of acceld. A change that it does
// not survive is taken back, with the runtime up and pods running; a good one gives a pod its device; purge brings
// every byte back.
func TestCRIO(t *testing.T) {
	configured(t, bed.Options{Accelerators: 1, Engine: vm.CRIO}, "crio",
		`sed -i 's|^\[crio.runtime\]$|&\ncdi_spec_dirs = ["/opt/cdi"]|' /etc/crio/crio.conf`,
		"/etc/crio/crio.conf.d/50-garbage.conf",
		refused{"runtime: {edit: never}\n", accel.RuntimeMissingCDI, byHand})
}

// TestContainerd is said above.
func TestContainerd(t *testing.T) {
	configured(t, bed.Options{Accelerators: 1, Engine: vm.Containerd}, "containerd",
		`printf '\n[plugins."io.containerd.cri.v1.runtime"]\ncdi_spec_dirs = ["/opt/cdi"]\n' >> /etc/containerd/config.toml`,
		"/etc/containerd/config.toml",
		refused{"runtime: {edit: full}\n", accel.RuntimeRestartNeeded, "systemctl restart containerd"})
}

// refused is a policy under which the agent may not do all of a change, and what somebody does about the reason.
type refused struct {
	policy string
	reason accel.Reason
	mend   string
}

// byHand is what an operator does.
const byHand = "acceld runtime apply --config-only --edit full --restart now"

// refuses makes the unit's start, and its reload where it has one, fail for as long as acceld has changed the runtime's
// configuration.
const refuses = `mkdir -p "/run/systemd/system/$1.service.d"
check='/bin/sh -c "! grep -rq cdi_spec_dirs.*/var/run/cdi /etc/crio /etc/containerd 2>/dev/null"'
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStartPre=%s\n' "$check" > "/run/systemd/system/$1.service.d/refuses.conf"
if systemctl show -p CanReload --value "$1" | grep -q yes; then printf 'ExecReload=\nExecReload=%s\n' "$check" >> "/run/systemd/system/$1.service.d/refuses.conf"; fi
systemctl daemon-reload`

func configured(t *testing.T, o bed.Options, unit, without, garbage string, policy refused) {
	n, s := stage.StartNode(t, o)
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, policy.policy))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	sh(t, g, without+`; systemctl restart "$1"`, unit)
	ctx := stage.Within(t, 10*time.Minute)
	stage.Check(t, n.Apply(ctx, fmt.Appendf(nil,
		`{apiVersion: v1, kind: Pod, metadata: {name: stays, namespace: default}, spec: {
terminationGracePeriodSeconds: 1, containers: [{name: main, image: %q, command: ["sleep", "36000"]}]}}`, n.Image("bed/busybox:1"))))
	stage.Check(t, n.WaitPod(ctx, "default", "stays", corev1.PodRunning))
	before := files(t, g)
	// What the test makes, what the runtime does at each start, and the store that was put there.
	others := []string{
		"/etc/crio/crio.conf.d ", "/var/lib/crio", "/run/acceld", "/var/lib/acceld",
		"/etc/acceld/config.yaml",
	}
	up := func(t *testing.T, what string) {
		t.Helper()
		sh(t, g, `systemctl is-active -q "$1"; acceld runtime check || true`, unit)
		pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "stays", metav1.GetOptions{})
		stage.Check(t, err)
		if s := pod.Status.ContainerStatuses[0]; s.RestartCount != 0 || s.State.Running == nil {
			t.Errorf("%s: the pod did not stay: %+v", what, s)
		}
		stage.Check(t, n.WaitReady(ctx))
	}

	t.Run("a configuration that is broken already is left alone", func(t *testing.T) {
		sh(t, g,
			`if test -e "$1"; then cp -a "$1" /tmp/kept; fi; mkdir -p "$(dirname "$1")"; printf 'garbage = [\n' >> "$1"`,
			garbage)
		says(t, g, accel.RuntimeConfigInvalid, byHand)
		sh(t, g, `rm "$1"; if test -e /tmp/kept; then mv /tmp/kept "$1"; fi`, garbage)
		up(t, "after the refusal")
	})
	t.Run("a change that the runtime does not survive is taken back", func(t *testing.T) {
		sh(t, g, refuses, unit)
		timed(t, "apply -> taken back", func() { t.Logf("%s", says(t, g, accel.RuntimeDown, byHand)) })
		up(t, "taken back")
		// Their bytes; the times, and the directory that it made, are the purge's to take back.
		timeless := regexp.MustCompile(` mtime=\S+`)
		now := timeless.ReplaceAllString(files(t, g), "")
		if diff := stage.Unlike(timeless.ReplaceAllString(before, ""), now,
			append(others, "/etc/containerd/conf.d ")...); diff != "" {
			t.Errorf("the files are not as they were:\n%s", diff)
		}
		sh(t, g, `rm -r "/run/systemd/system/$1.service.d"; systemctl daemon-reload`, unit)
	})
	t.Run("a runtime that does not read the specs is not ready", func(t *testing.T) {
		sh(t, g, "rm /run/acceld/runtime-down.json") // as a boot does
		stage.Check(t, s.Enable(t.Context(), g))
		for range 2 { // what was seen once is seen again after everything was read again
			blocked(t, g, policy.reason, soon)
			sh(t, g, "sleep 2; touch /run/cdi/news; rm /run/cdi/news")
		}
		m := blocked(t, g, policy.reason, soon)
		node, err := clientset.Of(n).CoreV1().Nodes().Get(ctx, bed.NodeName, metav1.GetOptions{})
		stage.Check(t, err)
		if q := node.Status.Allocatable[stage.Resource]; !stage.InState(accel.RuntimeMissing)(m) || !q.IsZero() {
			t.Errorf("state %q, %s allocatable", m.Status[stage.Kind].State, q.String())
		}
	})
	t.Run("a good change gives a pod its device", func(t *testing.T) {
		t.Logf("%s", sh(t, g, policy.mend))
		timed(t, "changed by somebody -> ready", func() { reaches(t, g, accel.Ready, soon) })
		up(t, "changed")
		image, err := s.Workload(t.Context(), n)
		stage.Check(t, err)
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 1))
		stage.Check(t, n.Apply(ctx, stage.Pod("computes", image, 1, "-expect", "1")))
		stage.Check(t, n.WaitPod(ctx, "default", "computes", corev1.PodSucceeded))
	})
	t.Run("purge brings every byte back", func(t *testing.T) {
		sh(t, g, "systemctl disable --now acceld.service acceld.socket acceld-early.service")
		// Also a purge makes the runtime read its files again, where it may.
		stage.Check(t, g.WriteFile(ctx, "/etc/acceld/config.yaml", []byte("runtime: {edit: full, restart: now}\n"),
			0o644))
		t.Logf("%s", sh(t, g, "acceld purge"))
		up(t, "purged")
		if diff := stage.Unlike(before, files(t, g), others...); diff != "" {
			t.Errorf("the files are not as they were:\n%s", diff)
		}
		sh(t, g, "test ! -e /var/lib/acceld; test ! -e /run/acceld")
	})
}
