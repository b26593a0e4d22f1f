package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// virtualIOMMU is a machine with an IOMMU whose kernel lets user space have interrupts that it does not remap:
// remapping needs another interrupt controller with KVM than without.
func virtualIOMMU() bed.Options {
	return bed.Options{
		Accelerators: 2, Devices: []string{"-device", "intel-iommu,intremap=off"},
		Cmdline: "intel_iommu=on vfio_iommu_type1.allow_unsafe_interrupts=1",
	}
}

// bySwitching is the configuration of an agent whose devices claims may have with VFIO.
const bySwitching = byClaims + "sampleEvery: 1s\nkinds: {qemu-edu: {vfio: {ask: claim}}}\n"

// TestLives: one card has two lives, in a container with its driver and with VFIO for a driver in user space, as claims
// ask for it; with kill -9 of the agent midway, over a reboot and a purge.
func TestLives(t *testing.T) {
	n, s, image := claimNode(t, virtualIOMMU())
	g := n.Guest
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(bySwitching), 0o644))
	before := bindings(t, g)
	if !inOrder(t, n, image,
		part{"a claim without a use", ordinaryLife},
		part{"a claim with VFIO", vfioLife},
		part{"both at a time", bothLives},
		part{"the agent is killed midway", killedInSwitches},
		part{"somebody keeps the group open", heldAfterVFIO},
		part{"the driver goes and comes under a device with VFIO", upgradedUnderVFIO},
		part{"what the kind does not allow", vfioRefused},
	) {
		return
	}
	t.Run("the guest reboots with a claim held", func(t *testing.T) { vfioOverReboot(t, n, image) })
	t.Run("a purge gives everything back", func(t *testing.T) {
		startVFIO(t, n, image, "purged")
		_, err := n.Kubectl(t.Context(), nil, "-n", "default", "delete", "pod", "purged", "--wait=false")
		stage.Check(t, err)
		sh(t, g, `systemctl stop acceld.service; for i in $(seq 300); do pgrep edu-check >/dev/null || exit 0; sleep 0.1; done; exit 1`)
		t.Logf("acceld purge:\n%s", sh(t, g, "acceld purge"))
		if got := bindings(t, g); strings.Contains(got, "vfio") {
			t.Errorf("after the purge:\n%s\nbefore:\n%s", got, before)
		}
		stage.Check(t, s.Units(t.Context(), g, bySwitching))
	})
}

// bindings are the drivers of the edu devices, and driver_override.
func bindings(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `for d in /sys/bus/pci/devices/*; do test $(cat $d/vendor):$(cat $d/device) = 0x1234:0x11e8 || continue
echo $(basename $d) $(basename $(readlink $d/driver)) $(cat $d/driver_override); done; ls /run/acceld/switched 2>/dev/null || true`)
}

// lives waits until as many devices are with VFIO, and the others with their driver and offered.
func lives(t *testing.T, n *bed.Node, vfio int) {
	t.Helper()
	has(t, n.Guest, fmt.Sprintf("%d devices with VFIO", vfio), func(m accel.Machine) bool {
		with, offered := 0, 0
		for _, a := range m.Have[stage.Kind].Accelerators {
			switch {
			case a.Switched.Ready(a) && a.Health.State == accel.Healthy && a.WithheldBy(accel.BySwitch):
				with++
			case a.Offered() && a.Bound == "edu":
				offered++
			}
		}
		return with == vfio && with+offered == 2 && m.Status[stage.Kind].State == accel.Ready
	})
	offers(t, n, 2-vfio)
}

// startVFIO starts a pod that computes on a device through VFIO.
func startVFIO(t *testing.T, n *bed.Node, image, name string) {
	t.Helper()
	apply(t, n, claimWith(name, "use: vfio"), stage.ClaimPod(name, image, "resourceClaimName: "+name, "-vfio", "-expect",
		"1", "-hold", "2h"))
	stage.Check(t, n.WaitPod(stage.Within(t, 4*time.Minute), "default", name, corev1.PodRunning))
	awaitLog(t, n, name, "computes 10! through vfio")
}

// awaitLog waits until a pod has said something.
func awaitLog(t *testing.T, n *bed.Node, pod, says string) {
	t.Helper()
	ctx := stage.Within(t, soon)
	for {
		out, err := n.Kubectl(ctx, nil, "-n", "default", "logs", pod)
		if strings.Contains(out, says) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the pod says %s (%v)", out, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func ordinaryLife(t *testing.T, n *bed.Node, image string) {
	lives(t, n, 0)
	apply(t, n, stage.Claim("plain"), stage.ClaimPod("plain", image, "resourceClaimName: plain", "-expect", "1"))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "plain", corev1.PodSucceeded))
	removeClaims(t, n, "plain")
}

