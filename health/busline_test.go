package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const port = "0000:00:01.0"

// kernel logs a line of the kernel about a PCI function, as dev_printk does.
func (b *bench) kernel(id, text string) {
	b.next++
	b.e.record(host.KmsgRecord{
		Sequence: b.next, Level: 6, Boot: 1000 * time.Second, Text: text,
		Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:" + id},
	})
}

// busBench is a bench on which each device has a look behind it.
func busBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.m.Remove("/sys/bus/pci/devices/" + one)
	b.addPort()
	b.m.AddPCI(accel.PCIDevice{Address: one, Vendor: "f00d", Device: "0100", Class: "120000", ParentPort: port})
	b.m.SetAttribute(one, "aer_dev_fatal", "TOTAL_ERR_FATAL 0")
	b.received(0, 0)
	b.want("before", accel.Healthy, "")
	return b
}

func (b *bench) addPort() {
	b.m.AddPCI(accel.PCIDevice{Address: port, Vendor: "8086", Device: "0001", Class: "060400", NUMANode: -1})
}

// received sets the counters of the root port.
func (b *bench) received(nonFatal, fatal int) {
	b.m.SetAttribute(port, "aer_rootport_total_err_nonfatal", fmt.Sprint(nonFatal))
	b.m.SetAttribute(port, "aer_rootport_total_err_fatal", fmt.Sprint(fatal))
}

// TestFatalError: whatever single trace a fatal error leaves, the device is unhealthy, also for the next agent, and
// until its driver is bound again. The lines are those of Linux 6.1 and 6.12.
func TestFatalError(t *testing.T) {
	line := func(id, text string) func(*bench) { return func(b *bench) { b.kernel(id, text) } }
	for name, happens := range map[string]func(*bench){
		"6.1, the port": line(port, "pcieport "+port+": AER: Uncorrected (Fatal) error received: "+one),
		"6.1, several":  line(port, "pcieport "+port+": AER: Multiple Uncorrected (Fatal) error received: "+one),
		"6.1, the device": line(one, "npu "+one+
			": PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)"),
		"6.12, the port": line(port, "pcieport "+port+": AER: Uncorrectable (Fatal) error message received from "+one),
		"6.12, no details": line(port, "pcieport "+port+
			": AER: Uncorrectable (Fatal) error message received from "+one+" (no details found)"),
		"6.12, the device": line(one, "npu "+one+
			": AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)"),
		"of the port itself": line(port, "pcieport "+port+
			": PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)"),
		"from nowhere":   line(port, "pcieport "+port+": AER: Uncorrected (Fatal) error received: 0000:7f:00.0"),
		"not recovered":  line(port, "pcieport "+port+": AER: device recovery failed"),
		"not reset":      line(port, "pcieport "+port+": AER: subordinate device reset failed"),
		"contained":      line(port, "pcieport "+port+": DPC: device recovery failed"),
		"the root port":  func(b *bench) { b.received(0, 1) },
		"the device":     func(b *bench) { b.m.SetAttribute(one, "aer_dev_fatal", "TOTAL_ERR_FATAL 1") },
		"the port's own": func(b *bench) { b.m.SetAttribute(port, "aer_dev_fatal", "TOTAL_ERR_FATAL 1"); b.again() },
	} {
		t.Run(name, func(t *testing.T) {
			b := busBench(t)
			if strings.Contains(name, "own") {
				b.m.SetAttribute(port, "aer_dev_fatal", "TOTAL_ERR_FATAL 0")
				b.want("and its counter", accel.Healthy, "")
			}
			happens(b)
			h := b.want("after", accel.Unhealthy, accel.BusErrors)
			if h.Action != accel.ActionResetDevice || !strings.Contains(h.Message, "PCI Express") {
				t.Errorf("health: %+v", h)
			}
			b.again()
			b.want("another agent", accel.Unhealthy, accel.BusErrors)
			b.m.Unbind(one)
			b.m.Bind(one, "npu")
			b.want("bound again", accel.Healthy, "")
		})
	}
}

// again starts the next agent, once this one has kept what it knows.
func (b *bench) again() {
	b.e.keep()
	b.restart()
}

