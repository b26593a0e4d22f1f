package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// The kinds of QEMU's igb, a PCI Express card with virtual functions, described as docs/definitions.md describes one.
// Neither has device nodes.
const (
	portKind     = "example-port"
	functionKind = "example-function"

	portDefinition = `kind: example-port
resource: example.com/port
match: [{vendor: "8086", device: "10c9"}]
driver: {binds: igb, modules: [{name: igb}]}
container: {env: [EXAMPLE_GIVES=the card]}
`
	functionDefinition = `kind: example-function
resource: example.com/function
match: [{vendor: "8086", device: "10ca"}]
driver: {binds: igbvf, modules: [{name: igbvf}]}
container: {env: [EXAMPLE_GIVES=a function]}
allocation: dra
`
)

// card is a node with the card in its first slot. The kubelet counts the physical function; claims give out the two
// virtual ones.
type card struct {
	*scene
	n *bed.Node
}

// cardNode starts the node and waits until everything about the card is ready.
func cardNode(t *testing.T, o bed.Options) *card {
	t.Helper()
	sh := enter(t)
	sh.closeNode()
	n, err := sh.bed.StartNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n) })
	c := &card{&scene{T: t, g: n.Guest, s: sh.stage}, n}
	c.must(sh.stage.Units(t.Context(), c.g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"))
	c.must(stage.Credentials(t.Context(), n))
	c.define(portDefinition, functionDefinition)
	c.must(c.g.Monitor().Execute(t.Context(), "device_add",
		map[string]any{"driver": "igb", "id": "card", "bus": "slot0"}, nil))
	c.until("the card has its driver", "test -e /sys/bus/pci/devices/0000:01:00.0/driver")
	c.sh("echo 2 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs")
	c.must(sh.stage.Enable(t.Context(), c.g))
	c.await("agent started -> the card and its functions are healthy", soon, func(m accel.Machine) bool {
		return ready(m, portKind, 1) && ready(m, functionKind, 2)
	})
	return c
}

// define puts definitions where an administrator puts them.
func (c *scene) define(definitions ...string) {
	c.Helper()
	for i, text := range definitions {
		c.must(c.g.WriteFile(c.Context(), fmt.Sprintf("/etc/acceld/definitions.d/%d.yaml", i), []byte(text), 0o644))
	}
}

// ready reports whether a kind is ready with so many healthy devices.
func ready(m accel.Machine, kind string, n int) bool {
	return m.Status[kind].State == accel.Ready && allAre(m, kind, n, accel.Healthy, "")
}

// allAre reports whether a kind has so many devices, each in a state for a reason.
func allAre(m accel.Machine, kind string, n int, state accel.HealthState, reason accel.Reason) bool {
	accs := m.Have[kind].Accelerators
	return len(accs) == n && !slices.ContainsFunc(accs, func(a accel.Accelerator) bool {
		return a.Health.State != state || a.Health.Reason != reason
	})
}

// learners wait until each of those who should know of errors of the bus knows.
type learners map[string]func(ctx context.Context) error

// injects makes the card send an error and logs when each learner knew.
func (c *card) injects(what, name string, who learners) {
	c.Helper()
	ctx := c.within(soon)
	var wg sync.WaitGroup
	begin := time.Now()
	c.must(c.g.Monitor().Execute(ctx, "human-monitor-command",
		map[string]any{"command-line": "pcie_aer_inject_error card " + name}, nil))
	for learner, waits := range who {
		wg.Go(func() {
			if err := waits(ctx); err != nil {
				c.Errorf("%s: %s does not know: %v", what, learner, err)
				return
			}
			c.Logf("%-70s %6.2f s", what+" -> "+learner, time.Since(begin).Seconds())
		})
	}
	wg.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// agent waits for the agent's own verdict about every function of the card.
func (c *card) agent(state accel.HealthState) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := stage.WaitMachine(ctx, c.g, fmt.Sprintf("%s functions", state), func(m accel.Machine) bool {
			return allAre(m, portKind, 1, state, accel.BusErrors) && allAre(m, functionKind, 2, state, accel.BusErrors)
		})
		return err
	}
}

// condition waits for the node's condition with a word in its message.
func (c *card) condition(status corev1.ConditionStatus, word string) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.n.WaitNode(ctx, "the condition says "+word, func(node *corev1.Node) bool {
			return slices.ContainsFunc(node.Status.Conditions, func(have corev1.NodeCondition) bool {
				return have.Type == "AcceleratorsReady" && have.Status == status && strings.Contains(have.Message, word)
			})
		})
	}
}

