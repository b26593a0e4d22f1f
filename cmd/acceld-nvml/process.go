package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// The engines of a GPU whose work NVML tells apart by process.
const (
	engineCompute = "compute"
	engineEncoder = "encoder"
	engineDecoder = "decoder"
)

// worked adds up how long the engines of a device have worked for each process since the program began. NVML tells how
// busy a process has kept them, in per cent, as of samples that the driver takes several times a second.
type worked struct {
	by     map[int]map[string]float64 // seconds, by PID and engine
	last   time.Time                  // when NVML was asked last; zero before the first time
	sample uint64                     // the time of the newest sample, microseconds of the driver's clock
}

// take adds the samples since the last call to the time of each process.
func (w *worked) take(samples []nvml.ProcessUtilizationSample, now time.Time) {
	took, first := now.Sub(w.last).Seconds(), w.last.IsZero()
	w.last = now
	sum, count := map[int]map[string]float64{}, map[int]float64{}
	for _, s := range samples {
		w.sample = max(w.sample, s.TimeStamp)
		const most = 100 // per cent; the driver leaves what it has not measured as it was
		if s.SmUtil > most || s.EncUtil > most || s.DecUtil > most {
			continue
		}
		pid := int(s.Pid)
		if sum[pid] == nil {
			sum[pid] = map[string]float64{}
		}
		count[pid]++
		sum[pid][engineCompute] += float64(s.SmUtil) * cent
		sum[pid][engineEncoder] += float64(s.EncUtil) * cent
		sum[pid][engineDecoder] += float64(s.DecUtil) * cent
	}
	if first {
		return // it is not known over which time
	}
	for pid, engines := range sum {
		if w.by[pid] == nil {
			w.by[pid] = map[string]float64{}
		}
		for name, n := range engines {
			w.by[pid][name] += n / count[pid] * took
		}
	}
}

// of returns the times of a process.
func (w *worked) of(pid int) map[string]float64 { return maps.Clone(w.by[pid]) }

// keep forgets all processes but these.
func (w *worked) keep(all map[int]accel.ProbeProcess) {
	maps.DeleteFunc(w.by, func(pid int, _ map[string]float64) bool { _, there := all[pid]; return !there })
}

// processes returns the processes that use the device, ordered by PID; nil if NVML does not tell.
func (d *device) processes(now time.Time) []accel.ProbeProcess {
	all, c, told := map[int]accel.ProbeProcess{}, d.calls, false
	for _, list := range []struct {
		symbol string
		get    func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses_v3", d.handle.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses_v3", d.handle.GetGraphicsRunningProcesses},
	} {
		if !c.has(list.symbol) {
			continue
		}
		infos, ret := list.get()
		if !c.ok(ret) {
			continue
		}
		told = true
		for _, info := range infos {
			p := accel.ProbeProcess{PID: int(info.Pid)}
			// A process that computes and draws is in both lists, with the same memory.
			if info.UsedGpuMemory <= math.MaxInt64 { // NVML_VALUE_NOT_AVAILABLE is -1
				p.MemoryBytes = accel.Known(max(int64(info.UsedGpuMemory), all[p.PID].MemoryBytes.Value))
			}
			all[p.PID] = p
		}
	}
	if !told {
		return nil
	}
	if c.has("nvmlDeviceGetProcessUtilization") {
		samples, ret := d.handle.GetProcessUtilization(d.worked.sample)
		if c.ok(ret) || ret == nvml.ERROR_NOT_FOUND { // there is no newer sample
			d.worked.take(samples, now)
		}
	}
	d.worked.keep(all)
	out := []accel.ProbeProcess{}
	for _, p := range all {
		p.EngineSeconds = d.worked.of(p.PID)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b accel.ProbeProcess) int { return cmp.Compare(a.PID, b.PID) })
	return out
}
