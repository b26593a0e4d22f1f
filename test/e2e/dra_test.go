package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

const (
	// records is where the agent keeps what it has prepared.
	records = "/var/lib/acceld/dra/" + stage.Kind
	// claimSpecs are the CDI specs of prepared claims.
	claimSpecs = "/var/run/cdi/acceld-claim-" + stage.Class + "-"
)

// byClaims is the configuration of an agent that gives its devices out by claims.
const byClaims = "kubernetes: {kubeconfig: /etc/acceld/kubeconfig, allocation: dra}\n"

// byDevicePlugin is that of one that gives them out by the device plugin.
const byDevicePlugin = "kubernetes: {kubeconfig: /etc/acceld/kubeconfig, allocation: devicePlugin}\n"

// TestDRA gives devices out by resource claims, with the real scheduler, kubelet and container runtime. Each part
// leaves four free devices behind, so each can be run alone.
func TestDRA(t *testing.T) {
	n, s, image := claimNode(t, bed.Options{Accelerators: 4})
	if !inOrder(t, n, image,
		part{"the scheduler sees what the devices are", slicesTell},
		part{"a claim: the pod computes on its device", claimComputes},
		part{"a template: four replicas on four devices", templateReplicas},
		part{"two pods share a claim", claimShared},
		part{"a claim selects its device by an attribute", claimSelects},
		part{"the second of two alternatives", claimAlternatives},
		part{"a pod that asks for the extended resource gets a claim", extendedResource},
		part{"parameters that are wrong are named in the pod's events", parametersRefused},
		part{"a device that computes wrongly is found before a pod has it", checkedFirst},
		part{"the agent is killed while a claim is held", agentKilled},
		part{"the agent is killed midway", agentKilledMidway},
		part{"the agent is away when a claim is given back", agentAway},
		part{"the agent is upgraded while ten pods start and end", agentUpgraded},
		part{"kubelet and runtime restart", claimsOverRestarts},
		part{"a sick device is given to no claim", sickIsTainted},
		part{"a sick device whose taint ends its pod", sickEndsPods},
	) {
		return
	}
	t.Run("the guest reboots with a claim held", func(t *testing.T) { claimOverReboot(t, n, image) })
	t.Run("parts of a device's memory", func(t *testing.T) { memoryShared(t, n, s, image) })
	t.Run("to the device plugin and back", func(t *testing.T) { allocationSwitches(t, n, image) })
}

// claimNode is a node whose agent gives its devices out by claims, and the image of a program that computes on them.
func claimNode(t *testing.T, o bed.Options) (*bed.Node, *stage.Stage, string) {
	t.Helper()
	n, s := stage.StartNode(t, o)
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, byClaims))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	timed(t, "agent started -> every device in slices, every state ready", func() { offers(t, n, o.Accelerators) })
	return n, s, image
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	stage.Check(t, err)
	return string(data)
}

