package health

import (
	"fmt"
	"strconv"
	"time"

	"github.com/acceld/acceld/accel"
)

const (
	// lingers is how long errors that do not stop a device count after the last one.
	lingers = 10 * time.Minute
	// A link has occasional correctable errors. This many within the window indicate a faulty slot or card.
	correctableMany   = 100
	correctableWindow = time.Minute
)

// counters holds the error counts of PCI Express advanced error reporting
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
type counters struct {
	Correctable uint64 `json:"correctable"`
	NonFatal    uint64 `json:"nonFatal"`
	Fatal       uint64 `json:"fatal"`
}

// reading is the value of a counter at a time.
type reading struct {
	at    time.Time
	count uint64
}

// counters reads the counters of a function; false if it has none.
func (e *Engine) counters(id string) (c counters, ok bool) {
	for _, f := range []struct {
		file string
		into *uint64
	}{
		{"aer_dev_correctable#TOTAL_ERR_COR", &c.Correctable},
		{"aer_dev_nonfatal#TOTAL_ERR_NONFATAL", &c.NonFatal},
		{"aer_dev_fatal#TOTAL_ERR_FATAL", &c.Fatal},
	} {
		s, err := e.o.Host.Devices().Attribute(id, f.file)
		if err != nil {
			return counters{}, false
		}
		if *f.into, err = strconv.ParseUint(s, 10, 64); err != nil {
			return counters{}, false
		}
	}
	return c, true
}

// bus judges the errors that the bus has counted since the last look, for a device and for the port above it, which
// serves no other device. The caller holds e.mu.
func (e *Engine) bus(d *device, id, port string) {
	binding, news := e.binding(id), false
	again := binding != e.memory.Bound[id]
	if again {
		d.correctable = nil
	}
	for _, at := range []string{id, port} {
		now, ok := e.counters(at)
		if at == "" || !ok {
			continue
		}
		before, known := e.memory.Bus[at]
		e.memory.Bus[at], e.memory.Bound[id] = now, binding
		// Errors counted before the first look say nothing about now. Nor do those counted before the driver was bound
		// again, because a reset causes errors of its own.
		if !known || again {
			news = true
			continue
		}
		news = news || now.NonFatal != before.NonFatal || now.Fatal != before.Fatal
		if now.Fatal > before.Fatal {
			e.note(e.busFinding(id, at, "fatal", accel.Unhealthy, accel.ActionResetDevice, 0))
		}
		if now.NonFatal > before.NonFatal {
			e.note(e.busFinding(id, at, "non-fatal", accel.Degraded, "", lingers))
		}
		if at == id && d.many(reading{e.o.Now(), now.Correctable}) {
			news = true
			e.note(e.busFinding(id, at, "many correctable", accel.Degraded, "", lingers))
		}
	}
	if news {
		e.save()
	}
}

// many adds a reading and reports whether there were too many correctable errors within the window.
func (d *device) many(now reading) bool {
	d.correctable = append(d.correctable, now)
	for len(d.correctable) > 2 && now.at.Sub(d.correctable[1].at) >= correctableWindow {
		d.correctable = d.correctable[1:]
	}
	if now.count < d.correctable[0].count+correctableMany {
		return false
	}
	d.correctable = []reading{now}
	return true
}

func (e *Engine) busFinding(id, at, severity string, state accel.HealthState, action accel.Action,
	d time.Duration,
) finding {
	where := "the device"
	if at != id {
		where = "the port above it, " + at + ","
	}
	f := finding{
		Device: id, Source: "bus", Code: at + " " + severity, State: state, Reason: accel.BusErrors, Action: action,
		Said: fmt.Sprintf("%s has counted %s errors of PCI Express", where, severity), Binding: e.binding(id),
	}
	if d > 0 {
		f.Until = e.o.Now().Add(d).Truncate(time.Second)
	}
	return f
}
