package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// Test17_BusError: the root port above a device reports an uncorrectable error that is not fatal. The device is
// conventional PCI and computes on, so nothing is taken away from anybody, and the kernel's words stay findable.
func Test17_BusError(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	c.start()
	c.await("agent started", building, healthy(1))
	port := c.sh("basename $(dirname $(readlink -f /sys/bus/pci/devices/0000:01:00.0))")
	c.must(c.g.Monitor().Execute(c.Context(), "human-monitor-command",
		map[string]any{"command-line": "pcie_aer_inject_error slot0 POISON_TLP"}, nil))
	c.until("the port has counted it", `grep -q 'TOTAL_ERR_NONFATAL 1' /sys/bus/pci/devices/$1/aer_dev_nonfatal`, port)
	c.until("the kernel has said it", `dmesg | grep -q "$1.*\(AER\|Uncorrect\)"`, port)
	c.await("told, and still in use", soon, func(m accel.Machine) bool {
		return healthy(1)(m) && isIn(m, accel.Degraded, accel.BusErrors)
	})
	c.sh("edu-check -expect 1")
	t.Logf("acceld status:\n%s", c.sh("acceld status"))
}

// isIn reports whether the first device is in a state for a reason.
func isIn(m accel.Machine, state accel.HealthState, reason accel.Reason) bool {
	h := m.Have[stage.Kind].Accelerators[0].Health
	return h.State == state && h.Reason == reason
}

// Test27_KernelLog: the driver reports errors to the kernel log and nowhere else. One that is not serious is told for
// its time, a serious one until the driver is bound again, whatever happens to the agent.
func Test27_KernelLog(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 2})
	c.store(stage.Version)
	c.start()
	c.await("agent started", building, healthy(2))
	const device, inject = "0000:01:00.0", "echo %s > /sys/bus/pci/devices/0000:01:00.0/inject_error"
	c.sh(fmt.Sprintf(inject, "corrected"))
	c.await("a corrected error -> degraded, in use", soon, func(m accel.Machine) bool {
		return healthy(2)(m) && isIn(m, accel.Degraded, accel.DeviceFault)
	})
	c.sh(fmt.Sprintf(inject, "dead"))
	c.await("it is dead -> unhealthy", soon, func(m accel.Machine) bool { return healthy(1)(m) })
	c.sh(fmt.Sprintf(inject, "none"))
	c.await("its attribute says ok, its driver has said that it does not answer", soon, func(m accel.Machine) bool {
		a := m.Have[stage.Kind].Accelerators[0]
		return isIn(m, accel.Unhealthy, accel.DeviceFault) && a.Health.Action == accel.ActionResetDevice &&
			strings.Contains(a.Health.Evidence, "EDU-ERR 79")
	})
	c.sh("echo 'edu 0000:02:00.0: EDU-ERR 79: forged' > /dev/kmsg")
	c.sh("systemctl kill -s KILL acceld.service; systemctl reset-failed acceld.service 2>/dev/null || true")
	c.start()
	m := c.await("another agent -> the same", soon, func(m accel.Machine) bool {
		return healthy(1)(m) && isIn(m, accel.Unhealthy, accel.DeviceFault)
	})
	if h := m.Have[stage.Kind].Accelerators[1].Health; h.State != accel.Healthy {
		t.Errorf("a line of a process has made the other device %+v", h)
	}
	t.Logf("acceld status:\n%s", c.sh("acceld status || true"))
	c.sh(`curl -s http://127.0.0.1:9480/metrics | grep -q '^accelerator_required_action{accelerator_id="` + device +
		`",action="ResetDevice".* 1$'`)
	c.sh("echo " + device + " > /sys/bus/pci/drivers/edu/unbind; echo " + device + " > /sys/bus/pci/drivers/edu/bind")
	c.await("bound again -> both usable", soon, func(m accel.Machine) bool {
		return healthy(2)(m) && isIn(m, accel.Healthy, "")
	})
}

// topology is a machine with two memory nodes, an accelerator on the far one, and a disk controller with virtual
// functions.
func topology() []string {
	return []string{
		"-object", "memory-backend-ram,id=m0,size=1024M", "-object", "memory-backend-ram,id=m1,size=1024M",
		"-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1",
		"-device", "pxb-pcie,id=far,bus_nr=64,bus=pcie.0,numa_node=1",
		"-device", "pcie-root-port,id=farport,bus=far,chassis=40,slot=40", "-device", "edu,bus=farport",
		"-device", "pcie-root-port,id=diskport,bus=pcie.0,addr=18.0,chassis=41,slot=41",
		"-device", "nvme-subsys,id=subsystem",
		"-device",
		"nvme,serial=bed,subsys=subsystem,bus=diskport,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2",
	}
}

// Test26_Topology: memory nodes and virtual functions are told as they are, and a virtual function that no definition
// speaks of is left alone.
func Test26_Topology(t *testing.T) {
	c := light(t, bed.Options{Devices: topology()})
	disk := c.sh(
		"modprobe nvme; for d in /sys/bus/pci/devices/*; do if test -e $d/sriov_totalvfs; then echo 2 > $d/sriov_numvfs; basename $d; fi; done")
	var m struct {
		Facts        accel.Facts                    `json:"facts"`
		Accelerators map[string][]accel.Accelerator `json:"accelerators"`
	}
	c.must(json.Unmarshal([]byte(c.sh("acceld detect -o json")), &m))
	near, virtual := -2, 0
	for _, d := range m.Facts.PCI {
		switch {
		case d.Vendor == "1234" && d.Device == "11e8":
			near = d.NUMANode
		case d.SRIOV.PhysFn == disk:
			virtual++
		case d.Address == disk && (d.SRIOV.TotalVFs != 2 || d.SRIOV.NumVFs != 2):
			t.Errorf("%s has %+v", disk, d.SRIOV)
		}
	}
	if near != 1 {
		t.Errorf("the accelerator is on memory node %d, want 1", near)
	}
	if virtual != 2 {
		t.Errorf("%d virtual functions of %s, want 2", virtual, disk)
	}
	if n := len(m.Accelerators[stage.Kind]); n != 1 || len(m.Accelerators) != 1 {
		t.Errorf("accelerators: %+v", m.Accelerators)
	}
}