// offers waits until the slices that the API server has offer as many devices, and the agent has nothing left to do.
func offers(t *testing.T, n *bed.Node, devices int) {
	t.Helper()
	ctx := stage.Within(t, 5*time.Minute)
	_, err := stage.WaitMachine(ctx, n.Guest, fmt.Sprintf("%d devices to be offered by claims", devices),
		func(m accel.Machine) bool {
			return m.Have[stage.Kind].Plugin.Registered && m.Have[stage.Kind].Plugin.Allocatable.Is(devices)
		})
	stage.Check(t, err)
	// the count may be the device plugin's still
	for got := untainted(ctx, t, n); len(got) != devices; got = untainted(ctx, t, n) {
		if ctx.Err() != nil {
			t.Fatalf("%d devices without taint are in the slices, want %d", len(got), devices)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// slicesOf returns the slices of the node.
func slicesOf(ctx context.Context, t *testing.T, n *bed.Node) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := clientset.Of(n).ResourceV1().ResourceSlices().List(ctx,
		metav1.ListOptions{FieldSelector: "spec.driver=" + stage.Class})
	stage.Check(t, err)
	return list.Items
}

// untainted returns the names of the devices that new claims may get.
func untainted(ctx context.Context, t *testing.T, n *bed.Node) []string {
	t.Helper()
	var names []string
	for _, s := range slicesOf(ctx, t, n) {
		for _, d := range s.Spec.Devices {
			if len(d.Taints) == 0 {
				names = append(names, d.Name)
			}
		}
	}
	return names
}

// given waits until as many claims are prepared, by what the agent keeps about them and by the CDI specs.
func given(t *testing.T, n *bed.Node, claims int) {
	t.Helper()
	sh(t, n.Guest, fmt.Sprintf(`for i in $(seq 450); do
  test $(ls %[1]s 2>/dev/null | grep -c json) = %[3]d && test $(ls -d %[2]s* 2>/dev/null | wc -l) = %[3]d && exit 0; sleep 0.2; done
ls -l %[1]s /var/run/cdi; exit 1`, records, claimSpecs, claims))
}

func slicesTell(t *testing.T, n *bed.Node, _ string) {
	ctx := stage.Within(t, soon)
	all := slicesOf(ctx, t, n)
	if len(all) != 1 || all[0].Spec.NodeName == nil || *all[0].Spec.NodeName != n.Name() ||
		len(all[0].OwnerReferences) != 1 {
		t.Fatalf("slices: %+v", all)
	}
	m, err := stage.Machine(ctx, n.Guest)
	stage.Check(t, err)
	for i, d := range all[0].Spec.Devices {
		a := m.Have[stage.Kind].Accelerators[i]
		id, serial, version := d.Attributes["resource.kubernetes.io/pciBusID"], d.Attributes["serial"],
			d.Attributes["driverVersion"]
		if id.StringValue == nil || *id.StringValue != a.ID || serial.StringValue == nil ||
			*serial.StringValue != a.Serial || version.VersionValue == nil || *version.VersionValue != stage.Version {
			t.Errorf("%s tells %+v, and is %+v", d.Name, d.Attributes, a)
		}
	}
	class, err := clientset.Of(n).ResourceV1().DeviceClasses().Get(ctx, stage.Class, metav1.GetOptions{})
	stage.Check(t, err)
	if class.Spec.ExtendedResourceName == nil || *class.Spec.ExtendedResourceName != stage.Resource {
		t.Errorf("class: %+v", class.Spec)
	}
}

// apply applies several manifests.
func apply(t *testing.T, n *bed.Node, manifests ...[]byte) {
	t.Helper()
	stage.Check(t, n.Apply(stage.Within(t, soon), slices.Concat(manifests...)))
}

// removeClaims deletes pods and claims, and waits until the agent has taken the claims back.
func removeClaims(t *testing.T, n *bed.Node, names ...string) {
	t.Helper()
	for _, kind := range []string{"pod", "resourceclaim"} {
		_, err := n.Kubectl(stage.Within(t, 2*soon), nil,
			append([]string{"-n", "default", "delete", kind, "--wait", "--ignore-not-found"}, names...)...)
		stage.Check(t, err)
	}
	given(t, n, 0)
}

func claimComputes(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 3*time.Minute)
	timed(t, "claim and pod applied -> computed", func() {
		apply(t, n, stage.Claim("one"), stage.ClaimPod("one", image, "resourceClaimName: one", "-expect", "1"))
		stage.Check(t, n.WaitPod(ctx, "default", "one", corev1.PodSucceeded))
	})
	log, err := n.PodLog(ctx, "default", "one")
	stage.Check(t, err)
	if !strings.Contains(log, "PASS 1 device(s)") {
		t.Errorf("log of the pod: %s", log)
	}
	timed(t, "pod and claim deleted -> taken back", func() { removeClaims(t, n, "one") })
}

func templateReplicas(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 4*time.Minute)
	timed(t, "Deployment of 4 applied -> 4 pods compute", func() {
		apply(t, n, stage.ClaimTemplate("each"), stage.ClaimDeployment("each", image, "resourceClaimTemplateName: each",
			4, "-expect", "1", "-hold", "2h"))
		_, err := n.Kubectl(ctx, nil, "-n", "default", "rollout", "status", "deployment/each", "--timeout=200s")
		stage.Check(t, err)
	})
	given(t, n, 4)
	// Four pods with four different nodes open are four devices.
	devices := sh(t, n.Guest,
		`for p in $(pgrep edu-check); do for f in /proc/$p/fd/*; do readlink $f; done; done | grep ^/dev/edu | sort -u | wc -l`)
	if devices != "4" {
		t.Errorf("%s devices are in use", devices)
	}
	timed(t, "Deployment deleted -> 4 claims taken back", func() {
		_, err := n.Kubectl(ctx, nil, "-n", "default", "delete", "deployment/each", "resourceclaimtemplate/each",
			"--wait", "--cascade=foreground")
		stage.Check(t, err)
		given(t, n, 0)
	})
}

