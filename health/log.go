package health

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// String names the task.
func (e *Engine) String() string { return "health engine" }

// Ready is closed when the kernel log is being followed, or turned out to be unreadable.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Run follows the kernel log until ctx ends. If the log may not be read, devices are judged by everything else.
func (e *Engine) Run(ctx context.Context) error {
	records, err := e.o.Host.Kernel().Kmsg(ctx)
	e.once.Do(func() { close(e.ready) })
	if err != nil {
		e.o.Log.Warn("errors that only the kernel log tells are not seen", "error", err)
		<-ctx.Done()
		return nil
	}
	e.Follow(records)
	return nil
}

// Follow judges records until the channel is closed. A repeated error only moves the cursor, which Follow writes within
// [quiet]: otherwise the next agent would judge the error again, even after somebody has repaired the device.
func (e *Engine) Follow(records <-chan host.KmsgRecord) {
	defer e.keep()
	var late <-chan time.Time
	for {
		select {
		case r, more := <-records:
			if !more {
				return
			}
			e.record(r)
			if late == nil {
				late = time.After(quiet)
			}
		case <-late:
			e.keep()
			late = nil
		}
	}
}

// record judges a record unless it was judged before.
func (e *Engine) record(r host.KmsgRecord) {
	if e.judged(r) {
		e.o.Changed()
	}
}

// judged evaluates a record and reports whether the verdict about a device may have changed.
func (e *Engine) judged(r host.KmsgRecord) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Lost > 0 {
		e.o.Log.Warn("lines of the kernel log were overwritten before they could be read", "lost", r.Lost)
	}
	if r.Sequence != 0 && r.Sequence <= e.memory.Cursor {
		return false
	}
	if defs := e.o.Definitions(); !maps.Equal(defs, e.rules.from) {
		e.rules = compile(defs)
		e.rules.find = e.o.Host.Devices().Address
	}
	bus := e.heard(r)
	s, ok := e.rules.read(r)
	if !ok {
		// This is how the bus reports its own errors; the counters are read at the next look.
		return bus || r.Facility == 0 && r.Level <= 4 && r.Fields["SUBSYSTEM"] == "pci"
	}
	e.memory.Cursor = r.Sequence
	s.at = e.when(r)
	first := e.count(s)
	if s.verdict.State == "" && e.takeBack(s) || s.verdict.State != "" && !e.stale(s) && e.note(e.conclude(s)) {
		e.save()
		return true
	}
	if now := e.o.Now(); first || now.Sub(e.reported) >= quiet {
		e.reported = now
		return true
	}
	return bus
}

// when returns the time of a record.
func (e *Engine) when(r host.KmsgRecord) time.Time {
	now := e.o.Now()
	up, err := e.o.Host.Kernel().Uptime()
	if err != nil || up < r.Boot {
		return now
	}
	return now.Add(r.Boot - up)
}

// stale reports whether an error is from long before the first agent of this boot. Its driver may have been bound
// again since, which the log does not show, so the error is only counted.
func (e *Engine) stale(s occurrence) bool {
	return e.unread && e.o.Now().Sub(s.at) > fresh
}

// count counts an error and reports whether it is the first of its code. The caller holds e.mu.
func (e *Engine) count(s occurrence) bool {
	d := e.of(s.device)
	if d == nil {
		return false
	}
	f, known := d.faults[s.code]
	if !known {
		if len(d.faults) >= maxCodes {
			return false
		}
		f = &fault{Fault: accel.Fault{Code: s.code, Title: s.verdict.Title}}
		d.faults[s.code] = f
	}
	f.add(s)
	return !known
}

// conclude turns an error into a finding. The caller holds e.mu.
func (e *Engine) conclude(s occurrence) finding {
	f := finding{
		Device: s.device, Source: s.source, Code: s.code, State: s.verdict.State, Reason: accel.DeviceFault,
		Action: s.verdict.Action,
		Said:   said(s), Line: s.line, Binding: e.binding(s.device),
	}
	if d := lasts(s.verdict); d > 0 {
		f.Until = s.at.Add(d).Truncate(time.Second)
	}
	return f
}

// said describes an error in a sentence that is the same each time the error is reported.
func said(s occurrence) string {
	switch {
	case s.code == "" && s.verdict.Title == "":
		return "the driver reports: " + s.line
	case s.code == "":
		return s.verdict.Title
	case s.verdict.Title == "":
		return fmt.Sprintf("the driver reports error %s", s.code)
	}
	return fmt.Sprintf("error %s, %s", s.code, s.verdict.Title)
}
