package driver

import (
	"context"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/host/hosttest"
)

// TestRebindElsewhere: a reset unbinds and binds by the kernel's name, at the driver of the bus.
func TestRebindElsewhere(t *testing.T) {
	m := hosttest.New(t)
	m.AddDevice("virtio", "/sys/devices/pci0000:00/0000:00:05.0/virtio2", "MODALIAS=virtio:d00000014v00001AF4\n", nil)
	def := &accel.Definition{
		Match:  []accel.Match{{Subsystem: "virtio", Device: "0014"}},
		Driver: accel.DriverDefinition{Binds: "virtio_crypto"},
	}
	const crypto = "virtio:0000:00:05.0"
	if got := driverDir(def); got != "/sys/bus/virtio/drivers/virtio_crypto" {
		t.Errorf("the driver is at %q", got)
	}
	var wrote []string
	d := newMachine(t).driver(Options{})
	d.h, d.attribute = m.Host, func(file, text string) error { wrote = append(wrote, file+" "+text); return nil }
	d.reprobe(context.Background(), devices.Device{ID: crypto})
	d.reprobe(context.Background(), devices.Device{ID: "infiniband:rxe0"})
	if got := strings.Join(wrote, "; "); got != "/sys/bus/virtio/drivers_probe virtio2" {
		t.Errorf("wrote %q", got)
	}
	r := &resetting{Driver: d}
	if got := r.name(ResetPlan{ResetTarget: ResetTarget{Device: accel.Accelerator{ID: crypto}}}); got != "virtio2" {
		t.Errorf("its name is %q", got)
	}
}