// TestFatalErrorWhileNoAgentRuns: the next agent finds the line in the log. The first agent of a boot does not count
// what was there before it.
func TestFatalErrorWhileNoAgentRuns(t *testing.T) {
	b := busBench(t)
	b.again()
	b.want("nothing happened", accel.Healthy, "")
	b.kernel(port, "pcieport "+port+": AER: device recovery failed")
	b.want("found by the next agent", accel.Unhealthy, accel.BusErrors)

	b = newBench(t)
	b.want("the first agent", accel.Healthy, "")
	b.e.record(host.KmsgRecord{
		Sequence: 1, Boot: 999 * time.Second, Text: "pcieport " + port + ": AER: device recovery failed",
		Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:" + port},
	})
	b.want("what was there before", accel.Healthy, "")
}

// TestErrorOfEachFunction: every function of a device behind a port is told, and no device elsewhere.
func TestErrorOfEachFunction(t *testing.T) {
	b := newBench(t)
	b.addPort()
	const second = "0000:01:00.1"
	look := func() []accel.Accelerator {
		pci := []accel.PCIDevice{
			{Address: one, ParentPort: port}, {Address: second, ParentPort: port}, {Address: port}, {Address: two},
		}
		healthy := accel.Health{State: accel.Healthy}
		return b.e.Judge(b.def, pci, []accel.Accelerator{
			{ID: one, Health: healthy}, {ID: second, Health: healthy}, {ID: two, Health: healthy},
		})
	}
	b.received(0, 0)
	look()
	b.received(0, 1)
	all := look()
	if all[0].Health.State != accel.Unhealthy || all[1].Health.State != accel.Unhealthy ||
		all[2].Health.State != accel.Healthy {
		t.Errorf("%+v", all)
	}
}

// TestErrorBehindSwitch: a root port receives the errors of every device below it, so only a line about the root port
// itself concerns all of them.
func TestErrorBehindSwitch(t *testing.T) {
	const up, down, other = "0000:02:00.0", "0000:03:00.0", "0000:09:00.0"
	for text, want := range map[string]accel.HealthState{
		"pcieport " + port + ": AER: Uncorrected (Fatal) error received: " + other: accel.Healthy,
		"pcieport " + port + ": AER: device recovery failed":                       accel.Unhealthy,
	} {
		b := newBench(t)
		b.addPort()
		b.m.AddPCI(accel.PCIDevice{Address: other, Vendor: "f00d", Device: "0200", Class: "020000"})
		look := func() accel.HealthState {
			pci := []accel.PCIDevice{
				{Address: one, ParentPort: down},
				{Address: down, ParentPort: up},
				{Address: up, ParentPort: port},
				{Address: port},
			}
			accs := []accel.Accelerator{{ID: one, Health: accel.Health{State: accel.Healthy}}}
			return b.e.Judge(b.def, pci, accs)[0].Health.State
		}
		b.received(0, 0)
		look()
		b.received(0, 1)
		if got := look(); got != accel.Healthy {
			t.Errorf("the root port's counter alone: %s", got)
		}
		if b.kernel(port, text); look() != want {
			t.Errorf("%s: %s, want %s", text, look(), want)
		}
	}
}

// TestNonFatalError: a device whose driver cannot take part in the recovery is never "recovered". After an error that
// was not fatal it goes on.
func TestNonFatalError(t *testing.T) {
	for _, said := range []string{
		"pcieport " + port + ": AER: Uncorrected (Non-Fatal) error received: " + one,
		"pcieport " + port + ": AER: Uncorrectable (Non-Fatal) error message received from " + one,
	} {
		b := busBench(t)
		b.kernel(port, said)
		b.received(1, 0)
		b.kernel(port, "pcieport "+port+": AER: device recovery failed")
		b.want("not fatal", accel.Degraded, accel.BusErrors)
		b.kernel(port, "pcieport "+port+": AER: device recovery failed")
		b.want("another recovery, of an unknown error", accel.Unhealthy, accel.BusErrors)
	}
}

