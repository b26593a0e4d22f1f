package health

import (
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Names of the signs that are lines of the kernel log.
const (
	saidFatal       = "saidFatal"
	saidUnrecovered = "saidUnrecovered"
)

// busLines counts the lines of the kernel log about errors of PCI Express at one function.
type busLines struct {
	Fatal       uint64 `json:"fatal,omitempty"`
	Unrecovered uint64 `json:"unrecovered,omitempty"`
	// Line is the last one, for people.
	Line string `json:"line,omitempty"`
}

// busLine is what one line says.
type busLine struct {
	// on is the function that the kernel logs about, and from the one whose error message that port has received;
	// empty if the line names none.
	on, from string
	// fatal and nonFatal are the severity; neither if the line does not say.
	fatal, nonFatal bool
	unrecovered     bool
}

// longestBusLine is how much of a line is looked at, in bytes. The kernel's own lines of this kind are shorter than
// 150.
const longestBusLine = 300

// uncorrected is how the kernel reports an error that the hardware has not corrected (aer_print_error and
// aer_print_source in drivers/pci/pcie/aer.c). Linux 6.1 has "Uncorrected (Fatal) error received: <address>", Linux
// 6.12 "Uncorrectable (Fatal) error message received from <address>".
var uncorrected = regexp.MustCompile(`^(?:(?:PCIe|CXL) Bus Error: severity=|(?:Multiple )?)Uncorrect(?:ed|able) ` +
	`\((Fatal|Non-Fatal)\)(?:, type=.*| error (?:message )?received(?: from|:) ([0-9a-f]{4,8}:[0-9a-f:.]{7})(?: .*)?)$`)

// readBusLine parses a line of the kernel about PCI Express; false if it is none. Only the record's fields, which no
// text can forge, say which function it is about, and the line must begin with the driver, that function and the
// kernel's words.
func readBusLine(r host.KmsgRecord) (l busLine, ok bool) {
	on, found := strings.CutPrefix(r.Fields["DEVICE"], "+pci:")
	if r.Facility != 0 || r.Fields["SUBSYSTEM"] != "pci" || !found || address(on) != on {
		return busLine{}, false
	}
	text := r.Text[:min(len(r.Text), longestBusLine)]
	_, text, found = strings.Cut(text, " "+on+": ")
	if !found {
		return busLine{}, false
	}
	l.on = on
	for _, service := range []string{"AER: ", "DPC: ", "EDR: "} { // some kernels name the service
		text = strings.TrimPrefix(text, service)
	}
	switch strings.ToLower(text) {
	case "device recovery failed": // pcie_do_recovery in drivers/pci/pcie/err.c, about the bridge above the device
		l.unrecovered = true
		return l, true
	case "subordinate device reset failed": // only a fatal error leads to this reset
		l.unrecovered, l.fatal = true, true
		return l, true
	}
	m := uncorrected.FindStringSubmatch(text)
	if m == nil {
		return busLine{}, false
	}
	l.fatal, l.nonFatal, l.from = m[1] == "Fatal", m[1] == "Non-Fatal", address(m[2])
	return l, true
}

// heard counts a line about PCI Express and reports whether the verdict about a device may have changed. The caller
// holds e.mu.
func (e *Engine) heard(r host.KmsgRecord) bool {
	l, ok := readBusLine(r)
	if !ok {
		return false
	}
	e.memory.Cursor = r.Sequence
	at := l.on
	if l.from != "" && e.o.Host.Exists(pciDevices+l.from) {
		at = l.from
	}
	counted := l.fatal
	if l.unrecovered && !l.fatal {
		// Without a callback in its driver, a device is never recovered. If the error was not fatal, nothing was reset
		// either, and the device goes on.
		counted = e.severity[at] != nonFatalError
		delete(e.severity, at)
	} else {
		e.expect(at, l)
	}
	if !counted || e.when(r).Before(e.since) {
		return false
	}
	said, known := e.memory.Lines[at]
	if !known && len(e.memory.Lines) >= maxDevices {
		return false
	}
	if l.unrecovered {
		said.Unrecovered++
	} else {
		said.Fatal++
	}
	said.Line = line(r.Text)
	e.memory.Lines[at] = said
	return true
}

// pciDevices has one link for each PCI function.
const pciDevices = "/sys/bus/pci/devices/"

// severity is what the kernel log said last about errors at a function.
type severity int

const (
	fatalError severity = iota + 1
	nonFatalError
)

// expect remembers how severe an error is, for the line about the recovery: the kernel recovers at the port itself, or
// at the bridge above a device.
func (e *Engine) expect(at string, l busLine) {
	if len(e.severity) >= maxDevices {
		clear(e.severity)
	}
	s := fatalError
	if l.nonFatal {
		s = nonFatalError
	}
	e.severity[at] = s
	if link, err := e.o.Host.Readlink(pciDevices + at); err == nil {
		if up := path.Base(path.Dir(link)); address(up) == up {
			e.severity[up] = s
		}
	}
}

// Unreported says why errors of PCI Express of a device may not be seen; empty if they are. Ports are the bridges above
// the device, the topmost first.
func Unreported(h *host.Host, f accel.PCIDevice, ports []string) string {
	counts := func(id string) bool { return h.Exists(pciDevices + id + "/aer_dev_fatal") }
	near := f.Address
	if len(ports) > 0 {
		near = ports[len(ports)-1]
	}
	switch {
	case !counts(f.Address) && !counts(near):
		return "neither the device nor the port above it counts them (no Advanced Error Reporting)"
	case len(ports) > 0 && len(h.Glob("/sys/bus/pci_express/drivers/aer", ports[0]+":pcie*")) == 0:
		return "the kernel does not handle errors at port " + ports[0] + " (AER is off, or the firmware's)"
	case f.SRIOV.PhysFn == "" && reportingOff(h, f.Address):
		return "the device does not report fatal errors (Device Control register)"
	}
	return ""
}

// reportingOff reports whether the device is told to keep fatal errors to itself: bit 2 of Device Control, 8 bytes
// into the capability of PCI Express (PCI Express Base Specification 6.0, 7.5.3.4). It is false if that cannot be read,
// which takes the right to read beyond the first 64 bytes, and for a suspended device, which is not woken up.
func reportingOff(h *host.Host, id string) bool {
	if status, err := h.ReadAttribute(pciDevices + id + "/power/runtime_status"); err == nil && status == "suspended" {
		return false
	}
	config, err := h.ReadBinary(pciDevices + id + "/config")
	at, found := accel.ConfigSpace(config).Capability(0x10)
	return err == nil && found && accel.ConfigSpace(config).Word(at+8)&4 == 0
}