func claimShared(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 3*time.Minute)
	apply(t, n, stage.Claim("both"),
		stage.ClaimPod("first", image, "resourceClaimName: both", "-expect", "1", "-hold", "2h"),
		stage.ClaimPod("second", image, "resourceClaimName: both", "-expect", "1", "-hold", "2h"))
	for _, pod := range []string{"first", "second"} {
		stage.Check(t, n.WaitPod(ctx, "default", pod, corev1.PodRunning))
	}
	given(t, n, 1)
	remove(t, n, "first")
	given(t, n, 1) // the other has it still
	stage.Check(t, n.WaitPod(ctx, "default", "second", corev1.PodRunning))
	removeClaims(t, n, "second", "both")
}

func claimSelects(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 3*time.Minute)
	m, err := stage.Machine(ctx, n.Guest)
	stage.Check(t, err)
	want := m.Have[stage.Kind].Accelerators[2]
	expression := fmt.Sprintf(
		`device.attributes["resource.kubernetes.io"].pciBusID == %q && device.attributes[%q].driverVersion.compareTo(semver("0.9.0")) > 0`,
		want.ID, stage.Class)
	apply(t, n, stage.Claim("chosen", fmt.Sprintf("selectors: [{cel: {expression: %q}}]", expression)),
		stage.ClaimPod("chosen", image, "resourceClaimName: chosen", "-expect", "1", "-hold", "2h"))
	stage.Check(t, n.WaitPod(ctx, "default", "chosen", corev1.PodRunning))
	if id := held(t, n.Guest); id != want.ID {
		t.Errorf("the pod has %s, and asked for %s", id, want.ID)
	}
	removeClaims(t, n, "chosen")
}

func claimAlternatives(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 3*time.Minute)
	claim := fmt.Sprintf(`---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: either, namespace: default}
spec:
  devices:
    requests:
    - name: edu
      firstAvailable:
      - {name: none, deviceClassName: %[1]s, selectors: [{cel: {expression: "false"}}]}
      - {name: some, deviceClassName: %[1]s, count: 2}
`, stage.Class)
	pod := strings.Replace(string(stage.ClaimPod("either", image, "resourceClaimName: either", "-expect", "2")),
		"claims: [{name: edu}]", "claims: [{name: edu, request: edu}]", 1)
	apply(t, n, []byte(claim), []byte(pod))
	stage.Check(t, n.WaitPod(ctx, "default", "either", corev1.PodSucceeded))
	removeClaims(t, n, "either")
}

func extendedResource(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 3*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("plain", image, 2, "-expect", "2")))
	stage.Check(t, n.WaitPod(ctx, "default", "plain", corev1.PodSucceeded))
	remove(t, n, "plain")
	given(t, n, 0)
}

func parametersRefused(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 3*time.Minute)
	apply(t, n, claimWith("odd", "envs: {}"), stage.ClaimPod("odd", image, "resourceClaimName: odd", "-expect", "1"))
	awaitEvent(ctx, t, n, "odd", "envs")
	removeClaims(t, n, "odd")
}

// claimWith is a claim of a device with parameters.
func claimWith(name, parameters string) []byte {
	return fmt.Appendf(stage.Claim(name), `    config:
    - opaque:
        driver: %s
        parameters: {apiVersion: acceld.dev/v1alpha1, kind: DeviceParameters, %s}
`, stage.Class, parameters)
}

