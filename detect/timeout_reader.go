package detect

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// readTimeout is how long a pass waits for the attributes of the devices. Then it continues with the last known ones.
const readTimeout = 2 * time.Second

// hungAfter is how long one read may take before the device counts as hung. On a host without a free processor, reads
// of healthy devices have taken seconds. A pod that is admitted while its device is unhealthy is refused permanently.
const hungAfter = 15 * time.Second

// TimeoutReader reads a host again and again: what is there, and then each device separately. A device whose driver
// hangs in a read does not affect the others and never stops the loop. A hanging read costs one goroutine, not one per
// pass.
type TimeoutReader struct {
	host     *host.Host
	read     func(*accel.Definition, []accel.PCIDevice) []accel.Accelerator
	answered func()

	mu         sync.Mutex
	subsystems []string             // besides PCI
	facts      accel.Facts          // as last detected
	reading    map[string]time.Time // since when, by device
	given      map[string]bool      // reads that were given up
	last       map[string]accel.Accelerator
}

// NewTimeoutReader returns a TimeoutReader around [Accelerators]. It calls answered when a read ends after it was
// given up.
func NewTimeoutReader(h *host.Host, answered func()) *TimeoutReader {
	r := newTimeoutReader(nil, answered)
	r.host = h
	r.read = func(def *accel.Definition, devices []accel.Device) []accel.Accelerator {
		return accelerators(h, def, devices, r.all())
	}
	return r
}

// Want sets the subsystems, besides PCI, whose devices the next Detect lists: those of the kinds in force.
func (r *TimeoutReader) Want(kinds map[string]*accel.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subsystems = SubsystemsOf(kinds)
}

// Detect is [Detect] with what was there the last time for devices that cannot be read now. The methods below are about
// the devices that it found.
func (r *TimeoutReader) Detect() accel.Facts {
	r.mu.Lock()
	last, o := r.facts, Options{Subsystems: r.subsystems}
	r.mu.Unlock()
	f := detect(r.host, o, last)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = accel.Facts{PCI: f.PCI, Devices: f.Devices}
	return f
}

// all returns the devices that were last detected.
func (r *TimeoutReader) all() []accel.Device {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts.All()
}

// of returns the devices that a kind recognises and that are not lost to another kind.
func (r *TimeoutReader) of(def *accel.Definition, lost map[string]bool) (out []accel.Device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range [][]accel.Device{r.facts.PCI, r.facts.Devices} {
		for i := range all {
			if d := &all[i]; !lost[d.Address] && def.Recognises(*d) {
				out = append(out, *d)
			}
		}
	}
	return out
}

// newTimeoutReader calls read with one device at a time.
func newTimeoutReader(
	read func(*accel.Definition, []accel.PCIDevice) []accel.Accelerator, answered func(),
) *TimeoutReader {
	return &TimeoutReader{
		read: read, answered: answered,
		reading: map[string]time.Time{}, given: map[string]bool{}, last: map[string]accel.Accelerator{},
	}
}

// Read is Probes.Read of package agent/loop. If reading a device panics, Read panics with that once the others are
// read.
func (r *TimeoutReader) Read(def *accel.Definition, lost map[string]bool) {
	pci := r.of(def, lost)
	done := make(chan error, len(pci))
	waiting := 0
	for _, d := range pci {
		if r.begin(d.Address) {
			waiting++
			guard.Go(func() {
				var read []accel.Accelerator
				err := guard.Try(func() error { read = r.read(def, []accel.PCIDevice{d}); return nil })
				r.end(d.Address, read, err)
				done <- err
			})
		}
	}
	limit := time.NewTimer(readTimeout)
	defer limit.Stop()
	var failed error
	for expired := false; waiting > 0 && !expired; {
		select {
		case err := <-done:
			waiting--
			failed = cmp.Or(failed, err)
		case <-limit.C:
			expired = true
		}
	}
	if failed != nil {
		panic(failed)
	}
}

// begin reports whether a read of the device may start, which it may not while an earlier one hangs.
func (r *TimeoutReader) begin(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, busy := r.reading[id]; busy {
		return false
	}
	r.reading[id] = time.Now()
	return true
}

func (r *TimeoutReader) end(id string, accs []accel.Accelerator, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reading, id)
	switch {
	case failed != nil: // it is as it was
	case len(accs) == 1:
		r.last[id] = accs[0]
	default:
		delete(r.last, id)
	}
	if r.given[id] {
		delete(r.given, id)
		r.answered()
	}
}

// Accelerators returns the devices of a kind as they were last read. A device whose read has not ended keeps its last
// attributes. It is unhealthy if it was never read, or if the read has hung for [hungAfter].
func (r *TimeoutReader) Accelerators(def *accel.Definition, lost map[string]bool) []accel.Accelerator {
	pci := r.of(def, lost)
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []accel.Accelerator
	for _, d := range pci {
		a, known := r.last[d.Address]
		since, hangs := r.reading[d.Address]
		if !known && !hangs {
			continue
		}
		if hangs {
			r.given[d.Address], a.ID = true, d.Address
		}
		if hangs && (!known || time.Since(since) >= hungAfter) {
			a.Health = accel.Health{
				State: accel.Unhealthy, Reason: accel.DeviceUnhealthy,
				Message: fmt.Sprintf("reading its attributes has not ended since %s", since.Format("15:04:05")),
			}
		}
		out = append(out, a)
	}
	return out
}
