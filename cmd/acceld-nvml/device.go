package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// device is one GPU. One goroutine reads it and another waits for its events. All fields from known on belong to the
// watch's goroutine.
type device struct {
	handle nvml.Device
	id     string
	calls  *calls
	files  files
	wishes chan struct{}
	orders chan order
	// worked and tensors are its goroutine's.
	worked  worked
	tensors tensors

	known bool // it has answered once
	busy  bool // a reading was requested and has not arrived
	asked time.Time
	again bool // another reading is due after this one
	state
}

// state is what a reading finds out about a device.
type state struct {
	about    accel.ProbeDevice
	facts    facts
	switched bool     // it is linked to a switch
	peers    []string // GPUs that it is linked to, by id
}

// facts are the input for the labels.
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

// part describes the instances of a profile.
type part struct {
	count      int
	attributes nvml.DeviceAttributes
}

// order is what has to be done with a device; one of the fields is set. In an answer they have the result.
type order struct {
	divide *accel.ProbeDivision
	set    *accel.ProbeSet
}

// answer is the result of one reading.
type answer struct {
	device *device
	state
	readings map[string]float64
	// processes are those that use it; nil if NVML does not tell.
	processes []accel.ProbeProcess
	order     // that was obeyed before, if any
}

func newDevice(w *watch, handle nvml.Device, id string) *device {
	return &device{
		handle: handle, id: id, calls: newCalls(w.lib), files: w.files, wishes: make(chan struct{}, 1),
		orders: make(chan order, 1), worked: worked{by: map[int]map[string]float64{}},
		state: state{about: accel.ProbeDevice{ID: id}},
	}
}

// ask requests a reading. If one is in progress, another follows it.
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

// take processes an answer.
func (d *device) take(a answer) {
	d.known = true
	if a.order == (order{}) {
		d.busy = false
	}
	d.state = a.state
	if d.again {
		d.ask()
	}
}

// work answers requests until ctx ends.
func (d *device) work(ctx context.Context, answers chan<- answer) {
	for {
		var o order
		select {
		case <-d.wishes:
		case o = <-d.orders:
			d.obey(o)
		case <-ctx.Done():
			return
		}
		a := d.read()
		a.order = o
		select {
		case answers <- a:
		case <-ctx.Done():
			return
		}
	}
}

// obey does what is ordered, and adds the problem to it if there is one.
func (d *device) obey(o order) {
	if o.set != nil {
		d.set(o.set)
		return
	}
	if err := d.divide(o.divide.Parts); err != nil {
		o.divide.Problem = err.Error()
	}
}

// read reads everything about the device. A GPU that is lost has no readings, but keeps its names if NVML still knows
// them.
func (d *device) read() answer {
	a := answer{device: d, state: state{about: accel.ProbeDevice{ID: d.id}}}
	c := d.calls
	c.lost, c.reset = false, false
	a.about.UUID = value(c, "nvmlDeviceGetUUID", d.handle.GetUUID)
	a.about.Serial = value(c, "nvmlDeviceGetSerial", d.handle.GetSerial)
	a.about.Model = value(c, "nvmlDeviceGetName", d.handle.GetName)
	a.readings = readings(c, d.handle)
	if share, known := d.tensors.read(c, d.handle); known {
		a.readings["accelerator_tensor_activity_ratio"] = share
	}
	a.facts = d.learn(a.about.Model, a.readings)
	a.about.Partitions, a.facts.parts = d.partitions()
	a.switched, a.peers = links(c, d.handle)
	a.about.Settings = d.settings()
	a.processes = d.processes(time.Now())
	a.about.Health = d.health(len(a.about.Partitions))
	if c.lost {
		a.readings, a.processes = map[string]float64{}, []accel.ProbeProcess{}
	}
	return a
}

// learn gathers the input for the labels.
func (d *device) learn(model string, readings map[string]float64) facts {
	f := facts{model: model, memoryMiB: uint64(readings["accelerator_memory_total_bytes"]) >> 20}
	c := d.calls
	if c.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.handle.GetCudaComputeCapability(); c.ok(ret) {
			f.major, f.minor = major, minor
		}
	}
	f.driver = value(c, "nvmlSystemGetDriverVersion", c.lib.SystemGetDriverVersion)
	f.cuda = value(c, "nvmlSystemGetCudaDriverVersion_v2", c.lib.SystemGetCudaDriverVersion_v2)
	_, f.canBeDivided = d.mode()
	f.graphicsClass = strings.HasPrefix(d.files.text("/sys/bus/pci/devices/"+d.id+"/class"), "0x0300")
	return f
}

// event is an event of a device.
type event struct {
	device *device
	fault  *accel.ProbeFault // nil if the device must only be read again
}

// The events to wait for: errors, created or destroyed instances, a changed recovery action, and an unavailable GPU.
const wanted = nvml.EventTypeXidCriticalError | nvml.EventMigConfigChange | nvml.EventTypeGpuRecoveryAction |
	nvml.EventTypeGpuUnavailableError

// waiting is the timeout of one wait for an event, in milliseconds; reaching it means nothing.
const waiting = 60_000

// listen waits for events until ctx ends. Each device has its own event set, so that one that hangs does not delay the
// events of the others.
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
			// For example, the device is lost. The regular readings tell more. If it comes back, it needs another set.
			wait = every
			_ = set.Free() // whatever the answer, nothing uses it any more
			set = nil
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return
		}
		pause.Reset(wait)
	}
}

// instance names the instance that an event is about; empty for the whole GPU.
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

// register creates an event set for the events that the device supports; nil if there are none now.
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
		_ = set.Free() // it is empty
		return nil
	}
	return set
}
