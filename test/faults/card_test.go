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
	"github.com/acceld/acceld/test/vm/clientset"
)

// cards are four kinds without device nodes, described as docs/definitions.md describes one. The first two are QEMU's
// igb, a network card with virtual functions. The others are two functions behind one port, which report errors of PCI
// Express as igb does not: a random number generator and a device for cryptography. Of each pair, the kubelet counts
// the first and claims give out the second.
func cards() map[string]string {
	return map[string]string{
		"example-port": `kind: example-port
resource: example.com/port
match: [{vendor: "8086", device: "10c9"}]
driver: {binds: igb, modules: [{name: igb}]}
container: {env: [EXAMPLE_GIVES=the card]}
`,
		"example-function": `kind: example-function
resource: example.com/function
match: [{vendor: "8086", device: "10ca"}]
driver: {binds: igbvf, modules: [{name: igbvf}]}
container: {env: [EXAMPLE_GIVES=a function]}
allocation: dra
`,
		"example-random": `kind: example-random
resource: example.com/random
match: [{vendor: "1af4", device: "1044"}]
driver: {binds: virtio-pci, modules: [{name: virtio_rng}]}
container: {env: [EXAMPLE_GIVES=numbers]}
`,
		"example-crypto": `kind: example-crypto
resource: example.com/crypto
match: [{vendor: "1af4", device: "1054"}]
driver: {binds: virtio-pci, modules: [{name: virtio_crypto}]}
container: {env: [EXAMPLE_GIVES=ciphers]}
allocation: dra
`,
	}
}

// rack is a node with all these devices.
type rack struct {
	*scene
	n *bed.Node
}

