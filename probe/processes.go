package probe

import (
	"maps"
	"math"
	"slices"

	"github.com/acceld/acceld/accel"
)

// maxProcesses is how many processes of one device are accepted.
const maxProcesses = 4096

// Processes returns what the program of a kind has reported last about the processes that use its devices, by device;
// none if the program has fallen silent. The caller must not change the slices.
func (k *Supervisor) Processes(kind string) map[string][]accel.ProbeProcess {
	p := k.known(kind)
	if p == nil {
		return nil
	}
	return p.book.processesNow()
}

func (b *book) processesNow() map[string][]accel.ProbeProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stale() {
		return nil
	}
	return maps.Clone(b.processes)
}

// users stores the processes of devices. The caller holds b.mu.
func (b *book) users(all map[string][]accel.ProbeProcess) {
	if b.processes == nil {
		b.processes = map[string][]accel.ProbeProcess{}
	}
	for id, list := range all {
		if _, there := b.processes[id]; there || len(b.processes) < maxDevices {
			b.processes[id] = processes(list)
		}
	}
}

// processes returns those that can be processes, each once, with numbers that can be true.
func processes(list []accel.ProbeProcess) []accel.ProbeProcess {
	out, seen := []accel.ProbeProcess{}, map[int]bool{}
	for _, p := range list {
		if p.PID <= 0 || seen[p.PID] || len(out) == maxProcesses {
			continue
		}
		seen[p.PID] = true
		if p.MemoryBytes.Value < 0 {
			p.MemoryBytes = accel.Answer[int64]{}
		}
		engines := map[string]float64{}
		for _, name := range slices.Sorted(maps.Keys(p.EngineSeconds)) {
			// A century in nanoseconds still fits 64 bits.
			const century = 100 * 366 * 86400
			n := p.EngineSeconds[name]
			if accel.UsageWord(name) && n >= 0 && n <= century && !math.IsNaN(n) && len(engines) < accel.MaxEngines {
				engines[name] = n
			}
		}
		p.EngineSeconds = engines
		out = append(out, p)
	}
	return out
}
