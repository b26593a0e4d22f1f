package nvml

import (
	"maps"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestProcesses: the processes of each GPU are reported with their memory, and with the time for which its engines have
// worked for them.
func TestProcesses(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.script.gpu(0, "process.0", "4242 1024 50 0 25") // half of the SMs, a quarter of the decoder
		s.script.gpu(0, "process.1", "4243 -1 0 0 0")     // its memory is not known
		s.script.gpu(0, "graphics.0", "4242 1024 0 0 0")
		s.script.gpu(0, "graphics.1", "17 3 0 0 0")
	})
	of := func(id string) map[int]accel.ProbeProcess {
		by := map[int]accel.ProbeProcess{}
		for _, p := range s.supervisor.Processes(s.def.Kind)[id] {
			by[p.PID] = p
		}
		return by
	}
	first := addresses()[0]
	s.until("two seconds of work", func([]accel.Accelerator) bool { return of(first)[4242].EngineSeconds["compute"] > 1 })
	all := of(first)
	if p := all[4242]; !p.MemoryBytes.Is(1<<30) || p.EngineSeconds["decoder"] != p.EngineSeconds["compute"]/2 ||
		p.EngineSeconds["encoder"] != 0 {
		t.Errorf("%+v", p)
	}
	if p := all[4243]; p.PID == 0 || p.MemoryBytes.Known || p.EngineSeconds["compute"] != 0 {
		t.Errorf("%+v", p)
	}
	if p := all[17]; !p.MemoryBytes.Is(3<<20) || len(p.EngineSeconds) > 0 || len(all) != 3 {
		t.Errorf("%+v of %d", p, len(all))
	}
	if list, told := s.supervisor.Processes(s.def.Kind)[addresses()[1]]; !told || len(list) > 0 {
		t.Errorf("a GPU that nobody uses: %+v, %t", list, told)
	}
	maps.DeleteFunc(s.script, func(key, _ string) bool { return key == "gpu.0.process.0" || key == "gpu.0.graphics.0" })
	s.script.gpu(0, "process.0", "4243 7 0 0 0")
	delete(s.script, "gpu.0.process.1")
	s.play()
	s.until("the first to end", func([]accel.Accelerator) bool {
		return of(first)[4242].PID == 0 && of(first)[4243].MemoryBytes.Is(7<<20)
	})
}
