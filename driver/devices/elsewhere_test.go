package devices

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

const crypto = "virtio:0000:00:05.0"

// cryptoMachine has one virtio device, which a driver of the module virtio_crypto has if one is named.
func cryptoMachine(t *testing.T, driver string) (*hosttest.Machine, *Devices, *accel.Definition) {
	m := hosttest.New(t)
	const dir = "/sys/devices/pci0000:00/0000:00:05.0/virtio2"
	m.AddDevice("virtio", dir, "MODALIAS=virtio:d00000014v00001AF4\n", nil)
	m.Dir("/sys/bus/virtio/drivers/virtio_crypto")
	m.Link("/sys/module/virtio_crypto/drivers/virtio:virtio_crypto", "/sys/bus/virtio/drivers/virtio_crypto")
	if driver != "" {
		m.Link(dir+"/driver", "/sys/bus/virtio/drivers/"+driver)
		m.Link("/sys/bus/virtio/drivers/"+driver+"/virtio2", "../../../../devices/pci0000:00/0000:00:05.0/virtio2")
	}
	return m, New(m.Host, slog.New(slog.DiscardHandler), nil), &accel.Definition{
		Kind: "zoo-crypto", Match: []accel.Match{{Subsystem: "virtio", Device: "0014"}}, Reset: accel.ResetRebind,
		Driver: accel.DriverDefinition{Binds: "virtio_crypto", Modules: []accel.Module{{Name: "virtio_crypto"}}},
	}
}

// TestObserveElsewhere: the driver of a device of a bus is the one on that bus, and the kernel's name is not its
// address.
func TestObserveElsewhere(t *testing.T) {
	accs := []accel.Accelerator{{ID: crypto, Health: accel.Health{State: accel.Healthy}}}
	for driver, want := range map[string]accel.Reason{"virtio_crypto": "", "": accel.ProbeFailed, "other": accel.ConflictDriver} {
		_, all, def := cryptoMachine(t, driver)
		seen := all.Observe(def, accs)
		if len(seen) != 1 || seen[0].Bound != driver {
			t.Fatalf("%q: %+v", driver, seen)
		}
		problem := Problem(def, seen, true)
		if want == "" != (problem == nil) || problem != nil && problem.Reason != want {
			t.Errorf("%q: %v, want %q", driver, problem, want)
		}
		if all.AnyFree(def, accs) != (driver == "") || all.AnyBound(def, accs) != (driver == "virtio_crypto") {
			t.Errorf("%q: free %t, bound %t", driver, all.AnyFree(def, accs), all.AnyBound(def, accs))
		}
	}
	_, all, _ := cryptoMachine(t, "virtio_crypto")
	if got := all.Others([]string{"virtio_crypto"}, accs); len(got) != 0 {
		t.Errorf("its own device counts as another one: %q", got)
	}
	if got := all.Others([]string{"virtio_crypto"}, nil); !cmp.Equal(got, []string{"virtio2"}) {
		t.Errorf("another one: %q", got)
	}
}

// TestObserveClass: a device of software alone is served although no driver is bound to it.
func TestObserveClass(t *testing.T) {
	m := hosttest.New(t)
	m.AddDevice("infiniband", "/sys/devices/virtual/infiniband/rxe0", "NAME=rxe0\n", nil)
	m.Remove("/sys/devices/virtual/infiniband/rxe0/device")
	all := New(m.Host, slog.New(slog.DiscardHandler), nil)
	def := &accel.Definition{Kind: "zoo-rxe", Match: []accel.Match{{Subsystem: "infiniband", Name: "rxe"}}}
	accs := []accel.Accelerator{{ID: "infiniband:rxe0", Health: accel.Health{State: accel.Healthy}}}
	if seen := all.Observe(def, accs); Problem(def, seen, true) != nil || !all.AnyBound(def, accs) ||
		all.AnyFree(def, accs) {
		t.Errorf("%+v: %v", seen, Problem(def, seen, true))
	}
}

// TestForeignNodes: the nodes of a virtual function are its own, and not those of the device whose function it is.
func TestForeignNodes(t *testing.T) {
	m := hosttest.New(t)
	const device, function = "/sys/devices/pci0000:00/0000:00:05.0", "/sys/devices/pci0000:00/0000:00:05.1"
	for dir, node := range map[string]string{
		device + "/drm/card0": "dri/card0", function + "/drm/card1": "dri/card1", function + "/nvme/nvme0/ng0n1": "ng0n1",
	} {
		m.File(dir+"/dev", fmt.Sprintf("226:%d\n", len(node)))
		m.File(dir+"/uevent", "DEVNAME="+node+"\n")
	}
	m.Link("/sys/bus/pci/devices/0000:00:05.1", function)
	m.Link(function+"/physfn", device)
	var got []string
	for _, n := range New(m.Host, slog.New(slog.DiscardHandler), nil).ForeignNodes("0000:00:05.1") {
		got = append(got, n.Path)
	}
	if diff := cmp.Diff([]string{"/dev/dri/card1", "/dev/ng0n1"}, got); diff != "" {
		t.Error(diff)
	}
}