// awaitEvent waits until an event of a pod says something.
func awaitEvent(ctx context.Context, t *testing.T, n *bed.Node, pod, says string) {
	t.Helper()
	for {
		events, err := clientset.Of(n).CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		stage.Check(t, err)
		i := slices.IndexFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, says) })
		if i >= 0 {
			t.Logf("the pod's event: %s", events.Items[i].Message)
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// checkedFirst: every device computes wrongly, and neither its driver nor its attributes say so. A claim that asks for
// a check finds that out: its pod does not start, and its device alone is unhealthy.
func checkedFirst(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 6*time.Minute)
	inject := func(what string) {
		sh(t, n.Guest, `for d in /sys/bus/pci/drivers/edu/0*; do echo "$1" > $d/inject_error; done`, what)
	}
	start := func() {
		apply(t, n, claimWith("checked", "check: true"),
			stage.ClaimPod("checked", image, "resourceClaimName: checked", "-expect", "1", "-hold", "2h"))
	}
	timed(t, "claim with a check -> its pod computes", func() {
		start()
		stage.Check(t, n.WaitPod(ctx, "default", "checked", corev1.PodRunning))
	})
	if out := sh(t, n.Guest, `cat "$1"/*.json; journalctl -u acceld -o cat | grep 'devices of a claim checked'`,
		records); !strings.Contains(out, `"checked":"20`) {
		t.Errorf("not written down: %s", out)
	} else {
		t.Logf("%s", out)
	}
	removeClaims(t, n, "checked")
	offers(t, n, 4)

	inject("corrupt")
	timed(t, "claim of a device that computes wrongly -> its pod's event", func() {
		start()
		awaitEvent(ctx, t, n, "checked", string(accel.CheckFailed))
	})
	offers(t, n, 3)
	m, err := stage.Machine(ctx, n.Guest)
	stage.Check(t, err)
	bad := slices.DeleteFunc(slices.Clone(m.Have[stage.Kind].Accelerators), func(a accel.Accelerator) bool {
		return a.Health.State != accel.Unhealthy
	})
	if len(bad) != 1 || bad[0].Health.Reason != accel.CheckFailed || bad[0].Health.Action != accel.ActionResetDevice {
		t.Fatalf("unhealthy are %+v", bad)
	}
	pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "checked", metav1.GetOptions{})
	stage.Check(t, err)
	if pod.Status.Phase != corev1.PodPending {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	removeClaims(t, n, "checked")
	inject("none")
	t.Logf("acceld reset:\n%s", sh(t, n.Guest, `acceld reset "$1"`, bad[0].ID))
	offers(t, n, 4)
}

func agentKilled(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 6*time.Minute)
	apply(t, n, stage.Claim("kept"), stage.ClaimPod("kept", image, "resourceClaimName: kept", "-expect", "1", "-hold",
		"2h"))
	stage.Check(t, n.WaitPod(ctx, "default", "kept", corev1.PodRunning))
	before := sh(t, n.Guest, `cat "$1"/*.json`, records)
	for i := range 5 {
		pid := agentPID(t, n.Guest)
		sh(t, n.Guest, `kill -9 "$1"; while kill -0 "$1" 2>/dev/null; do sleep 0.1; done`, pid)
		timed(t, fmt.Sprintf("kill -9 #%d -> registered, slices right", i+1), func() {
			sh(t, n.Guest,
				`for i in $(seq 300); do pgrep -f '^/usr/bin/acceld run' >/dev/null && exit 0; sleep 0.1; done; exit 1`)
			offers(t, n, 4)
		})
	}
	given(t, n, 1)
	if after := sh(t, n.Guest, `cat "$1"/*.json`, records); after != before {
		t.Errorf("the record was %s and is %s", before, after)
	}
	pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "kept", metav1.GetOptions{})
	stage.Check(t, err)
	if pod.Status.Phase != corev1.PodRunning || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod did not stay: %+v", pod.Status)
	}
	if sockets := sh(t, n.Guest, `ls /var/lib/kubelet/plugins_registry | grep -c acceld-`); sockets != "1" {
		t.Errorf("%s sockets are announced to the kubelet", sockets)
	}
	removeClaims(t, n, "kept")
}

// agentAway: the pod's end waits for the agent, as the kubelet has it, and nothing is left afterwards.
func agentAway(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 6*time.Minute)
	apply(t, n, stage.Claim("late"), stage.ClaimPod("late", image, "resourceClaimName: late", "-expect", "1", "-hold",
		"2h"))
	stage.Check(t, n.WaitPod(ctx, "default", "late", corev1.PodRunning))
	sh(t, n.Guest, "systemctl stop acceld.service")
	_, err := n.Kubectl(ctx, nil, "-n", "default", "delete", "pod", "late", "--wait=false")
	stage.Check(t, err)
	sh(t, n.Guest, `for i in $(seq 300); do pgrep edu-check >/dev/null || exit 0; sleep 0.1; done; exit 1`)
	sh(t, n.Guest, "systemctl start acceld.service")
	timed(t, "agent started -> claim taken back, four devices offered", func() {
		removeClaims(t, n, "late")
		offers(t, n, 4)
	})
}

