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

// recipe is what is added to the definition of the devices: a unit that must run before the driver is touched, a
// program that is told the version of the API server, and a line of the kernel and one of a unit's journal that must be
// there before anything is offered.
const recipe = `
steps:
  driver-container:
    before:
      - name: the power sequencer runs
        wait: {unit: power-sequencer.service}
        timeout: 3s
    after:
      - name: the driver has found a device
        waitForLogs: {kernel: true, match: 'edu 0000:.*: edu[0-9]+ ready, serial'}
        timeout: 3s
      - name: the cluster is one that the vendor supports
        validate: {argv: [echo, 'cluster {{.ClusterVersion}}'], output: '^cluster 1\.37$'}
  runtime-enablement:
    after:
      - name: the board is awake
        waitForLogs: {kernel: true, match: 'sysrq: HELP'}
        timeout: 3s
  device-plugin:
    before:
      - name: the firmware is up
        waitForLogs: {unit: firmware.service, match: 'firmware [0-9]+ is up'}
        timeout: 3s
`

// above is a kind on the same devices whose driver needs that of the other kind, as GDRCopy's needs the GPU's.
const above = `kind: qemu-above
title: What comes after the driver
resource: qemu.org/above
after: [qemu-edu]
match: [{vendor: "1234", device: "11e8"}]
driver: {binds: edu, modules: [{name: dummy}]}
nodes: [{glob: "accelerator_edu/edu*"}]
`

// TestRecipe is a definition with steps of its own, and a kind that comes after another, under the agent's DaemonSet.
// Each thing that is waited for is not there at first: the reason is said, and nothing after it is done. Its parts
// build on each other.
func TestRecipe(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	g := n.Guest
	stage.Check(t, s.SourceOf(t.Context(), g, stage.Version))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	for name, text := range map[string]string{
		"edu":   readFile(t, s.File("vendors/qemu/edu.yaml")) + recipe,
		"above": above,
	} {
		stage.Check(t, n.WriteFile(t.Context(), "/etc/acceld/definitions.d/"+name+".yaml", []byte(text), 0o644))
	}
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	inOrder(t, n, image,
		part{"a unit that does not run", recipeUnit},
		part{"a line of the kernel, which no process can write", recipeKernel},
		part{"a line of a unit's journal", recipeJournal},
		part{"ready, with the kind that comes after", recipeReady},
		part{"the first driver goes, and the kinds come back in their order", recipeAgain},
	)
}

// blocks waits until a kind is blocked for a reason with these words, and everybody is told: the machine, the node's
// condition and acceld status.
func blocks(t *testing.T, n *bed.Node, kind string, state accel.State, reason accel.Reason, words ...string) {
	t.Helper()
	m, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, fmt.Sprintf("%s blocked: %s", kind, reason),
		func(m accel.Machine) bool {
			s := m.Status[kind]
			if s.State != state || s.Blocked == nil || s.Blocked.Reason != reason {
				return false
			}
			for _, w := range words {
				if !strings.Contains(s.Blocked.Message, w) {
					return false
				}
			}
			return true
		})
	if err != nil {
		t.Fatalf("%v\n%s is %+v", err, kind, m.Status[kind])
	}
	t.Logf("%s is %s: %s", kind, state, m.Status[kind].Blocked.Message)
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "the condition with the words", func(node *corev1.Node) bool {
		for _, c := range node.Status.Conditions {
			if c.Type == "AcceleratorsReady" && c.Status == corev1.ConditionFalse {
				all := true
				for _, w := range words {
					all = all && strings.Contains(c.Message, w)
				}
				return all
			}
		}
		return false
	}))
}