func vfioLife(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	timed(t, "claim with VFIO -> its pod computes", func() { startVFIO(t, n, image, "vm") })
	lives(t, n, 1)
	status := sh(t, g, "acceld status || true; curl -s --unix-socket /run/acceld/acceld.sock http://x/metrics | grep accelerator_other_use")
	if !strings.Contains(status, "vfio (vfio-pci, IOMMU group") || !strings.Contains(status, `use="vfio",vendor="qemu"} 1`) {
		t.Errorf("%s", status)
	}
	timed(t, "claim over -> the device is offered again", func() {
		removeClaims(t, n, "vm")
		lives(t, n, 0)
	})
	if got := bindings(t, g); strings.Contains(got, "vfio") {
		t.Error(got)
	}
}

func bothLives(t *testing.T, n *bed.Node, image string) {
	startVFIO(t, n, image, "vm")
	apply(t, n, stage.Claim("beside"), stage.ClaimPod("beside", image, "resourceClaimName: beside", "-expect", "1"))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "beside", corev1.PodSucceeded))
	removeClaims(t, n, "beside", "vm")
	lives(t, n, 0)
}

// killedInSwitches kills the agent again and again while a device goes to VFIO and back.
func killedInSwitches(t *testing.T, n *bed.Node, image string) {
	for i := range 3 {
		name := fmt.Sprintf("killed%d", i)
		stop := killing(t, n.Guest, 50*time.Millisecond, 900*time.Millisecond)
		apply(t, n, claimWith(name, "use: vfio"), stage.ClaimPod(name, image, "resourceClaimName: "+name, "-vfio", "-expect", "1",
			"-hold", "2h"))
		time.Sleep(15 * time.Second)
		stop()
		stage.Check(t, n.WaitPod(stage.Within(t, 5*time.Minute), "default", name, corev1.PodRunning))
		awaitLog(t, n, name, "computes 10! through vfio")
		stop = killing(t, n.Guest, 50*time.Millisecond, 900*time.Millisecond)
		_, err := n.Kubectl(t.Context(), nil, "-n", "default", "delete", "pod", name, "--wait=false")
		stage.Check(t, err)
		time.Sleep(10 * time.Second)
		stop()
		removeClaims(t, n, name)
		lives(t, n, 0)
	}
}

// heldAfterVFIO: while a process of the host has the group open, nobody gets the device.
func heldAfterVFIO(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	startVFIO(t, n, image, "vm")
	sh(t, g, `systemctl stop acceld.service; kill -9 $(pgrep edu-check); systemd-run --unit=holder sh -c 'exec 3<>$(ls /dev/vfio/[0-9]*); exec sleep 1h'; sleep 1; systemctl start acceld.service`)
	removeClaims(t, n, "vm")
	has(t, g, "the device to be withheld", func(m accel.Machine) bool {
		for _, a := range m.Have[stage.Kind].Accelerators {
			if a.WithheldBy(accel.BySwitch) && a.Withheld.Reason == accel.NotGivenBack {
				return true
			}
		}
		return false
	})
	sh(t, g, "systemctl stop holder")
	lives(t, n, 0)
}

// upgradedUnderVFIO: the driver of the kind is unloaded and loaded again while a pod has a device with VFIO.
func upgradedUnderVFIO(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	startVFIO(t, n, image, "vm")
	before := sh(t, g, "pgrep edu-check")
	sh(t, g, "rmmod edu && for i in $(seq 300); do test -e /sys/module/edu && exit 0; sleep 0.1; done; exit 1")
	lives(t, n, 1)
	if after := sh(t, g, "pgrep edu-check"); after != before {
		t.Errorf("the pod's process was %s and is %s", before, after)
	}
	removeClaims(t, n, "vm")
	lives(t, n, 0)
}

// vfioRefused: a claim may not ask where only a class may; the pod's event names the field.
func vfioRefused(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(strings.Replace(bySwitching, "ask: claim",
		"ask: class", 1)), 0o644))
	has(t, g, "the other configuration", func(m accel.Machine) bool {
		return m.Want.Kinds[stage.Kind] != nil
	})
	time.Sleep(5 * time.Second)
	apply(t, n, claimWith("refused", "use: vfio"), stage.ClaimPod("refused", image, "resourceClaimName: refused", "-vfio"))
	awaitEvent(stage.Within(t, soon), t, n, "refused", "only a device class may ask")
	removeClaims(t, n, "refused")
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(bySwitching), 0o644))
	lives(t, n, 0)
}

// vfioOverReboot: after a boot every device is with its driver, until the kubelet prepares the claim again.
func vfioOverReboot(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 15*time.Minute)
	apply(t, n, claimWith("over", "use: vfio"), restarted(stage.ClaimPod("over", image, "resourceClaimName: over", "-vfio",
		"-expect", "1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "over", corev1.PodRunning))
	stage.Check(t, n.Reboot(ctx, bed.Reboot{}))
	sh(t, n.Guest, `for i in $(seq 600); do pgrep edu-check >/dev/null && exit 0; sleep 0.2; done; exit 1`)
	lives(t, n, 1)
	removeClaims(t, n, "over")
	lives(t, n, 0)
}
