package detect

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

func TestHangingDeviceHasNoEffectOnTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, answered := make(chan struct{}), 0
		var reads atomic.Int32
		def := &accel.Definition{Match: []accel.Match{{Vendor: "f00d", Device: "0001"}}}
		p := newTimeoutReader(func(_ *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
			if pci[0].Address == "0000:02:00.0" {
				reads.Add(1)
				<-hang
			}
			return []accel.Accelerator{{ID: pci[0].Address, Health: accel.Health{State: accel.Healthy}}}
		}, func() { answered++ })
		p.facts.PCI = []accel.PCIDevice{
			device("0000:01:00.0"), device("0000:02:00.0"),
			{Address: "0000:03:00.0", Vendor: "beef"},
			device("0000:04:00.0"),
		}
		lost := map[string]bool{"0000:04:00.0": true}
		begin := time.Now()
		for range 3 {
			p.Read(def, lost)
			got := p.Accelerators(def, lost)
			if len(got) != 2 || got[0].Health.State != accel.Healthy || got[1].Health.State != accel.Unhealthy {
				t.Fatalf("got %+v", got)
			}
		}
		if waited := time.Since(begin); waited != readTimeout || reads.Load() != 1 {
			t.Errorf("waited %v for %d reads, want %v for one", waited, reads.Load(), readTimeout)
		}
		close(hang)
		synctest.Wait()
		// The late answer is taken without another read.
		got := p.Accelerators(def, lost)
		if answered != 1 || got[1].Health.State != accel.Healthy || reads.Load() != 1 {
			t.Errorf("answered %d times, then %+v after %d reads", answered, got, reads.Load())
		}
	})
}

// On a host without a free processor, reads of attributes are slow. That is no fault of the devices.
func TestSlowReadIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		def := &accel.Definition{Match: []accel.Match{{Vendor: "f00d", Device: "0001"}}}
		p := newTimeoutReader(func(_ *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
			time.Sleep(time.Duration(slow.Load()))
			return []accel.Accelerator{{ID: pci[0].Address, Health: accel.Health{State: accel.Healthy}}}
		}, func() {})
		p.facts.PCI = []accel.PCIDevice{device("0000:01:00.0")}
		state := func() accel.HealthState {
			p.Read(def, nil)
			return p.Accelerators(def, nil)[0].Health.State
		}
		state()
		slow.Store(int64(time.Minute))
		if got := state(); got != accel.Healthy {
			t.Errorf("after %v it is %s", readTimeout, got)
		}
		time.Sleep(hungAfter - readTimeout - time.Millisecond)
		if got := state(); got != accel.Healthy {
			t.Errorf("just before %v it is %s", hungAfter, got)
		}
		time.Sleep(time.Millisecond)
		if got := state(); got != accel.Unhealthy {
			t.Errorf("after %v it is %s", hungAfter, got)
		}
		time.Sleep(time.Minute)
		slow.Store(0)
		if got := state(); got != accel.Healthy {
			t.Errorf("when the read has ended it is %s", got)
		}
	})
}

func device(address string) accel.PCIDevice {
	return accel.PCIDevice{Address: address, Vendor: "f00d", Device: "0001"}
}

// TestPanicInARead: a panic in the reading of one device reaches the caller. The others are read, the device is as it
// was, and it is read again.
func TestPanicInARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ill := false
		def := &accel.Definition{Match: []accel.Match{{Vendor: "f00d", Device: "0001"}}}
		p := newTimeoutReader(func(_ *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
			if ill && pci[0].Address == "0000:02:00.0" {
				panic("an error of ours")
			}
			return []accel.Accelerator{{ID: pci[0].Address, Health: accel.Health{State: accel.Healthy}}}
		}, func() {})
		p.facts.PCI = []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0")}
		for _, ill = range []bool{false, true, false} {
			began := time.Now()
			err := guard.Try(func() error { p.Read(def, nil); return nil })
			if failed := err != nil; failed != ill || time.Since(began) > 0 {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if got := p.Accelerators(def, nil); len(got) != 2 || got[1].Health.State != accel.Healthy {
				t.Errorf("%+v", got)
			}
		}
		collect := timeoutCollect(func(*accel.Definition, accel.Accelerator) (map[string]float64, error) {
			if ill {
				panic("an error of ours")
			}
			return map[string]float64{"a": 1}, nil
		})
		for _, ill = range []bool{true, false} {
			got, err := collect(def, accel.Accelerator{ID: "0000:01:00.0"})
			if failed := err != nil; failed != ill || len(got) == 1 == ill {
				t.Errorf("%v, %v", got, err)
			}
		}
	})
}