func recipeUnit(t *testing.T, n *bed.Node, _ string) {
	blocks(t, n, stage.Kind, accel.DriverMissing, accel.StepFailed, "the power sequencer runs",
		`unit "power-sequencer.service" is not active`)
	blocks(t, n, "qemu-above", accel.DriverMissing, accel.PrerequisitePending, `comes after "qemu-edu"`)
	sh(t, n.Guest, `! test -e /sys/module/edu && ! test -e /sys/module/dummy`)
	// One that has failed does not run either. It lives for a second, because systemd-run may call a unit that ends at
	// once a failed job.
	sh(t, n.Guest,
		`systemd-run --unit=power-sequencer.service --property=Type=exec sh -c 'sleep 1; exit 3'; while systemctl is-active --quiet power-sequencer.service; do sleep 0.1; done`)
	blocks(t, n, stage.Kind, accel.DriverMissing, accel.StepFailed, `unit "power-sequencer.service" is not active`)
	sh(t, n.Guest, `! test -e /sys/module/edu; systemctl reset-failed power-sequencer.service`)
	timed(t, "the unit runs -> the driver is loaded", func() {
		sh(t, n.Guest,
			`systemd-run --unit=power-sequencer.service sleep infinity; for i in $(seq 800); do test -e /sys/module/edu && exit 0; sleep 0.1; done; exit 1`)
	})
}

func recipeKernel(t *testing.T, n *bed.Node, _ string) {
	blocks(t, n, stage.Kind, accel.RuntimeMissing, accel.StepFailed, "the board is awake", "the kernel has not said")
	sh(t, n.Guest, `echo 'sysrq: HELP' > /dev/kmsg; sleep 8`) // longer than a step and what follows it
	blocks(t, n, stage.Kind, accel.RuntimeMissing, accel.StepFailed, "the kernel has not said")
	sh(t, n.Guest, `echo h > /proc/sysrq-trigger`)
}

func recipeJournal(t *testing.T, n *bed.Node, _ string) {
	blocks(t, n, stage.Kind, accel.PluginMissing, accel.StepFailed, "the firmware is up",
		`the journal of "firmware.service" has no line`)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 0))
	// The words of another unit are not those of this one.
	sh(t, n.Guest, `systemd-run --unit=impostor.service echo 'firmware 1 is up'; sleep 8`)
	blocks(t, n, stage.Kind, accel.PluginMissing, accel.StepFailed, `the journal of "firmware.service" has no line`)
	sh(t, n.Guest, `systemd-run --unit=firmware.service sh -c 'echo "firmware 7 is up"; sleep infinity'`)
}

func recipeReady(t *testing.T, n *bed.Node, image string) {
	reaches(t, n.Guest, accel.Ready, 2*soon)
	_, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, "the kind that comes after",
		func(m accel.Machine) bool { return m.Status["qemu-above"].State == accel.Ready })
	stage.Check(t, err)
	// The other module is the younger one.
	sh(t, n.Guest, `test $(stat -c %Y /sys/module/dummy) -ge $(stat -c %Y /sys/module/edu)`)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 1))
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), "qemu.org/above", 1))
	stage.Check(t, n.WaitCondition(stage.Within(t, soon), "AcceleratorsReady", "True", ""))
	ctx := stage.Within(t, 5*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("cooked", image, 1, "-expect", "1")))
	stage.Check(t, n.WaitPod(ctx, "default", "cooked", corev1.PodSucceeded))
	remove(t, n, "cooked")
}

// recipeAgain takes both drivers away while the unit does not run: the kinds wait again, and come back in their order.
func recipeAgain(t *testing.T, n *bed.Node, _ string) {
	sh(t, n.Guest, `systemctl stop power-sequencer.service; rmmod dummy; rmmod edu`)
	blocks(t, n, stage.Kind, accel.DriverMissing, accel.StepFailed, `unit "power-sequencer.service" is not active`)
	blocks(t, n, "qemu-above", accel.DriverMissing, accel.PrerequisitePending, `comes after "qemu-edu"`)
	sh(t, n.Guest, `systemd-run --unit=power-sequencer.service sleep infinity`)
	reaches(t, n.Guest, accel.Ready, 2*soon)
	_, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, "the kind that comes after",
		func(m accel.Machine) bool { return m.Status["qemu-above"].State == accel.Ready })
	stage.Check(t, err)
}
