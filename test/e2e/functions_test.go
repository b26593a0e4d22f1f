package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// blind is a kind whose driver knows no device by its ids: QEMU's pci-testdev with the generic driver for programs.
const blind = `kind: example-blind
vendor: example.com
resource: blind
match:
  - {vendor: "1b36", device: "0005"}
driver:
  binds: uio_pci_generic
  override: true
  modules:
    - name: uio
    - name: uio_pci_generic
nodes:
  - glob: uio/uio*
`

// divided is a kind whose devices are divided into virtual functions: QEMU's NVMe controller.
const divided = `kind: example-divided
vendor: example.com
resource: divided
match:
  - {vendor: "1b36", device: "0010"}
driver:
  binds: nvme
  modules:
    - name: nvme_core
    - name: nvme
partitions:
  find: virtfn*
  form: /(?P<name>(?P<profile>virtfn)[0-9]+)$
  nodes:
    - {glob: nvme/nvme*, optional: true}
`

// grouped is a kind whose containers get the IOMMU group of a device, on a machine without an IOMMU.
const grouped = `kind: example-grouped
vendor: example.com
resource: grouped
match:
  - {vendor: "1af4", device: "1110"}
driver:
  binds: vfio-pci
  override: true
  modules:
    - name: vfio_iommu_type1
    - name: vfio_pci
nodes:
  - glob: /sys/class/vfio/{{.IOMMUGroup}}
container:
  nodes: [/dev/vfio/vfio]
`

// TestFunctions: devices are bound to a driver that knows no ids, and divided into virtual functions, by data alone;
// and everything is as before when it is no longer configured, or after a purge.
func TestFunctions(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{NoKubernetes: true, Devices: []string{
		"-device", "pci-testdev",
		"-device", "nvme-subsys,id=subsystem0",
		"-device", "nvme,serial=acceld,subsys=subsystem0,sriov_max_vfs=24,sriov_vq_flexible=48,sriov_vi_flexible=24," +
			"max_ioqpairs=50,msix_qsize=26",
		"-object", "memory-backend-ram,size=1M,id=shared", "-device", "ivshmem-plain,memdev=shared",
	}})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "sampleEvery: 1s\n"))
	for name, text := range map[string]string{"blind": blind, "divided": divided, "grouped": grouped} {
		stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/definitions.d/"+name+".yaml", []byte(text), 0o644))
	}
	before := kernelSays(t, g)
	sh(t, g, "systemctl enable --now acceld.socket acceld.service")
	t.Run("a driver without ids", func(t *testing.T) { boundByOverride(t, g) })
	t.Run("no IOMMU", func(t *testing.T) {
		has(t, g, "the missing group to be told", func(m accel.Machine) bool {
			b := m.Status["example-grouped"].Blocked
			return b != nil && b.Reason == accel.NoIOMMUGroup
		})
	})
	t.Run("virtual functions", func(t *testing.T) { dividedIntoFunctions(t, g) })
	t.Run("24 virtual functions", func(t *testing.T) { manyFunctions(t, g) })
	sh(t, g, "systemctl disable --now acceld.service acceld.socket")
	t.Logf("acceld purge:\n%s", sh(t, g, "acceld purge"))
	if after := kernelSays(t, g); after != before {
		t.Errorf("after the purge:\n%s\nbefore:\n%s", after, before)
	}
}

// kernelSays is what a purge must bring back: the driver, driver_override and the number of functions of each device.
func kernelSays(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `for d in /sys/bus/pci/devices/*; do
case $(cat $d/vendor):$(cat $d/device) in 0x1b36:0x0005|0x1b36:0x0010|0x1af4:0x1110) ;; *) continue ;; esac
echo $(basename $d) $(basename $(readlink $d/driver)) $(cat $d/driver_override) $(cat $d/sriov_numvfs 2>/dev/null)
done`)
}

// has waits for a state of the machine.
func has(t *testing.T, g *bed.Guest, what string, ok func(accel.Machine) bool) {
	t.Helper()
	_, err := stage.WaitMachine(stage.Within(t, 3*time.Minute), g, what, ok)
	stage.Check(t, err)
}