// TestForgedBusLine: what a process or another device can make the kernel say is not believed.
func TestForgedBusLine(t *testing.T) {
	const said = "AER: device recovery failed"
	for name, r := range map[string]host.KmsgRecord{
		"a process": {Facility: 1, Text: "pcieport " + port + ": " + said, Fields: map[string]string{
			"SUBSYSTEM": "pci", "DEVICE": "+pci:" + port,
		}},
		"another bus":    {Text: "usb 1-1: Product: pcieport " + port + ": " + said, Fields: map[string]string{"SUBSYSTEM": "usb", "DEVICE": "+usb:1-1"}},
		"no field":       {Text: "pcieport " + port + ": " + said},
		"another device": {Text: "npu " + port + ": " + said, Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:" + two}},
		"in the middle": {Text: "npu " + one + ": firmware: npu " + one + ": " + said, Fields: map[string]string{
			"SUBSYSTEM": "pci", "DEVICE": "+pci:" + one,
		}},
		"no function": {Text: "x ../..: " + said, Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:../.."}},
		"corrected": {
			Text:   "npu " + one + ": PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
			Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:" + one},
		},
	} {
		b := busBench(t)
		r.Sequence, r.Boot = 5000, 1000*time.Second
		b.e.record(r)
		b.want(name, accel.Healthy, "")
	}
}

// TestManyBusLines: lines about ever new functions fill neither memory nor disk.
func TestManyBusLines(t *testing.T) {
	b := newBench(t)
	for i := range 2 * maxDevices {
		id := fmt.Sprintf("%04x:01:00.0", i)
		b.kernel(id, "npu "+id+": PCIe Bus Error: severity=Uncorrected (Fatal), type="+strings.Repeat("x", 8000))
	}
	if n, m := len(b.e.memory.Lines), len(b.e.severity); n > maxDevices || m > maxDevices+1 {
		t.Errorf("%d functions are kept, %d severities", n, m)
	}
	for id, l := range b.e.memory.Lines {
		if len(l.Line) > 310 {
			t.Fatalf("%s: a line of %d bytes", id, len(l.Line))
		}
	}
}

func FuzzBusLine(f *testing.F) {
	for _, text := range []string{
		"pcieport " + port + ": AER: Uncorrected (Fatal) error received: " + one,
		"pcieport " + port + ": AER: Uncorrectable (Non-Fatal) error message received from " + one,
		"npu " + port + ": PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)",
		"pcieport " + port + ": AER: device recovery failed", "", " " + port + ": ", "x " + port + ": AER: AER: ",
	} {
		f.Add(text, "+pci:"+port)
	}
	f.Fuzz(func(t *testing.T, text, device string) {
		l, ok := readBusLine(host.KmsgRecord{Text: text, Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": device}})
		switch {
		case !ok && l != busLine{}:
			t.Errorf("no line, and yet %+v", l)
		case ok && (address(l.on) != l.on || l.from != "" && address(l.from) != l.from || l.fatal && l.nonFatal):
			t.Errorf("%+v", l)
		case ok && device != "+pci:"+l.on:
			t.Errorf("%q became %q", device, l.on)
		}
	})
}

// TestUnreported: it is said when nobody would tell of an error.
func TestUnreported(t *testing.T) {
	config := func(control byte) string {
		c := make([]byte, 256)
		c[0x34], c[0x40], c[0x41], c[0x60], c[0x68] = 0x40, 0x01, 0x60, 0x10, control
		return string(c)
	}
	loop := []byte(config(0))
	loop[0x60], loop[0x61] = 5, 0x40
	for name, c := range map[string]struct {
		counts, handled bool
		config, want    string
	}{
		"all is well":              {true, true, config(4), ""},
		"nothing counts":           {false, true, config(4), "neither the device nor the port"},
		"the kernel is silent":     {true, false, config(4), "the kernel does not handle errors at port " + port},
		"the device is silent":     {true, true, config(3), "the device does not report"},
		"capabilities in a circle": {true, true, string(loop), ""},
		"not readable":             {true, true, config(0)[:64], ""},
	} {
		b := newBench(t)
		if c.counts {
			b.m.SetAttribute(one, "aer_dev_fatal", "TOTAL_ERR_FATAL 0")
		}
		if c.handled {
			b.m.Link("/sys/bus/pci_express/drivers/aer/"+port+":pcie002", "/sys/devices/x")
		}
		b.m.File("/sys/bus/pci/devices/"+one+"/config", c.config)
		got := Unreported(b.m.Host, accel.PCIDevice{Address: one, ParentPort: port}, []string{port})
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