// taints are the values of the taints of the devices in the slices.
func (c *card) taints(ctx context.Context) (devices int, taints []string) {
	c.Helper()
	list, err := c.n.Kube().ResourceV1().ResourceSlices().List(ctx,
		metav1.ListOptions{FieldSelector: "spec.driver=" + functionKind + ".acceld.dev"})
	if err != nil {
		return 0, nil
	}
	for _, s := range list.Items {
		devices += len(s.Spec.Devices)
		for _, d := range s.Spec.Devices {
			for _, taint := range d.Taints {
				taints = append(taints, taint.Value)
			}
		}
	}
	return devices, taints
}

// slicesTell waits until both virtual functions are tainted for bus errors.
func (c *card) slicesTell(ctx context.Context) error {
	for {
		devices, taints := c.taints(ctx)
		if devices == 2 && slices.Equal(taints, []string{string(accel.BusErrors), string(accel.BusErrors)}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d devices with taints %q: %w", devices, taints, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// podsGet: a pod by count and a pod by claim start, and get what the definitions name.
func (c *card) podsGet() {
	c.Helper()
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default}, spec: {restartPolicy: Never,
containers: [{name: main, image: %q, command: [sh, -c, 'echo "$EXAMPLE_GIVES"'], resources: {%s}}]%s}}`
	image, class := c.n.Image("bed/busybox:1"), functionKind+".acceld.dev"
	c.must(c.n.Apply(c.Context(), fmt.Appendf(nil, pod, "counted", image, `limits: {example.com/port: "1"}`, "")))
	c.must(c.n.Apply(c.Context(), []byte(strings.ReplaceAll(string(stage.Claim("function")), stage.Class, class))))
	c.must(c.n.Apply(c.Context(), fmt.Appendf(nil, pod, "claimed", image, "claims: [{name: function}]",
		", resourceClaims: [{name: function, resourceClaimName: function}]")))
	for name, want := range map[string]string{"counted": "the card", "claimed": "a function"} {
		begin := time.Now()
		c.must(c.n.WaitPod(c.within(2*soon), "default", name, corev1.PodSucceeded))
		c.Logf("%-70s %6.2f s", "pod "+name+" has ended well", time.Since(begin).Seconds())
		log, err := c.n.PodLog(c.within(soon), "default", name)
		c.must(err)
		if got := strings.TrimSpace(log); got != want {
			c.Errorf("pod %s got %q, want %q", name, got, want)
		}
	}
}

// Test29_CardErrors: a card behind a port reports an error that is not fatal, and then one that is.
func Test29_CardErrors(t *testing.T) {
	c := cardNode(t, bed.Options{})
	c.podsGet()
	c.errors()
}

// Test30_CardErrorsLater: the same on a later kernel, which reports them in other words.
func Test30_CardErrorsLater(t *testing.T) {
	c := cardNode(t, bed.Options{Kernel: bed.Later})
	c.errors()
}

// errors: after the first error the card and its functions are degraded and still offered, after the second they are
// offered to nobody.
func (c *card) errors() {
	c.Helper()
	c.Logf("Linux %s", c.sh("uname -r"))
	c.must(c.n.WaitAllocatable(c.within(soon), "example.com/port", 1))
	c.injects("not fatal", "POISON_TLP", learners{
		"degraded at the agent":         c.agent(accel.Degraded),
		"named in the node's condition": c.condition(corev1.ConditionTrue, string(accel.Degraded)),
	})
	if devices, taints := c.taints(c.within(soon)); devices != 2 || len(taints) > 0 {
		c.Errorf("degraded: %d devices in the slices, taints %q", devices, taints)
	}
	c.must(c.n.WaitAllocatable(c.within(soon), "example.com/port", 1))
	c.injects("fatal", "MALF_TLP", learners{
		"unhealthy at the agent": c.agent(accel.Unhealthy),
		"not allocatable at the kubelet": func(ctx context.Context) error {
			return c.n.WaitAllocatable(ctx, "example.com/port", 0)
		},
		"tainted in the slices":         c.slicesTell,
		"false in the node's condition": c.condition(corev1.ConditionFalse, string(accel.Unhealthy)),
	})
	c.Logf("the kernel:\n%s", c.sh(`dmesg | grep -iE 'AER|Bus Error|recovery' | tail -n 30`))
	c.Logf("acceld status:\n%s", c.sh("acceld status || true"))
}
