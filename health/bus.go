package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// counters holds the error counts of one function, by the name of a sign. A count that could not be read is absent.
type counters map[string]uint64

// reading is the value of a counter at a time.
type reading struct {
	at    time.Time
	count uint64
}

// correctable is the name of the counter of correctable errors.
const correctable = "correctable"

// sign is one way in which the kernel reports errors of PCI Express.
type sign struct {
	name string // in the file of the engine's memory
	file string // an attribute of the function; empty for lines of the kernel log
	// severity distinguishes findings: signs of one severity at one function are one finding.
	severity string
	says     string // a sentence about "%s", the device or a port
	state    accel.HealthState
	action   accel.Action
	lasts    time.Duration // 0: until the driver is bound again
}

// signs lists what is read, in the order in which later ones replace earlier ones. The attributes are described in
// Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats. A fatal error of a device is not in the device's own
// counters: the kernel does not read a device behind a broken link (aer_get_device_error_info in
// drivers/pci/pcie/aer.c), and only the root port counts the message.
func signs() []sign {
	nonFatal := sign{severity: "non-fatal", state: accel.Degraded, lasts: lingers}
	fatal := sign{severity: "fatal", state: accel.Unhealthy, action: accel.ActionResetDevice}
	with := func(s sign, name, file, says string) sign {
		s.name, s.file, s.says = name, file, says
		return s
	}
	return []sign{
		{name: correctable, file: "aer_dev_correctable#TOTAL_ERR_COR"},
		with(nonFatal, "receivedNonFatal", "aer_rootport_total_err_nonfatal",
			"%s has received non-fatal errors of PCI Express"),
		with(nonFatal, "nonFatal", "aer_dev_nonfatal#TOTAL_ERR_NONFATAL",
			"%s has counted non-fatal errors of PCI Express"),
		with(fatal, "receivedFatal", "aer_rootport_total_err_fatal", "%s has received fatal errors of PCI Express"),
		with(fatal, "fatal", "aer_dev_fatal#TOTAL_ERR_FATAL", "%s has counted fatal errors of PCI Express"),
		with(fatal, saidFatal, "", "the kernel reports a fatal error of PCI Express at %s"),
		with(fatal, saidUnrecovered, "", "the kernel could not recover from an error of PCI Express at %s"),
	}
}

// counters reads the counts of a function: those of the kernel log and, if attributes is set, those in sysfs.
func (e *Engine) counters(id string, attributes bool) counters {
	said := e.memory.Lines[id]
	c := counters{saidFatal: said.Fatal, saidUnrecovered: said.Unrecovered}
	if !attributes {
		return c
	}
	for _, s := range signs() {
		if s.file == "" {
			continue
		}
		text, err := e.o.Host.Devices().Attribute(id, s.file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			c[s.name] = n
		}
	}
	return c
}

// bus judges the errors that the bus has reported since the last look, for a device and for the ports above it, the
// topmost first. The last port serves no other device, so its counters are the device's. A port further up counts the
// errors of other devices too: only what the kernel log says of that port itself concerns all below it. The caller
// holds e.mu.
func (e *Engine) bus(d *device, id string, ports []string) {
	binding, news := e.binding(id), false
	again := binding != e.memory.Bound[id]
	if again {
		d.correctable = nil
	}
	e.memory.Bound[id] = binding
	functions := append([]string{id}, ports...)
	if n := len(ports); !accel.OnPCI(id) && n > 0 { // the last one is the function that the device is on
		functions = slices.Concat(ports[n-1:], ports[:n-1])
	}
	for i, at := range functions {
		if e.look(d, id, at, again, i == 0 || i == len(functions)-1) {
			news = true
		}
	}
	if news || again {
		e.save()
	}
}

// look compares the counts of one function with those of the last look, and reports whether there is something to
// save.
func (e *Engine) look(d *device, id, at string, again, attributes bool) (news bool) {
	key := id
	if at != id {
		key = id + " " + at // the port may serve several functions of the device
	}
	now := e.counters(at, attributes)
	before, known := e.memory.Bus[key]
	for name, n := range before {
		if _, read := now[name]; !read {
			now[name] = n // it could not be read now
		}
	}
	news = len(now) > len(before) // a counter is read for the first time
	e.memory.Bus[key] = now
	// Errors counted before the first look say nothing about now. Nor do those counted before the driver was bound
	// again, because a reset causes errors of its own.
	if !known || again {
		return true
	}
	for _, s := range signs() {
		was, compared := before[s.name]
		switch {
		case s.name == correctable && at == id && compared && d.many(reading{e.o.Now(), now[s.name]}):
			s = sign{
				severity: "many correctable", state: accel.Degraded, lasts: lingers,
				says: "%s has counted many correctable errors of PCI Express",
			}
		case s.name == correctable || !compared || now[s.name] <= was:
			continue
		}
		news = true
		e.note(e.busFinding(id, at, s))
	}
	return news
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

func (e *Engine) busFinding(id, at string, s sign) finding {
	where := "the device"
	if at != id {
		where = "the port above it, " + at + ","
	}
	f := finding{
		Device: id, Source: "bus", Code: at + " " + s.severity, State: s.state, Reason: accel.BusErrors,
		Action: s.action, Said: strings.TrimSuffix(fmt.Sprintf(s.says, where), ","), Binding: e.binding(id),
	}
	if s.file == "" && s.name != "" {
		f.Line = e.memory.Lines[at].Line
	}
	if s.lasts > 0 {
		f.Until = e.o.Now().Add(s.lasts).Truncate(time.Second)
	}
	return f
}