// boundByOverride follows a device through a kind that comes and goes.
func boundByOverride(t *testing.T, g *bed.Guest) {
	ready := func(m accel.Machine) bool {
		h := m.Have["example-blind"]
		return m.Status["example-blind"].State == accel.Ready && len(h.Accelerators) == 1 && len(h.Accelerators[0].Nodes) == 1
	}
	has(t, g, "the device to be ready", ready)
	bound := `d=$(dirname $(grep -l 0x0005 /sys/bus/pci/devices/*/device)); echo $(basename $(readlink $d/driver)) $(cat $d/driver_override)`
	if got := sh(t, g, bound); got != "uio_pci_generic uio_pci_generic" {
		t.Errorf("it is %q", got)
	}
	sh(t, g, "test -c /dev/uio0 && grep -q /dev/uio0 /var/run/cdi/*")
	sh(t, g, "systemctl kill -s KILL acceld.service")
	has(t, g, "the device to be ready after a kill", ready)
	sh(t, g, "systemd-run --unit=holder sh -c 'exec 3<>/dev/uio0; exec sleep 1h'; sleep 1; mv /etc/acceld/definitions.d/blind.yaml /root/")
	has(t, g, "the kind to go", func(m accel.Machine) bool { return m.Want.Kinds["example-blind"] == nil })
	time.Sleep(5 * time.Second)
	if got := sh(t, g, bound); !strings.HasPrefix(got, "uio_pci_generic") {
		t.Errorf("under a process that has it open: %q", got)
	}
	sh(t, g, "systemctl stop holder; for i in $(seq 60); do test -e /dev/uio0 || break; sleep 1; done")
	if got := sh(t, g, bound); strings.Contains(got, "uio_pci_generic") {
		t.Errorf("after the kind has gone: %q", got)
	}
	sh(t, g, "mv /root/blind.yaml /etc/acceld/definitions.d/")
	has(t, g, "the device to be ready again", ready)
}

// dividedIntoFunctions follows the number of virtual functions of a device.
func dividedIntoFunctions(t *testing.T, g *bed.Guest) {
	configure := func(count string) {
		t.Helper()
		text := "sampleEvery: 1s\nkinds: {example-divided: {functions: {count: " + count + "}}}\n"
		stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(text), 0o644))
	}
	parts := func(n int) func(accel.Machine) bool {
		return func(m accel.Machine) bool {
			accs := m.Have["example-divided"].Accelerators
			return len(accs) == 1 && accel.CountPresent(accs[0].Partitions) == n && len(accs[0].Deviations()) == 0
		}
	}
	has(t, g, "the whole device", parts(0))
	configure("2")
	has(t, g, "two functions", parts(2))
	configure("3")
	has(t, g, "three functions", parts(3))
	sh(t, g, `d=$(basename $(dirname $(ls -d /sys/bus/pci/drivers/nvme/0*/sriov_numvfs)))
echo $d > /sys/bus/pci/drivers/nvme/unbind; test -e /sys/bus/pci/devices/$d/driver || echo $d > /sys/bus/pci/drivers/nvme/bind`)
	has(t, g, "three functions after a new binding", parts(3))
	sh(t, g, "echo 0 | tee /sys/bus/pci/drivers/nvme/0*/sriov_numvfs")
	has(t, g, "three functions after somebody took them away", func(m accel.Machine) bool {
		accs := m.Have["example-divided"].Accelerators
		return len(accs) == 1 && accel.CountPresent(accs[0].Partitions) == 3
	})
	configure("25")
	has(t, g, "the refusal of too many", func(m accel.Machine) bool {
		accs := m.Have["example-divided"].Accelerators
		return len(accs) == 1 && len(accs[0].Settings) == 1 && accs[0].Settings[0].Reason() == accel.FunctionsFewer
	})
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte("sampleEvery: 1s\n"), 0o644))
	has(t, g, "the whole device again", parts(0))
}

// manyFunctions makes as many functions as a server card has, without a driver of the host. While a program has one of
// them, their number stays; they are there again after a boot.
func manyFunctions(t *testing.T, g *bed.Guest) {
	configure := func(count int) {
		t.Helper()
		stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", fmt.Appendf(nil,
			"sampleEvery: 1s\nkinds: {example-divided: {functions: {count: %d, autoprobe: false}}}\n", count), 0o644))
	}
	functions := func(count int) func(accel.Machine) bool {
		return func(m accel.Machine) bool {
			accs := m.Have["example-divided"].Accelerators
			return len(accs) == 1 && accel.CountPresent(accs[0].Partitions) == count && len(accs[0].Deviations()) == 0
		}
	}
	configure(24)
	timed(t, "24 functions configured -> there and offered", func() { has(t, g, "24 functions", functions(24)) })
	sh(t, g, `cd /sys/bus/pci/drivers/nvme/0*/virtfn23; echo uio_pci_generic > driver_override
echo $(basename $(pwd -P)) > /sys/bus/pci/drivers/uio_pci_generic/bind
systemd-run --unit=user sh -c "exec 3<>/dev/$(ls uio); exec sleep 1h"; sleep 1; systemctl is-active user`)
	configure(6)
	has(t, g, "a function that is in use to be named", func(m accel.Machine) bool {
		accs := m.Have["example-divided"].Accelerators
		return len(accs) == 1 && accel.CountPresent(accs[0].Partitions) == 24 && accs[0].Withheld != nil &&
			accs[0].Withheld.Reason == accel.FunctionsInUse && strings.Contains(accs[0].Withheld.Message, "sleep (pid ")
	})
	sh(t, g, "systemctl stop user")
	has(t, g, "six functions", functions(6))
	configure(24)
	has(t, g, "24 functions again", functions(24))
	stage.Check(t, g.Reboot(stage.Within(t, 10*time.Minute), bed.Reboot{}))
	has(t, g, "24 functions after the boot", functions(24))
}
