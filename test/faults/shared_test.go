package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/vm/bed"
)

// assigned are kinds that programs drive themselves, by vfio-pci. A network card, and the virtual functions of another
// one, are taken from their drivers. The last device can have no driver, because nobody gives vfio-pci its id: its kind
// fails after each load and unloads what it can.
func assigned() map[string]string {
	return map[string]string{
		"example-adapter": `kind: example-adapter
resource: example.com/adapter
match: [{vendor: "8086", device: "10d3"}]
driver: {binds: vfio-pci, conflicts: [e1000e], takeover: true, modules: [{name: vfio_pci}]}
`,
		"example-function": `kind: example-function
resource: example.com/function
match: [{vendor: "8086", device: "10ca"}]
driver: {binds: vfio-pci, conflicts: [igbvf], takeover: true, modules: [{name: vfio_pci}]}
`,
		"example-stray": `kind: example-stray
resource: example.com/stray
match: [{vendor: "1b36", device: "0005"}]
driver: {binds: vfio-pci, modules: [{name: vfio_pci}]}
`,
	}
}

// assignedServe reports whether the first two kinds have their driver, and the third has failed.
func assignedServe(m accel.Machine) bool {
	for kind, n := range map[string]int{"example-adapter": 1, "example-function": 2} {
		if !m.Have[kind].Driver.Serves || !allAre(m, kind, n, accel.Healthy, "") {
			return false
		}
	}
	f := m.Status["example-stray"].Blocked
	return f != nil && f.Reason == accel.ProbeFailed
}

// drivers prints each function behind a port with its driver and its driver_override.
const drivers = `for d in /sys/bus/pci/devices/0000:0[12]:*; do
	echo "$(basename $d) $(basename $(readlink $d/driver)) $(cat $d/driver_override)"; done`

// Test31_SharedModule: two kinds need one module, a third one fails with it, and the agent starts with all of them
// twenty times. Each time every function has its driver, nothing of the two has failed, and a purge gives all back.
func Test31_SharedModule(t *testing.T) {
	c := light(t, bed.Options{Cmdline: "intel_iommu=on", Devices: []string{
		"-device", "intel-iommu", "-device", "igb,bus=slot0,romfile=", "-device", "e1000e,bus=slot1,romfile=",
		"-device", "pci-testdev,addr=18.0",
	}})
	c.define(assigned())
	c.sh(`modprobe -a igb igbvf e1000e; echo 2 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs`)
	const own = "0000:01:00.0 igb (null)\n0000:01:10.0 igbvf (null)\n0000:01:10.2 igbvf (null)\n" +
		"0000:02:00.0 e1000e (null)"
	const taken = "0000:01:00.0 igb (null)\n0000:01:10.0 vfio-pci vfio-pci\n0000:01:10.2 vfio-pci vfio-pci\n" +
		"0000:02:00.0 vfio-pci vfio-pci"
	if got := c.sh(drivers); got != own {
		t.Fatalf("the guest has\n%s\nwant\n%s", got, own)
	}
	const rounds = 20
	var sum time.Duration
	for i := range rounds {
		begin := time.Now()
		c.start()
		c.await("agent started -> two kinds serve, the third has failed", soon, assignedServe)
		sum += time.Since(begin)
		if got := c.sh(drivers); got != taken {
			t.Fatalf("round %d: the guest has\n%s\nwant\n%s", i+1, got, taken)
		}
		if failed := c.sh(`curl -fsS http://127.0.0.1:9480/metrics |
grep '^acceld_step_failures_total{kind="example-\(adapter\|function\)"' || true`); failed != "" {
			t.Errorf("round %d: %s", i+1, failed)
		}
		c.halt()
		out := c.sh("acceld purge")
		if got := c.sh(drivers); got != own || strings.Contains(c.sh("cat /proc/modules"), "vfio") {
			t.Fatalf("round %d: after the purge\n%s\nthe guest has\n%s\nwant\n%s", i+1, out, got, own)
		}
	}
	t.Logf("%d starts with all kinds, %.2f s on average", rounds, sum.Seconds()/rounds)
}