func claimsOverRestarts(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	apply(t, n, stage.Claim("stay"), stage.ClaimPod("stay", image, "resourceClaimName: stay", "-expect", "1", "-hold",
		"2h"))
	stage.Check(t, n.WaitPod(ctx, "default", "stay", corev1.PodRunning))
	for i := range 3 {
		before, err := stage.Machine(ctx, n.Guest)
		stage.Check(t, err)
		begin := time.Now()
		stage.Check(t, n.RestartKubelet(ctx))
		restarted := time.Since(begin)
		_, err = stage.WaitMachine(ctx, n.Guest, "a new registration", func(m accel.Machine) bool {
			return m.Have[stage.Kind].Plugin.Registrations > before.Have[stage.Kind].Plugin.Registrations
		})
		stage.Check(t, err)
		offers(t, n, 4)
		t.Logf("%-60s %6.2f s (restart %.2f s)", fmt.Sprintf("kubelet restart #%d -> slices right", i+1),
			time.Since(begin).Seconds(), restarted.Seconds())
	}
	stage.Check(t, n.RestartEngine(ctx))
	apply(t, n, stage.Claim("next"), stage.ClaimPod("next", image, "resourceClaimName: next", "-expect", "1"))
	stage.Check(t, n.WaitPod(ctx, "default", "next", corev1.PodSucceeded))
	stage.Check(t, n.WaitPod(ctx, "default", "stay", corev1.PodRunning))
	removeClaims(t, n, "stay", "next")
}

func sickIsTainted(t *testing.T, n *bed.Node, _ string) {
	ctx := stage.Within(t, 3*time.Minute)
	m, err := stage.Machine(ctx, n.Guest)
	stage.Check(t, err)
	id := m.Have[stage.Kind].Accelerators[1].ID
	generation := slicesOf(ctx, t, n)[0].Spec.Pool.Generation
	timed(t, "error -> taint in the slice", func() {
		sh(t, n.Guest, `echo fail > /sys/bus/pci/devices/$1/inject_error`, id)
		offers(t, n, 3)
	})
	s := slicesOf(ctx, t, n)[0]
	if taints := s.Spec.Devices[1].Taints; len(taints) != 1 || taints[0].Value != string(accel.DeviceUnhealthy) ||
		taints[0].Effect != resourceapi.DeviceTaintEffectNoSchedule {
		t.Errorf("taints: %+v", taints)
	}
	if s.Spec.Pool.Generation != generation {
		t.Errorf("generation %d became %d for one device", generation, s.Spec.Pool.Generation)
	}
	timed(t, "error gone -> no taint", func() {
		sh(t, n.Guest, `echo none > /sys/bus/pci/devices/$1/inject_error`, id)
		offers(t, n, 4)
	})
}

// sickEndsPods: the control plane deletes the pod that has the sick device, and its Deployment starts another one on
// another device.
func sickEndsPods(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 6*time.Minute)
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml",
		[]byte(byClaims+"kinds: {qemu-edu: {repair: {noExecute: [ResetDevice]}}}\n"), 0o644))
	_, err := stage.WaitMachine(ctx, n.Guest, "the configuration to be in force", func(m accel.Machine) bool {
		def := m.Want.Kinds[stage.Kind]
		return def.Repair != nil && len(def.Repair.NoExecute) == 1
	})
	stage.Check(t, err)
	apply(t, n, stage.ClaimTemplate("ends"), stage.ClaimDeployment("victim", image, "resourceClaimTemplateName: ends", 1,
		"-expect", "1", "-hold", "2h"))
	loop := repairLoop{Node: n}
	pod := loop.replaced(t, "")
	device := held(t, n.Guest)
	timed(t, "fault -> another pod runs on another device", func() {
		sh(t, n.Guest, stage.Sicken, device)
		pod = loop.replaced(t, pod)
	})
	if now := loop.heldBy(t, pod); now == device {
		t.Errorf("the other pod has the sick device %s", device)
	}
	_, err = n.Kubectl(ctx, nil, "-n", "default", "delete", "--wait", "--cascade=foreground", "deployment/victim",
		"resourceclaimtemplate/ends")
	stage.Check(t, err)
	given(t, n, 0)
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(byClaims), 0o644))
	sh(t, n.Guest, `acceld reset "$1"`, device)
	offers(t, n, 4)
}

// restarted is a pod whose containers start again when they have ended.
func restarted(pod []byte) []byte {
	return bytes.Replace(pod, []byte("restartPolicy: Never"), []byte("restartPolicy: Always"), 1)
}

