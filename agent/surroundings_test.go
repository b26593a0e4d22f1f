package agent

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

// TestSurroundingsEvents: events of the host's own network functions trigger another reading, those of pod interfaces
// do not.
func TestSurroundingsEvents(t *testing.T) {
	a := newSurroundings(nil, time.Hour, nil, nil)
	for _, c := range []struct {
		e    host.Uevent
		want bool
	}{
		{
			host.Uevent{Action: "add", Subsystem: "net", DevPath: "/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0"},
			true,
		},
		{host.Uevent{
			Action: "add", Subsystem: "infiniband",
			DevPath: "/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0",
		}, true},
		{host.Uevent{Action: "remove", Subsystem: "pci", DevPath: "/devices/pci0000:00/0000:01:00.0"}, true},
		{host.Uevent{Action: host.UeventOverflow}, true},
		{host.Uevent{Action: "add", Subsystem: "net", DevPath: "/devices/virtual/net/veth1"}, false},
		{host.Uevent{Action: "add", Subsystem: "module", DevPath: "/module/edu"}, false},
	} {
		a.see(c.e)
		got := len(a.look) == 1
		if got {
			<-a.look
		}
		if got != c.want {
			t.Errorf("%+v: looks %t, want %t", c.e, got, c.want)
		}
	}
}

// TestSurroundings: the facts contain what was read, a change is reported once, and an event triggers another reading
// without waiting for a resync.
func TestSurroundings(t *testing.T) {
	m := hosttest.New(t)
	synctest.Test(t, func(t *testing.T) {
		told := 0
		a := newSurroundings(m.Host, time.Hour, func() { told++ }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		a.survey(ctx)
		go func() { done <- a.run(ctx) }()
		synctest.Wait()
		var f accel.Facts
		if a.add(&f); told != 0 || f.Network != nil {
			t.Errorf("told %d times of %+v", told, f.Network)
		}
		m.AddPCI(accel.PCIDevice{Address: "0000:00:03.0", Vendor: "1af4", Device: "1041", Class: "020000"})
		a.see(host.Uevent{Action: "add", Subsystem: "pci", DevPath: "/devices/pci0000:00/0000:00:03.0"})
		for range 2 {
			time.Sleep(2 * burst)
			synctest.Wait()
		}
		if a.add(&f); told != 1 || len(f.Network) != 1 || !strings.Contains(f.Network[0].Unknown,
			"not the running machine") {
			t.Errorf("told %d times of %+v", told, f.Network)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
