package health

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sort"
	"time"

	"github.com/acceld/acceld/accel"
)

// memory is what is kept in the file.
type memory struct {
	// Cursor is the number of the last record of the kernel log that was judged.
	Cursor uint64 `json:"cursor"`
	// Findings are verdicts that came from events and still count.
	Findings []finding `json:"findings,omitempty"`
	// Bus are the counters of PCI Express up to which errors were judged, by device and by port.
	Bus map[string]counters `json:"bus,omitempty"`
	// Bound are the bindings of the devices when that was judged.
	Bound map[string]uint64 `json:"bound,omitempty"`
}

// finding is a verdict about a device that came from an event.
type finding struct {
	Device string `json:"device"`
	// Source and Code tell which event: "log" or "probe" and the driver's code, "bus" and the severity.
	Source string            `json:"source"`
	Code   string            `json:"code,omitempty"`
	State  accel.HealthState `json:"state"`
	Reason accel.Reason      `json:"reason"`
	Action accel.Action      `json:"action,omitempty"`
	Said   string            `json:"said"`
	Line   string            `json:"line,omitempty"`
	// Until is when it counts no more at the latest; zero for as long as the binding lasts.
	Until   time.Time `json:"until,omitzero"`
	Binding uint64    `json:"binding,omitempty"`
}

// over reports whether a finding counts no more: its time is up, or a driver was bound to the device since.
func (f finding) over(now time.Time, binding uint64) bool {
	return !f.Until.IsZero() && !now.Before(f.Until) || binding != 0 && binding != f.Binding
}

// load reads the file. One that cannot be read is as none: the kernel log is then judged from its beginning, with care.
func (e *Engine) load() (m memory, none bool) {
	data, err := e.o.Host.ReadFile(e.o.File)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.o.Log.Warn("what was concluded about devices before cannot be read", "path", e.o.File, "error", err)
		m = memory{}
	}
	if m.Bus == nil {
		m.Bus = map[string]counters{}
	}
	if m.Bound == nil {
		m.Bound = map[string]uint64{}
	}
	return m, err != nil
}

// save writes the file; e.mu is held. What cannot be written is lost with the agent, and said.
func (e *Engine) save() {
	all := e.memory.Findings
	sort.Slice(all, func(i, j int) bool {
		return all[i].Device+" "+all[i].Source+" "+all[i].Code < all[j].Device+" "+all[j].Source+" "+all[j].Code
	})
	data, err := json.MarshalIndent(e.memory, "", "  ")
	if err == nil {
		err = e.o.Host.MkdirAll(path.Dir(e.o.File), 0o755)
	}
	if err == nil {
		err = e.o.Host.WriteFile(e.o.File, append(data, '\n'), 0o600)
	}
	if err != nil {
		e.o.Log.Warn("what was concluded about devices cannot be kept", "path", e.o.File, "error", err)
	}
}

// note takes a finding in, in the place of the one that the same event made before, and reports whether the device may
// be judged otherwise now. e.mu is held.
func (e *Engine) note(f finding) bool {
	defer e.expire()
	for i, old := range e.memory.Findings {
		if old.Device == f.Device && sameEvents(old.Source, f.Source) && old.Code == f.Code {
			if old.Source == fromLog && f.Source == fromProbe && !old.over(e.o.Now(), e.binding(f.Device)) {
				return false // the kernel has said it with more words
			}
			e.memory.Findings[i] = f
			return old.State != f.State || old.Said != f.Said || old.over(e.o.Now(), e.binding(f.Device))
		}
	}
	if len(e.memory.Findings) >= maxDevices {
		return false
	}
	e.memory.Findings = append(e.memory.Findings, f)
	return true
}

// takeBack forgets what an earlier line of the same code said, and reports whether there was one. e.mu is held.
func (e *Engine) takeBack(s sighting) bool {
	before := len(e.memory.Findings)
	e.memory.Findings = slices.DeleteFunc(e.memory.Findings, func(f finding) bool {
		return f.Device == s.device && f.Source == fromLog && f.Code == s.code
	})
	return len(e.memory.Findings) != before
}

// standing returns the findings about a device that count, and forgets those that do not. e.mu is held.
func (e *Engine) standing(id string) (counting []finding) {
	now, binding, before := e.o.Now(), e.binding(id), len(e.memory.Findings)
	e.memory.Findings = slices.DeleteFunc(e.memory.Findings, func(f finding) bool {
		return f.Device == id && f.over(now, binding)
	})
	for _, f := range e.memory.Findings {
		if f.Device == id {
			counting = append(counting, f)
		}
	}
	if len(e.memory.Findings) != before {
		e.save()
		e.expire()
	}
	return counting
}

// list returns a device's errors, by code.
func (d *device) list() []accel.Fault {
	var out []accel.Fault
	for _, code := range slices.Sorted(maps.Keys(d.faults)) {
		out = append(out, d.faults[code].Fault)
	}
	return out
}
