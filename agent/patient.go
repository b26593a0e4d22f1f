package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// patience is how long a pass waits for the attributes of the devices; then it goes on with what they were last.
const patience = 2 * time.Second

// hungAfter is how long one read may take before the device counts as hung. On a host that has no processor left, reads of
// healthy devices have taken seconds, and a pod that is admitted in such a moment is refused for good.
const hungAfter = 15 * time.Second

// Patient reads each device on its own, so that one whose driver hangs in a read has no effect on the others and never
// stops the loop. A hanging read costs one goroutine, not one per pass.
type Patient struct {
	read func(*accel.Definition, []accel.PCIDevice) []accel.Accelerator
	// answered is called when a read that had been given up has ended.
	answered func()

	mu      sync.Mutex
	reading map[string]time.Time // since when, by device
	given   map[string]bool      // reads that were given up
	last    map[string]accel.Accelerator
}

// NewPatient returns a Patient around read, which is called with one device at a time.
func NewPatient(read func(*accel.Definition, []accel.PCIDevice) []accel.Accelerator, answered func()) *Patient {
	return &Patient{
		read: read, answered: answered,
		reading: map[string]time.Time{}, given: map[string]bool{}, last: map[string]accel.Accelerator{},
	}
}

// Accelerators is [Probes.Accelerators].
func (p *Patient) Accelerators(def *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
	var ids []string
	done := make(chan string, len(pci))
	waiting := 0
	for _, d := range pci {
		if !def.Recognises(d) {
			continue
		}
		ids = append(ids, d.Address)
		if p.begin(d.Address) {
			waiting++
			go func() {
				p.end(d.Address, p.read(def, []accel.PCIDevice{d}))
				done <- d.Address
			}()
		}
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for expired := false; waiting > 0 && !expired; {
		select {
		case <-done:
			waiting--
		case <-limit.C:
			expired = true
		}
	}
	return p.collect(ids)
}

// begin reports whether a read of the device may start: not while an earlier one hangs.
func (p *Patient) begin(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, busy := p.reading[id]; busy {
		return false
	}
	p.reading[id] = time.Now()
	return true
}

func (p *Patient) end(id string, accs []accel.Accelerator) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reading, id)
	delete(p.last, id)
	if len(accs) == 1 {
		p.last[id] = accs[0]
	}
	if p.given[id] {
		delete(p.given, id)
		p.answered()
	}
}

// collect returns what was read. A device whose read has not ended is as it was read last; it is unhealthy when that was
// never, or when the read hangs.
func (p *Patient) collect(ids []string) []accel.Accelerator {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []accel.Accelerator
	for _, id := range ids {
		a, known := p.last[id]
		if since, hangs := p.reading[id]; hangs {
			p.given[id] = true
			a.ID = id
			if known && time.Since(since) < hungAfter {
				out = append(out, a)
				continue
			}
			a.Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: fmt.Sprintf("reading its attributes has not ended since %s", since.Format("15:04:05"))}
		} else if !known {
			continue
		}
		out = append(out, a)
	}
	return out
}
