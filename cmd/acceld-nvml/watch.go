package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// watch is the program. Once it runs, only the goroutines of devices call NVML, so a call that does not return blocks
// only one of them.
type watch struct {
	lib             nvml.Interface
	library         string
	files           files
	every, patience time.Duration
	say             *voice
	orders          io.Reader

	devices []*device
	told    accel.ProbeSnapshot
	spoken  bool // a snapshot was written
}

// run watches until ctx ends. It returns an error if the agent should start the program again.
func (w *watch) run(ctx context.Context, version string) error {
	w.say.line(accel.ProbeLine{Hello: &accel.ProbeHello{Protocol: accel.ProbeProtocol, Program: version}})
	if err := dl.New(w.library, dl.RTLD_LAZY|dl.RTLD_GLOBAL).Open(); err != nil {
		w.say.line(accel.ProbeLine{Absent: "NVML cannot be loaded: " + err.Error()})
		return nil
	}
	before := w.versions()
	if err := w.begin(ctx, before); err != nil || ctx.Err() != nil {
		return err
	}
	answers, events, requests := make(chan answer), make(chan event), make(chan accel.ProbeRequest)
	guard.Go(func() { w.hear(ctx, requests) })
	for _, d := range w.devices {
		guard.Go(func() { d.work(ctx, answers) })
		guard.Go(func() { d.listen(ctx, w.lib, w.every, events) })
		d.ask()
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	late := time.NewTimer(w.patience)
	defer late.Stop()
	for {
		if err := w.say.deaf(); err != nil {
			return fmt.Errorf("nobody listens: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-answers:
			a.device.take(a)
			w.say.line(accel.ProbeLine{Readings: map[string]map[string]float64{a.device.id: a.readings}})
			if a.processes != nil {
				w.say.line(accel.ProbeLine{Processes: map[string][]accel.ProbeProcess{a.device.id: a.processes}})
			}
			if a.order != (order{}) {
				w.tell()
				w.say.line(accel.ProbeLine{Divided: a.divide, Set: a.set})
			}
		case r := <-requests:
			w.order(r)
		case e := <-events:
			w.heard(e)
		case <-late.C:
			w.lateOnes()
		case <-tick.C:
			w.say.line(accel.ProbeLine{})
			if now := w.versions(); now != before {
				return fmt.Errorf("the driver or its library has changed: %s, was %s", now, before)
			}
			for _, d := range w.devices {
				d.ask()
			}
			late.Reset(w.patience)
		}
		w.tell()
	}
}

// hear reads requests until the input ends.
func (w *watch) hear(ctx context.Context, requests chan<- accel.ProbeRequest) {
	lines := bufio.NewScanner(w.orders)
	for lines.Scan() {
		var r accel.ProbeRequest
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // from another version of the agent
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}

// order passes on a request.
func (w *watch) order(r accel.ProbeRequest) {
	var o order
	var id string
	switch {
	case r.Divide != nil:
		o.divide, id = r.Divide, r.Divide.Device
	case r.Set != nil:
		o.set, id = r.Set, r.Set.Device
	default:
		return
	}
	problem := "NVML does not know it"
	for _, d := range w.devices {
		if d.id != id {
			continue
		}
		select {
		case d.orders <- o:
			return
		default:
			problem = "it is busy with an earlier request"
		}
	}
	if o.set != nil {
		o.set.Problem = problem
	} else {
		o.divide.Problem = problem
	}
	w.say.line(accel.ProbeLine{Divided: o.divide, Set: o.set})
}

// versions describes the loaded module and the library's file.
func (w *watch) versions() string {
	return fmt.Sprintf("module %q, library %q", w.files.module(), resolved(w.library))
}

// slowly runs a call of NVML that may take long, and reports message while it does. The error is nil if ctx ends
// first.
func (w *watch) slowly(ctx context.Context, message string, call func() error) error {
	done := make(chan error, 1)
	guard.Go(func() { done <- call() })
	tick := time.NewTicker(min(w.every, w.patience))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			return err
		case <-tick.C:
			w.say.line(accel.ProbeLine{Problem: &accel.Problem{Reason: accel.ProbeUnanswered, Message: message}})
		}
	}
}

// begin initialises NVML and finds the devices. It reports a problem while that takes long, and while driver and
// library do not match.
func (w *watch) begin(ctx context.Context, versions string) error {
	err := w.slowly(ctx, "NVML has been starting since "+time.Now().Format("15:04:05"), func() error {
		if ret := w.lib.Init(); ret != nvml.SUCCESS {
			return ret
		}
		return nil
	})
	switch {
	case errors.Is(err, nvml.ERROR_LIB_RM_VERSION_MISMATCH):
		return w.mismatch(ctx, versions)
	case err != nil:
		return fmt.Errorf("cannot start NVML: %v", err)
	case ctx.Err() == nil:
		return w.find(ctx)
	}
	return nil
}

// mismatch reports that driver and library do not match, until one of them is replaced.
func (w *watch) mismatch(ctx context.Context, versions string) error {
	library := "of another version"
	if v, ret := w.lib.SystemGetNVMLVersion(); ret == nvml.SUCCESS && v != "" {
		library = v
	}
	problem := accel.Problem{
		Reason: accel.LibraryMismatch,
		Message: fmt.Sprintf("the loaded driver is %s, and NVML on this host is %s",
			cmp.Or(w.files.module(), "another one"), library),
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for w.versions() == versions && w.say.deaf() == nil {
		w.say.line(accel.ProbeLine{Problem: &problem})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return errors.New("the driver or its library was replaced")
}

// find lists the devices. A device that NVML knows but cannot open is left out, so the agent notices that it is
// missing.
func (w *watch) find(ctx context.Context) error {
	var found []*device
	err := w.slowly(ctx, "NVML does not say which devices there are", func() error {
		n, ret := w.lib.DeviceGetCount()
		if ret != nvml.SUCCESS {
			return fmt.Errorf("cannot count devices: %v", ret)
		}
		for i := range n {
			handle, ret := w.lib.DeviceGetHandleByIndex(i)
			if ret != nvml.SUCCESS {
				continue
			}
			if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
				found = append(found, newDevice(w, handle, address(pci)))
			}
		}
		return nil
	})
	if err == nil && ctx.Err() == nil { // after the end of ctx, the call may still run
		w.devices = found
	}
	return err
}

// address returns the PCI address as sysfs writes it.
func address(p nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

// heard passes on an event.
func (w *watch) heard(e event) {
	if e.fault != nil {
		w.say.line(accel.ProbeLine{Fault: e.fault})
	}
	e.device.ask() // its state may have changed
}

// lateOnes clears the readings of devices that are late.
func (w *watch) lateOnes() {
	for _, d := range w.devices {
		if d.late(w.patience) {
			w.say.line(accel.ProbeLine{Readings: map[string]map[string]float64{d.id: {}}})
			w.say.line(accel.ProbeLine{Processes: map[string][]accel.ProbeProcess{d.id: {}}})
		}
	}
}

// tell writes a snapshot if it differs from the last one. The first snapshot waits until every device has answered or
// is late.
func (w *watch) tell() {
	late := slices.DeleteFunc(slices.Clone(w.devices), func(d *device) bool { return !d.late(w.patience) })
	if !w.spoken && slices.ContainsFunc(w.devices, func(d *device) bool { return !d.known && !d.late(w.patience) }) {
		return
	}
	s := accel.ProbeSnapshot{Devices: []accel.ProbeDevice{}, Labels: w.labels()}
	groups := fabrics(w.devices)
	for _, d := range w.devices {
		about := d.about
		about.Fabric = groups[d.id]
		if slices.Contains(late, d) {
			about.Health = silent(d, len(late) > 1)
		}
		s.Devices = append(s.Devices, about)
	}
	if w.spoken && reflect.DeepEqual(w.told, s) {
		return
	}
	w.told, w.spoken = s, true
	w.say.line(accel.ProbeLine{Snapshot: &s})
}

// silent returns the health of a device that does not answer. If several do not, one of them may hold a lock that the
// others wait for. They are then only degraded, so that none is taken away from its user.
func silent(d *device, several bool) *accel.ProbeHealth {
	h := &accel.ProbeHealth{
		State: accel.Unhealthy, Reason: accel.ProbeUnanswered,
		Message: "NVML has not answered about it since " + d.asked.Format("15:04:05"),
	}
	if several {
		h.State = accel.Degraded
	}
	return h
}