// plugged starts the node, plugs the devices in and waits until all are ready.
func plugged(t *testing.T, o bed.Options) *rack {
	t.Helper()
	sh := enter(t)
	sh.closeNode()
	n, err := sh.bed.StartNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n) })
	c := &rack{&scene{T: t, g: n.Guest, s: sh.stage}, n}
	c.Logf("Linux %s", c.sh("uname -r"))
	c.must(sh.stage.Units(t.Context(), c.g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"))
	c.must(stage.Credentials(t.Context(), n))
	c.define(cards())
	type values = map[string]any
	c.monitor("object-add", values{"qom-type": "cryptodev-backend-builtin", "id": "ciphers"})
	c.monitor("device_add", values{"driver": "igb", "bus": "slot0"})
	c.monitor("device_add", values{
		"driver": "virtio-crypto-pci", "bus": "slot1", "addr": "0.1", "aer": true, "cryptodev": "ciphers",
	})
	c.monitor("device_add", values{ // the first function, which shows all of them to the guest, is the last
		"driver": "virtio-rng-pci", "bus": "slot1", "addr": "0.0", "aer": true, "multifunction": true, "id": "random",
	})
	c.until("the card has its driver", "test -e /sys/bus/pci/devices/0000:01:00.0/driver")
	c.sh("echo 2 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs")
	c.must(sh.stage.Enable(t.Context(), c.g))
	c.await("agent started -> every function is healthy", soon, func(m accel.Machine) bool {
		return ready(m, "example-port", 1) && ready(m, "example-function", 2) && ready(m, "example-random", 1) &&
			ready(m, "example-crypto", 1)
	})
	return c
}

// monitor has QEMU's monitor carry out a command.
func (c *rack) monitor(command string, arguments map[string]any) {
	c.Helper()
	c.must(c.g.Monitor().Execute(c.within(soon), command, arguments, nil))
}

// define puts definitions where an administrator puts them.
func (c *scene) define(definitions map[string]string) {
	c.Helper()
	for kind, text := range definitions {
		c.must(c.g.WriteFile(c.Context(), "/etc/acceld/definitions.d/"+kind+".yaml", []byte(text), 0o644))
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

// learners wait, each by its name, until it knows of an error.
type learners map[string]func(ctx context.Context) error

// injects makes the random number generator report an error to its port, and logs when each learner knew.
func (c *rack) injects(what, name string, who learners) {
	c.Helper()
	ctx := c.within(soon)
	var wg sync.WaitGroup
	begin := time.Now()
	c.monitor("human-monitor-command", map[string]any{"command-line": "pcie_aer_inject_error random " + name})
	for learner, waits := range who {
		wg.Go(func() {
			if err := waits(ctx); err != nil {
				c.Errorf("%s: not %s: %v", what, learner, err)
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

// agent waits for the agent's own verdict about both functions behind the port.
func (c *rack) agent(state accel.HealthState) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := stage.WaitMachine(ctx, c.g, fmt.Sprintf("%s functions", state), func(m accel.Machine) bool {
			return allAre(m, "example-random", 1, state, accel.BusErrors) &&
				allAre(m, "example-crypto", 1, state, accel.BusErrors)
		})
		return err
	}
}

// condition waits for the node's condition to name both.
func (c *rack) condition(status corev1.ConditionStatus, state accel.HealthState) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.n.WaitNode(ctx, "the condition names both functions", func(node *corev1.Node) bool {
			return slices.ContainsFunc(node.Status.Conditions, func(have corev1.NodeCondition) bool {
				return have.Type == "AcceleratorsReady" && have.Status == status &&
					strings.Contains(have.Message, "example-random 0000:02:00.0 is "+string(state)) &&
					strings.Contains(have.Message, "example-crypto 0000:02:00.1 is "+string(state))
			})
		})
	}
}

// allocatable waits until the kubelet offers so many random number generators.
func (c *rack) allocatable(n int64) func(context.Context) error {
	return func(ctx context.Context) error { return c.n.WaitAllocatable(ctx, "example.com/random", n) }
}

// sliced waits until the only device for cryptography is in a slice with these taints.
func (c *rack) sliced(taints ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			var have []string
			list, err := clientset.Of(c.n).ResourceV1().ResourceSlices().List(ctx,
				metav1.ListOptions{FieldSelector: "spec.driver=example-crypto.acceld.dev"})
			if err == nil && len(list.Items) == 1 && len(list.Items[0].Spec.Devices) == 1 {
				for _, taint := range list.Items[0].Spec.Devices[0].Taints {
					have = append(have, taint.Value)
				}
				if slices.Equal(have, taints) {
					return nil
				}
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the device has the taints %q (%v): %w", have, err, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// errors: after an error that is not fatal, what is behind the port is degraded and still offered; after a fatal one it
// is offered to nobody. The other card stays as it is.
func (c *rack) errors() {
	c.Helper()
	c.must(c.allocatable(1)(c.within(soon)))
	c.must(c.sliced()(c.within(soon)))
	c.injects("not fatal", "POISON_TLP", learners{
		"degraded at the agent":         c.agent(accel.Degraded),
		"degraded by the condition":     c.condition(corev1.ConditionTrue, accel.Degraded),
		"allocatable, as it was before": c.allocatable(1),
		"without a taint, as before":    c.sliced(),
	})
	c.injects("fatal", "MALF_TLP", learners{
		"unhealthy at the agent":         c.agent(accel.Unhealthy),
		"unhealthy by the condition":     c.condition(corev1.ConditionFalse, accel.Unhealthy),
		"not allocatable at the kubelet": c.allocatable(0),
		"tainted in its slice":           c.sliced(string(accel.BusErrors)),
	})
	c.Logf("the kernel:\n%s", c.sh(`dmesg | grep -E 'Uncorrect|recover|link has been reset'`))
	c.Logf("acceld status:\n%s", c.sh("acceld status || true"))
	if m := c.machine(); !ready(m, "example-port", 1) || !ready(m, "example-function", 2) {
		c.Errorf("the other card is %+v and %+v", m.Have["example-port"], m.Have["example-function"])
	}
}

// podsGet: a pod by count and a pod by claim start, and get what the definitions name.
func (c *rack) podsGet() {
	c.Helper()
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default}, spec: {restartPolicy: Never,
containers: [{name: main, image: %q, command: [sh, -c, 'echo "$EXAMPLE_GIVES"'], resources: {%s}}]%s}}`
	image, claim := c.n.Image("bed/busybox:1"), string(stage.Claim("function"))
	begin := time.Now()
	c.must(c.n.Apply(c.Context(), fmt.Appendf(nil, pod, "counted", image, `limits: {example.com/port: "1"}`, "")))
	c.must(c.n.Apply(c.Context(), []byte(strings.ReplaceAll(claim, stage.Class, "example-function.acceld.dev"))))
	c.must(c.n.Apply(c.Context(), fmt.Appendf(nil, pod, "claimed", image, "claims: [{name: function}]",
		", resourceClaims: [{name: function, resourceClaimName: function}]")))
	for name, want := range map[string]string{"counted": "the card", "claimed": "a function"} {
		c.must(c.n.WaitPod(c.within(2*soon), "default", name, corev1.PodSucceeded))
		log, err := c.n.PodLog(c.within(soon), "default", name)
		c.must(err)
		if got := strings.TrimSpace(log); got != want {
			c.Errorf("pod %s got %q, want %q", name, got, want)
		}
	}
	c.Logf("%-70s %6.2f s", "two pods applied -> ended well", time.Since(begin).Seconds())
}

// Test29_CardErrors: cards that nobody has named are ready, and pods get them; one of them reports errors to its port.
func Test29_CardErrors(t *testing.T) {
	c := plugged(t, bed.Options{})
	c.podsGet()
	c.errors()
}

// Test30_CardErrorsLater: the errors on a later kernel, which words them otherwise.
func Test30_CardErrorsLater(t *testing.T) { plugged(t, bed.Options{Kernel: bed.Later}).errors() }
