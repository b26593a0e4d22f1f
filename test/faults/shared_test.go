package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/vm/bed"
)

// Two kinds that are handed to programs by vfio-pci: a network card, and the virtual functions of another one. Each is
// taken from its own driver.
const (
	adapterDefinition = `kind: example-adapter
resource: example.com/adapter
match: [{vendor: "8086", device: "10d3"}]
driver: {binds: vfio-pci, conflicts: [e1000e], takeover: true, modules: [{name: vfio_pci}]}
container: {env: [EXAMPLE_GIVES=the adapter]}
`
	assignedDefinition = `kind: example-assigned
resource: example.com/assigned
match: [{vendor: "8086", device: "10ca"}]
driver: {binds: vfio-pci, conflicts: [igbvf], takeover: true, modules: [{name: vfio_pci}]}
container: {env: [EXAMPLE_GIVES=a function]}
`
)

// cardDrivers prints each function of the two cards with its driver and its driver_override.
const cardDrivers = `for d in /sys/bus/pci/devices/0000:0[12]:*; do
	echo "$(basename $d) $(basename $(readlink $d/driver)) $(cat $d/driver_override)"; done`

// Test31_SharedModule: two kinds need one module, and the agent starts with both twenty times. Each time every function
// has its driver, nothing has failed, and a purge gives all of them back.
func Test31_SharedModule(t *testing.T) {
	c := light(t, bed.Options{Cmdline: "intel_iommu=on", Devices: []string{
		"-device", "intel-iommu", "-device", "igb,bus=slot0,romfile=", "-device", "e1000e,bus=slot1,romfile=",
	}})
	c.define(map[string]string{"adapter": adapterDefinition, "assigned": assignedDefinition})
	c.sh(`modprobe -a igb igbvf e1000e; echo 2 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs`)
	const own = "0000:01:00.0 igb (null)\n0000:01:10.0 igbvf (null)\n0000:01:10.2 igbvf (null)\n" +
		"0000:02:00.0 e1000e (null)"
	const taken = "0000:01:00.0 igb (null)\n0000:01:10.0 vfio-pci vfio-pci\n0000:01:10.2 vfio-pci vfio-pci\n" +
		"0000:02:00.0 vfio-pci vfio-pci"
	if got := c.sh(cardDrivers); got != own {
		t.Fatalf("the guest has\n%s\nwant\n%s", got, own)
	}
	const rounds = 20
	var sum time.Duration
	for i := range rounds {
		begin := time.Now()
		c.start()
		c.await("agent started -> both kinds ready", soon, func(m accel.Machine) bool {
			return ready(m, "example-adapter", 1) && ready(m, "example-assigned", 2)
		})
		sum += time.Since(begin)
		if got := c.sh(cardDrivers); got != taken {
			t.Fatalf("round %d: the guest has\n%s\nwant\n%s", i+1, got, taken)
		}
		if failed := c.sh(
			`curl -fsS http://127.0.0.1:9480/metrics | grep ^acceld_step_failures_total || true`); failed != "" {
			t.Errorf("round %d: %s", i+1, failed)
		}
		c.halt()
		out := c.sh("acceld purge")
		if got := c.sh(cardDrivers); got != own || strings.Contains(c.sh("cat /proc/modules"), "vfio_pci ") {
			t.Fatalf("round %d: after the purge\n%s\nthe guest has\n%s\nwant\n%s", i+1, out, got, own)
		}
	}
	t.Logf("%d starts with both kinds, %.2f s to ready on average", rounds, sum.Seconds()/rounds)
}
