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

// memory is the content of the file.
type memory struct {
	// Cursor is the sequence number of the last record of the kernel log that matched a rule.
	Cursor uint64 `json:"cursor"`
	// Findings are verdicts that came from events and still apply.
	Findings []finding `json:"findings,omitempty"`
	// Bus holds the PCI Express counters up to which errors were judged, by device, and by device and port.
	Bus map[string]counters `json:"bus,omitempty"`
	// Lines counts what the kernel log said about PCI Express, by function; nil if no agent has counted it yet.
	Lines map[string]busLines `json:"lines"`
	// Bound holds the devices' bindings at that time.
	Bound map[string]uint64 `json:"bound,omitempty"`
}

// finding is a verdict about a device that came from an event.
type finding struct {
	Device string `json:"device"`
	// Source and Code identify the event: "log" or "probe" with the driver's code, "check", or "bus" with the address
	// and severity.
	Source string            `json:"source"`
	Code   string            `json:"code,omitempty"`
	State  accel.HealthState `json:"state"`
	Reason accel.Reason      `json:"reason"`
	Action accel.Action      `json:"action,omitempty"`
	Said   string            `json:"said"`
	Line   string            `json:"line,omitempty"`
	// Until is when the finding expires at the latest; if zero, it applies as long as the binding lasts.
	Until   time.Time `json:"until,omitzero"`
	Binding uint64    `json:"binding,omitempty"`
}

// over reports whether a finding no longer applies: it has expired, or a driver was bound to the device since.
func (f finding) over(now time.Time, binding uint64) bool {
	return !f.Until.IsZero() && !now.Before(f.Until) || binding != 0 && binding != f.Binding
}

// load reads the file. An unreadable file counts as none; the kernel log is then judged from its beginning, except for
// old errors (see stale).
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

// save writes the file. The caller holds e.mu. If writing fails, that is logged, and the findings are lost when the
// agent ends.
func (e *Engine) save() {
	e.saved = e.memory.Cursor
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

// keep writes the file if the cursor has moved since it was written.
func (e *Engine) keep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.saved != e.memory.Cursor {
		e.save()
	}
}

// note stores a finding in place of the earlier one from the same event, and reports whether the verdict about the
// device may have changed. The caller holds e.mu.
func (e *Engine) note(f finding) bool {
	defer e.expire()
	for i, old := range e.memory.Findings {
		if old.Device == f.Device && sameEvents(old.Source, f.Source) && old.Code == f.Code {
			if old.Source == fromLog && f.Source == fromProbe && !old.over(e.o.Now(), e.binding(f.Device)) {
				return false // the kernel log has it in more detail
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

// takeBack removes the finding of an earlier line with the same code and reports whether there was one. The caller
// holds e.mu.
func (e *Engine) takeBack(s occurrence) bool {
	before := len(e.memory.Findings)
	e.memory.Findings = slices.DeleteFunc(e.memory.Findings, func(f finding) bool {
		return f.Device == s.device && f.Source == fromLog && f.Code == s.code
	})
	return len(e.memory.Findings) != before
}

// standing returns the findings that apply to a device and removes those that no longer do. The caller holds e.mu.
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

// list returns a device's errors, ordered by code.
func (d *device) list() []accel.Fault {
	var out []accel.Fault
	for _, code := range slices.Sorted(maps.Keys(d.faults)) {
		out = append(out, d.faults[code].Fault)
	}
	return out
}
