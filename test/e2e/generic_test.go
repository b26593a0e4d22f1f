package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// fiveLines is a kind of which nothing is said but ids, driver and nodes, as docs/vendors.md shows one.
const fiveLines = `kind: example-npu
resource: example.com/npu
match: [{vendor: "1234", device: "11e8"}]
driver: {binds: edu, modules: [{name: edu}]}
nodes: [{glob: "accelerator_edu/edu*"}]
`

// TestFiveLines is a host on which nobody knows the devices: what the kernel says of every device is there all the
// same, and what the bus says of them is their health. It is Debian 12 with its full kernel, which has the drivers of
// two built-in kinds.
func TestFiveLines(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, s.Units(t.Context(), g, ""))
	t.Run("drivers that the distribution has need no configuration", func(t *testing.T) {
		for kind, want := range map[string]string{
			"amd-gpu": "(installed", "intel-gpu": "(installed",
			"habana-gaudi": string(accel.NoDriverSource),
		} {
			if out := sh(t, g, `acceld driver preflight "$1" --kernel "$(uname -r)" 2>&1 || true`,
				kind); !strings.Contains(out, want) {
				t.Errorf("%s: want %q in\n%s", kind, want, out)
			}
		}
	})
	stage.Sh(t, g, 10*time.Minute, "acceld driver ensure qemu-edu")
	sh(t, g,
		`mkdir -p /etc/acceld/definitions.d && printf '%s' "$1" > /etc/acceld/definitions.d/example-npu.yaml && printf 'kinds: {qemu-edu: {enabled: false}}\n' > /etc/acceld/config.yaml && acceld definition validate /etc/acceld/definitions.d/example-npu.yaml`,
		fiveLines)
	stage.Check(t, s.Enable(t.Context(), g))
	await := func(what string, ok func(accel.Accelerator) bool) {
		t.Helper()
		timed(t, what, func() {
			_, err := stage.WaitMachine(stage.Within(t, soon), g, what, func(m accel.Machine) bool {
				have := m.Have["example-npu"]
				return m.Status["example-npu"].State == accel.Ready && len(have.Accelerators) == 2 &&
					ok(have.Accelerators[0])
			})
			stage.Check(t, err)
		})
	}
	await("two devices, read", func(a accel.Accelerator) bool {
		return a.Health.State == accel.Healthy && len(a.Metrics) > 0
	})
	page := sh(t, g, "curl -fsS http://127.0.0.1:9480/metrics")
	for _, want := range []string{
		`accelerator_pci_power_state{accelerator_id="0000:01:00.0",vendor="example"} 0`,
		`accelerator_info{accelerator_id="0000:01:00.0"`,
		`accelerator_up{accelerator_id="0000:02:00.0",vendor="example"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics has no %s:\n%s", want, page)
		}
	}
	stage.Check(t, g.Monitor().Execute(t.Context(), "human-monitor-command",
		map[string]any{"command-line": "pcie_aer_inject_error slot0 POISON_TLP"}, nil))
	await("the port above counts an error", func(a accel.Accelerator) bool {
		return a.Health.State == accel.Degraded && a.Health.Reason == accel.BusErrors
	})
	t.Logf("acceld status:\n%s", sh(t, g, "acceld status"))
}
