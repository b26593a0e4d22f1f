package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// device is one GPU. Its own goroutine reads it, another one waits for its events; everything below known is the
// watch's alone.
type device struct {
	handle nvml.Device
	id     string
	calls  *calls
	files  files
	wishes chan struct{}
	orders chan accel.ProbeDivision // how it is to be divided

	known    bool // it has answered once
	busy     bool // it was asked and has not answered
	asked    time.Time
	again    bool // it is to be asked once more when it answers
	about    accel.ProbeDevice
	facts    facts
	switched bool     // it is linked to a switch
	peers    []string // GPUs that it is linked to, by id
}

// facts are what labels are made of.
type facts struct {
	model         string
	memoryMiB     uint64
	major, minor  int // of its compute capability
	canBeDivided  bool
	parts         map[string]part // by profile
	driver        string
	cuda          int // as NVML writes it: 12080 is 12.8
	graphicsClass bool
}

// part is what is said of a profile of instances.
type part struct {
	count      int
	attributes nvml.DeviceAttributes
}

// answer is what a device has answered.
type answer struct {
	device   *device
	about    accel.ProbeDevice
	facts    facts
	readings map[string]float64
	switched bool
	peers    []string
	divided  *accel.ProbeDivision // what became of an order
}

func newDevice(w *watch, handle nvml.Device, id string) *device {
	return &device{
		handle: handle, id: id, calls: newCalls(w.lib), files: w.files, wishes: make(chan struct{}, 1),
		orders: make(chan accel.ProbeDivision, 1),
		about:  accel.ProbeDevice{ID: id},
	}
}

// ask wants another answer; one that is busy is asked when it has answered.
func (d *device) ask() {
	if d.busy {
		d.again = true
		return
	}
	d.busy, d.again, d.asked = true, false, time.Now()
	d.wishes <- struct{}{}
}

// late reports whether an answer is overdue.
func (d *device) late(patience time.Duration) bool {
	return d.busy && time.Since(d.asked) >= patience
}

// take takes an answer in.
func (d *device) take(a answer) {
	d.known = true
	if a.divided == nil {
		d.busy = false
	}
	d.about, d.facts, d.switched, d.peers = a.about, a.facts, a.switched, a.peers
	if d.again {
		d.ask()
	}
}

// work answers until ctx ends.
func (d *device) work(ctx context.Context, answers chan<- answer) {
	for {
		var order *accel.ProbeDivision
		select {
		case <-d.wishes:
		case o := <-d.orders:
			order = &o
			if err := d.divide(o.Parts); err != nil {
				o.Problem = err.Error()
			}
		case <-ctx.Done():
			return
		}
		a := d.read()
		a.divided = order
		select {
		case answers <- a:
		case <-ctx.Done():
			return
		}
	}
}

// read asks the device for everything. A GPU that is lost has no readings, and keeps its names where NVML still knows
// them.
func (d *device) read() answer {
	a := answer{device: d, about: accel.ProbeDevice{ID: d.id}}
	c := d.calls
	c.lost, c.reset = false, false
	a.about.UUID = text(c, "nvmlDeviceGetUUID", d.handle.GetUUID)
	a.about.Serial = text(c, "nvmlDeviceGetSerial", d.handle.GetSerial)
	a.about.Model = text(c, "nvmlDeviceGetName", d.handle.GetName)
	a.readings = readings(c, d.handle)
	a.facts = d.learn(a.about.Model, a.readings)
	a.about.Partitions, a.facts.parts = d.partitions()
	a.switched, a.peers = links(c, d.handle)
	a.about.Health = d.health(len(a.about.Partitions))
	if c.lost {
		a.readings = map[string]float64{}
	}
	return a
}

// learn gathers what labels are made of.
func (d *device) learn(model string, readings map[string]float64) facts {
	f := facts{model: model, memoryMiB: uint64(readings["accelerator_memory_total_bytes"]) >> 20}
	c := d.calls
	if c.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.handle.GetCudaComputeCapability(); c.ok(ret) {
			f.major, f.minor = major, minor
		}
	}
	if c.has("nvmlSystemGetDriverVersion") {
		if v, ret := c.lib.SystemGetDriverVersion(); c.ok(ret) {
			f.driver = v
		}
	}
	if c.has("nvmlSystemGetCudaDriverVersion_v2") {
		if v, ret := c.lib.SystemGetCudaDriverVersion_v2(); c.ok(ret) {
			f.cuda = v
		}
	}
	if c.has("nvmlDeviceGetMigMode") {
		_, _, ret := d.handle.GetMigMode()
		f.canBeDivided = c.ok(ret)
	}
	f.graphicsClass = strings.HasPrefix(d.files.text("/sys/bus/pci/devices/"+d.id+"/class"), "0x0300")
	return f
}

// event is an event of a device.
type event struct {
	device *device
	fault  *accel.ProbeFault // nil when the device is to be read again, no more
}

// The events that are waited for: errors, instances that were made or destroyed, and another thing to do about the
// device.
const wanted = nvml.EventTypeXidCriticalError | nvml.EventMigConfigChange | nvml.EventTypeGpuRecoveryAction |
	nvml.EventTypeGpuUnavailableError

// waiting is how long NVML waits for an event at most, in milliseconds; its end means nothing.
const waiting = 60_000

// listen waits for events until ctx ends. Each device has a set of its own: one that hangs keeps nobody from hearing of
// the others.
func (d *device) listen(ctx context.Context, lib nvml.Interface, every time.Duration, events chan<- event) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var set nvml.EventSet
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		wait := time.Duration(0)
		if set == nil {
			set = d.register(lib)
		}
		if set == nil {
			pause.Reset(every)
			continue
		}
		data, ret := set.Wait(waiting)
		e := event{device: d}
		switch ret {
		case nvml.ERROR_TIMEOUT:
			pause.Reset(0)
			continue
		case nvml.SUCCESS:
			if data.EventType == nvml.EventTypeXidCriticalError {
				code := strconv.FormatUint(data.EventData, 10)
				e.fault = &accel.ProbeFault{
					Device: d.id, Code: code, Text: "NVML: Xid " + code + instance(data),
					At: time.Now(),
				}
			}
		default:
			wait = every // it is lost, say: what is asked regularly tells more
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return
		}
		pause.Reset(wait)
	}
}

// instance says which instance an event is of; empty for the whole GPU.
func instance(e nvml.EventData) string {
	const none = 0xffffffff
	if e.GpuInstanceId == none {
		return ""
	}
	s := " of GPU instance " + strconv.FormatUint(uint64(e.GpuInstanceId), 10)
	if e.ComputeInstanceId != none {
		s += ", compute instance " + strconv.FormatUint(uint64(e.ComputeInstanceId), 10)
	}
	return s
}

// register makes a set of what the device can tell; nil when it can tell nothing now.
func (d *device) register(lib nvml.Interface) nvml.EventSet {
	types, ret := d.handle.GetSupportedEventTypes()
	if ret != nvml.SUCCESS || types&wanted == 0 {
		return nil
	}
	set, ret := lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil
	}
	if ret := d.handle.RegisterEvents(types&wanted, set); ret != nvml.SUCCESS {
		_ = set.Free() // there is nothing in it
		return nil
	}
	return set
}