// claimOverReboot: the CDI specs are gone with the boot, the kubelet asks again, and the pod computes again.
func claimOverReboot(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 10*time.Minute)
	apply(t, n, stage.Claim("again"), restarted(stage.ClaimPod("again", image, "resourceClaimName: again", "-expect",
		"1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "again", corev1.PodRunning))
	stage.Check(t, n.Reboot(ctx, bed.Reboot{}))
	timed(t, "node up -> the pod computes again", func() {
		offers(t, n, 4)
		sh(t, n.Guest, `for i in $(seq 600); do pgrep edu-check >/dev/null && exit 0; sleep 0.2; done; exit 1`)
	})
	given(t, n, 1)
	removeClaims(t, n, "again")
}

// memoryShared is the example of per-card memory: two cards of 8 GiB, three pods of 5 GiB. Two run; the third waits.
func memoryShared(t *testing.T, n *bed.Node, s *stage.Stage, image string) {
	ctx := stage.Within(t, 6*time.Minute)
	for _, i := range []int{2, 3} {
		stage.Check(t, n.Unplug(ctx, i))
	}
	offers(t, n, 2)
	definition := readFile(t, s.File("vendors/qemu/edu.yaml")) +
		"capacity:\n  - name: memory\n    value: 8Gi\n    share: {default: 1Gi, min: 1Gi, step: 1Gi}\n"
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/definitions.d/edu.yaml", []byte(definition), 0o644))
	for {
		all := slicesOf(ctx, t, n)
		if len(all) == 1 && all[0].Spec.Devices[0].AllowMultipleAllocations != nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	var names []string
	for i := range 3 {
		names = append(names, fmt.Sprintf("part-%d", i))
		apply(t, n, stage.Claim(names[i], "capacity: {requests: {memory: 5Gi}}"),
			stage.ClaimPod(names[i], image, "resourceClaimName: "+names[i], "-expect", "1", "-hold", "2h"))
	}
	running := func() []string {
		var up []string
		list, err := clientset.Of(n).CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=claim"})
		stage.Check(t, err)
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				up = append(up, p.Name)
			}
		}
		return up
	}
	for len(running()) < 2 {
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(10 * time.Second) // the third would run by now
	up := running()
	if len(up) != 2 {
		t.Errorf("%v run on two cards", up)
	}
	// What is left of a card fits a smaller pod.
	apply(t, n, stage.Claim("small", "capacity: {requests: {memory: 3Gi}}"),
		stage.ClaimPod("small", image, "resourceClaimName: small", "-expect", "1"))
	stage.Check(t, n.WaitPod(ctx, "default", "small", corev1.PodSucceeded))
	if env := sh(t, n.Guest,
		`tr '\0' '\n' < /proc/$(pgrep -o edu-check)/environ | grep ^ACCELD_MEMORY_ | cut -d= -f2`); env != fmt.Sprint(
		5<<30) {
		t.Errorf("a container is told that it has %s bytes", env)
	}
	removeClaims(t, n, append(names, "small")...)
	sh(t, n.Guest, "rm /etc/acceld/definitions.d/edu.yaml")
	for _, i := range []int{2, 3} {
		stage.Check(t, n.Plug(ctx, i))
	}
	offers(t, n, 4)
}

// allocationSwitches: what a pod holds in one way is not offered in the other until the pod has ended.
func allocationSwitches(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 12*time.Minute)
	offers(t, n, 4)
	apply(t, n, stage.Claim("old"), stage.ClaimPod("old", image, "resourceClaimName: old", "-expect", "1", "-hold",
		"2h"))
	stage.Check(t, n.WaitPod(ctx, "default", "old", corev1.PodRunning))
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(byDevicePlugin), 0o644))
	timed(t, "to the device plugin -> three devices allocatable, no slice", func() {
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 3))
		for len(slicesOf(ctx, t, n)) > 0 {
			time.Sleep(200 * time.Millisecond)
		}
	})
	timed(t, "the previous pod deleted -> four devices", func() {
		removeClaims(t, n, "old")
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 4))
	})
	reaches(t, n.Guest, accel.Ready, soon)
	stage.Check(t, n.Apply(ctx, stage.Pod("plugged", image, 1, "-expect", "1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "plugged", corev1.PodRunning))
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(byClaims), 0o644))
	timed(t, "back to claims -> three devices offered", func() { offers(t, n, 3) })
	timed(t, "the previous pod deleted -> four devices", func() {
		remove(t, n, "plugged")
		offers(t, n, 4)
	})
	reaches(t, n.Guest, accel.Ready, soon)
}
