package health

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

const (
	one = "0000:01:00.0"
	two = "0000:02:00.0"
)

func definition() *accel.Definition {
	return &accel.Definition{
		Kind: "example-npu", Match: []accel.Match{{Vendor: "f00d"}},
		Log: []accel.LogRule{
			{
				Match: `NPU: err \((?P<device>[0-9a-f:.]+)\): (?P<code>[0-9]+)`,
				Codes: map[string]accel.Verdict{
					"79": {Title: "fell off the bus", State: accel.Unhealthy, Action: accel.ActionReboot},
					"63": {Title: "row remapped", State: accel.Degraded, For: "10m"},
					"43": {Title: "a program was stopped"},
				},
				Otherwise: accel.Verdict{Title: "unknown to this version of acceld"},
			},
			{Match: `npu reset failed`, Code: "reset", Otherwise: accel.Verdict{
				State:  accel.Unhealthy,
				Action: accel.ActionReboot,
			}},
			{Match: `npu reset succeeded`, Code: "reset"},
			{Match: `npu core locked up`, Otherwise: accel.Verdict{
				State:  accel.Unhealthy,
				Action: accel.ActionResetDevice,
			}},
		},
		Metrics: []accel.MetricSource{{Name: "accelerator_temperature_celsius", File: "temp"}},
		Limits:  []accel.Limit{{Metric: "accelerator_temperature_celsius", Above: 90, Until: 80, For: "30s"}},
	}
}

// bench is an engine on a machine with two devices and a test clock.
type bench struct {
	*testing.T
	m       *hosttest.Machine
	e       *Engine
	def     *accel.Definition
	now     time.Time
	next    uint64
	changes int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		T: t, m: hosttest.New(t), def: definition(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		next: 100,
	}
	for _, id := range []string{one, two} {
		b.m.AddPCI(accel.PCIDevice{
			Address: id, Vendor: "f00d", Device: "0100", Class: "120000", NUMANode: -1,
			IOMMUGroup: -1,
		})
	}
	b.m.Modprobe(hosttest.Driver{Module: "npu", IDs: []string{"f00d:0100"}})
	b.m.File("/proc/uptime", "1000.00 1.00\n")
	b.restart()
	return b
}

// restart starts another agent in the same boot.
func (b *bench) restart() {
	b.e = New(Options{
		Host: b.m.Host, File: "/run/acceld/health.json", Now: func() time.Time {
			return b.now
		}, Changed: func() { b.changes++ },
		Definitions: func() map[string]*accel.Definition { return map[string]*accel.Definition{b.def.Kind: b.def} },
	})
}

// says logs a line of the kernel with the age ago.
func (b *bench) says(text string, ago time.Duration) host.KmsgRecord {
	b.next++
	r := host.KmsgRecord{Sequence: b.next, Level: 3, Boot: 1000*time.Second - ago, Text: text}
	b.e.record(r)
	return r
}

// judged returns the health of the devices whose attributes say base.
func (b *bench) judged(base ...accel.Health) []accel.Accelerator {
	b.Helper()
	for len(base) < 2 {
		base = append(base, accel.Health{State: accel.Healthy})
	}
	pci := []accel.PCIDevice{{Address: one, ParentPort: "0000:00:01.0"}, {Address: two}, {Address: "0000:00:01.0"}}
	return b.e.Judge(b.def, pci, []accel.Accelerator{{ID: one, Health: base[0]}, {ID: two, Health: base[1]}})
}

// want fails unless the first device has this health and the second is healthy.
func (b *bench) want(what string, state accel.HealthState, reason accel.Reason, base ...accel.Health) accel.Health {
	b.Helper()
	all := b.judged(base...)
	if h := all[0].Health; h.State != state || h.Reason != reason {
		b.Errorf("%s: %+v, want %s %s", what, h, state, reason)
	}
	if len(base) < 2 && all[1].Health.State != accel.Healthy {
		b.Errorf("%s: the other device is %+v", what, all[1].Health)
	}
	return all[0].Health
}

func TestLogLine(t *testing.T) {
	b := newBench(t)
	b.want("before", accel.Healthy, "")
	b.says("NPU: err (00000000:01:00): 79, pid=7", 0)
	if b.changes != 1 {
		t.Errorf("told %d times", b.changes)
	}
	h := b.want("after", accel.Unhealthy, accel.DeviceFault)
	if h.Action != accel.ActionReboot || h.Message != "error 79, fell off the bus" ||
		h.Evidence != "NPU: err (00000000:01:00): 79, pid=7" {
		t.Errorf("health: %+v", h)
	}
	b.now = b.now.Add(time.Hour)
	b.want("an hour later", accel.Unhealthy, accel.DeviceFault)
	b.restart()
	b.want("after a restart of the agent", accel.Unhealthy, accel.DeviceFault)
	b.m.Unbind(one)
	b.want("unbound", accel.Unhealthy, accel.DeviceFault)
	b.m.Bind(one, "npu")
	b.want("bound again", accel.Healthy, "")
	b.restart()
	b.e.record(host.KmsgRecord{Sequence: b.next, Boot: 999 * time.Second, Text: "NPU: err (0000:01:00.0): 79"})
	b.want("the old line, read again by the next agent", accel.Healthy, "")
}

// TestRepeatedLine: the next agent does not judge a repeated error again, whether this one ended or was killed.
func TestRepeatedLine(t *testing.T) {
	for _, killed := range []bool{false, true} {
		b := newBench(t)
		records, ended := make(chan host.KmsgRecord), make(chan bool)
		follow := b.e.Follow
		go func() {
			defer close(ended)
			follow(records)
		}()
		var replay []host.KmsgRecord
		for i := range 2 {
			replay = append(replay, host.KmsgRecord{
				Sequence: uint64(200 + i), Level: 3, Boot: 1000 * time.Second, Text: "NPU: err (01:00.0): 79",
			})
			records <- replay[i]
		}
		records <- host.KmsgRecord{Text: "the errors before it are judged when this is taken"}
		if killed {
			time.Sleep(quiet + time.Second)
		} else {
			close(records)
			<-ended
		}
		b.m.Unbind(one)
		b.m.Bind(one, "npu")
		b.restart()
		for _, r := range replay {
			b.e.record(r)
		}
		b.want(fmt.Sprintf("bound again, killed %t", killed), accel.Healthy, "")
		if killed {
			close(records)
			<-ended
		}
	}
}

func TestLogLineForAWhile(t *testing.T) {
	b := newBench(t)
	b.says("NPU: err (01:00.0): 63, row 5", 0)
	h := b.want("after", accel.Degraded, accel.DeviceFault)
	if !h.Usable() || h.Action != "" {
		t.Errorf("health: %+v", h)
	}
	b.now = b.now.Add(9 * time.Minute)
	b.want("nine minutes later", accel.Degraded, accel.DeviceFault)
	b.says("NPU: err (01:00.0): 63, row 6", 0)
	b.now = b.now.Add(9 * time.Minute)
	b.want("nine minutes after the second", accel.Degraded, accel.DeviceFault)
	b.now = b.now.Add(time.Minute)
	b.want("ten minutes after the second", accel.Healthy, "")
	faults := b.judged()[0].Faults
	if len(faults) != 1 || faults[0].Count != 2 || faults[0].Code != "63" || faults[0].Title != "row remapped" {
		t.Errorf("faults: %+v", faults)
	}
}

// TestLogOfOthers: lines that a process wrote, that are about another device, that are only counted, and that no rule
// matches.
func TestLogOfOthers(t *testing.T) {
	b := newBench(t)
	b.e.record(host.KmsgRecord{Sequence: 500, Facility: 1, Level: 3, Text: "NPU: err (0000:01:00.0): 79"})
	b.says("NPU: err (0000:07:00.0): 79", 0)
	b.says("NPU: err (0000:01:00.0): 43", 0)
	b.says("NPU: err (0000:01:00.0): 999", 0)
	b.says("NPU: err (garbage): 79", 0)
	b.says("something else", 0)
	b.want("after", accel.Healthy, "")
	faults := b.judged()[0].Faults
	if len(faults) != 2 || faults[0].Code != "43" || faults[1].Code != "999" ||
		faults[1].Title != "unknown to this version of acceld" {
		t.Errorf("faults: %+v", faults)
	}
	b.e.record(host.KmsgRecord{
		Sequence: 600, Boot: 1000 * time.Second, Level: 3,
		Text: "npu 0000:01:00.0: npu core locked up", Fields: map[string]string{
			"SUBSYSTEM": "pci",
			"DEVICE":    "+pci:0000:01:00.0",
		},
	})
	if h := b.want("by the record's field", accel.Unhealthy,
		accel.DeviceFault); h.Message != "the driver reports: npu 0000:01:00.0: npu core locked up" {
		t.Errorf("health: %+v", h)
	}
}

// TestTakenBack: a line that is only counted removes the finding of an earlier line with its code.
func TestTakenBack(t *testing.T) {
	b := newBench(t)
	field := map[string]string{"DEVICE": "+pci:" + one}
	b.e.record(host.KmsgRecord{Sequence: 800, Boot: 1000 * time.Second, Text: "npu reset failed", Fields: field})
	b.want("failed", accel.Unhealthy, accel.DeviceFault)
	b.e.record(host.KmsgRecord{Sequence: 801, Boot: 1000 * time.Second, Text: "npu reset succeeded", Fields: field})
	b.want("and then not", accel.Healthy, "")
	b.restart()
	b.want("also for the next agent", accel.Healthy, "")
}

// told reports an error as the definition's program does.
func (b *bench) reported(code string) {
	b.e.Told(b.def, accel.ProbeFault{Device: one, Code: code, Text: "LIB: error " + code, At: b.now})
}

// TestTold: an error from a program means what the log's rules say about its code; reported by both, it is one error.
func TestTold(t *testing.T) {
	b := newBench(t)
	b.reported("79")
	if b.changes != 1 {
		t.Errorf("told %d times", b.changes)
	}
	h := b.want("told", accel.Unhealthy, accel.DeviceFault)
	if h.Action != accel.ActionReboot || h.Message != "error 79, fell off the bus" || h.Evidence != "LIB: error 79" {
		t.Errorf("health: %+v", h)
	}
	b.says("NPU: err (0000:01:00.0): 79, pid=7", 0)
	h = b.want("and the log says so, too", accel.Unhealthy, accel.DeviceFault)
	if h.Evidence != "NPU: err (0000:01:00.0): 79, pid=7" || h.Message != "error 79, fell off the bus" {
		t.Errorf("health: %+v", h)
	}
	b.reported("79")
	h = b.want("and again", accel.Unhealthy, accel.DeviceFault)
	if f := b.judged()[0].Faults; len(f) != 1 || f[0].Count != 2 || h.Evidence != "NPU: err (0000:01:00.0): 79, pid=7" {
		t.Errorf("faults %+v, health %+v", f, h)
	}
	b.restart()
	b.want("after a restart of the agent", accel.Unhealthy, accel.DeviceFault)
	b.m.Unbind(one)
	b.m.Bind(one, "npu")
	b.want("bound again", accel.Healthy, "")
	b.reported("43")
	b.reported("999")
	b.want("what is only counted", accel.Healthy, "")
	if f := b.judged()[0].Faults; len(f) != 2 || f[0].Code != "43" || f[0].Title != "a program was stopped" ||
		f[1].Title != "unknown to this version of acceld" {
		t.Errorf("faults: %+v", f)
	}
}

// TestToldForAWhile: each report restarts the time of a verdict with a time, whatever its source.
func TestToldForAWhile(t *testing.T) {
	b := newBench(t)
	b.reported("63")
	b.want("told", accel.Degraded, accel.DeviceFault)
	b.now = b.now.Add(9 * time.Minute)
	b.says("NPU: err (01:00.0): 63, row 5", 0)
	b.now = b.now.Add(9 * time.Minute)
	b.want("nine minutes after the log", accel.Degraded, accel.DeviceFault)
	b.now = b.now.Add(2 * time.Minute)
	b.want("eleven minutes after the log", accel.Healthy, "")
	b.reported("63")
	b.want("told once more", accel.Degraded, accel.DeviceFault)
}

// TestOldLines: the first agent of a boot finds lines that are older than itself. Old errors may have been resolved.
func TestOldLines(t *testing.T) {
	b := newBench(t)
	b.says("NPU: err (0000:01:00.0): 79", 15*time.Minute)
	b.want("an old line", accel.Healthy, "")
	if f := b.judged()[0].Faults; len(f) != 1 || !f[0].Last.Equal(b.now.Add(-15*time.Minute)) {
		t.Errorf("faults: %+v", f)
	}
	b.says("NPU: err (0000:01:00.0): 63", 9*time.Minute)
	b.want("one that still counts", accel.Degraded, accel.DeviceFault)
	b.now = b.now.Add(time.Minute)
	b.want("until its time is up", accel.Healthy, "")
	b.restart()
	b.says("NPU: err (0000:02:00.0): 79", 15*time.Minute)
	if h := b.judged()[1].Health; h.State != accel.Unhealthy {
		t.Errorf("what happened while no agent ran: %+v", h)
	}
}

func TestFlood(t *testing.T) {
	b := newBench(t)
	for i := range 30_000 {
		b.says(fmt.Sprintf("NPU: err (%04x:%02x:00.0): %d", i%70_000, i%256, i%5000), 0)
	}
	if n := len(b.e.devices); n > maxDevices {
		t.Errorf("%d devices are kept", n)
	}
	for _, d := range b.e.devices {
		if len(d.faults) > maxCodes {
			t.Fatalf("%d codes are kept", len(d.faults))
		}
	}
	if b.changes > 2*maxDevices {
		t.Errorf("told %d times", b.changes)
	}
}

func TestBus(t *testing.T) {
	b := newBench(t)
	set := func(id string, cor, nonfatal, fatal int) {
		b.m.SetAttribute(id, "aer_dev_correctable", fmt.Sprintf("RxErr 0\nTOTAL_ERR_COR %d", cor))
		b.m.SetAttribute(id, "aer_dev_nonfatal", fmt.Sprintf("Undefined 0\nTOTAL_ERR_NONFATAL %d", nonfatal))
		b.m.SetAttribute(id, "aer_dev_fatal", fmt.Sprintf("Undefined 0\nTOTAL_ERR_FATAL %d", fatal))
	}
	const port = "0000:00:01.0"
	b.m.AddPCI(accel.PCIDevice{
		Address: port, Vendor: "8086", Device: "0001", Class: "060400", NUMANode: -1,
		IOMMUGroup: -1,
	})
	set(one, 5000, 3, 1)
	set(port, 0, 0, 0)
	b.want("what was there before", accel.Healthy, "")
	set(port, 0, 1, 0)
	h := b.want("not fatal, at the port", accel.Degraded, accel.BusErrors)
	if !strings.Contains(h.Message, port) || !strings.Contains(h.Message, "non-fatal") {
		t.Errorf("health: %+v", h)
	}
	b.now = b.now.Add(lingers)
	b.want("ten minutes later", accel.Healthy, "")
	set(one, 5099, 3, 1)
	b.want("some correctable ones", accel.Healthy, "")
	b.now = b.now.Add(30 * time.Second)
	set(one, 5100, 3, 1)
	b.want("too many of them", accel.Degraded, accel.BusErrors)
	b.now = b.now.Add(lingers)
	b.want("and no more", accel.Healthy, "")
	for range 20 {
		b.now = b.now.Add(30 * time.Second)
		b.want("a few now and then", accel.Healthy, "")
		set(one, 5100+int(b.now.Unix()%40), 3, 1)
	}
	set(one, 5200, 3, 2)
	if h := b.want("fatal", accel.Unhealthy, accel.BusErrors); h.Action != accel.ActionResetDevice {
		t.Errorf("health: %+v", h)
	}
	b.restart()
	b.want("fatal, and another agent", accel.Unhealthy, accel.BusErrors)
	b.m.Unbind(one)
	b.m.Bind(one, "npu")
	b.want("bound again", accel.Healthy, "")
	b.restart()
	b.want("and another agent", accel.Healthy, "")
	b.m.Unbind(one)
	set(one, 9000, 4, 3)
	set(port, 9000, 4, 3)
	b.m.Bind(one, "npu")
	b.want("what a reset has made, seen when the driver is bound again", accel.Healthy, "")
	b.m.Unbind(one)
	b.judged()
	set(port, 9000, 4, 4)
	b.restart()
	b.m.Bind(one, "npu")
	b.want("the same, seen by another agent", accel.Healthy, "")
	set(one, 9000, 4, 4)
	b.want("and a real one", accel.Unhealthy, accel.BusErrors)
}

func TestLink(t *testing.T) {
	l := func(speed, most float64, width, max int) accel.PCIDevice {
		return accel.PCIDevice{Link: accel.Link{SpeedGTs: speed, MaxSpeedGTs: most, Width: width, MaxWidth: max}}
	}
	for _, c := range []struct {
		what    string
		f, port accel.PCIDevice
		fixed   bool
		says    string
	}{
		{"as it should be", l(16, 16, 16, 16), l(16, 16, 16, 16), true, ""},
		{"conventional", l(0, 0, 0, 0), l(0, 0, 0, 0), true, ""},
		{"half the lanes", l(16, 16, 8, 16), l(16, 16, 8, 16), false, "8 of 16 lanes"},
		{"half the lanes, and the port has no more", l(16, 16, 8, 16), l(16, 16, 8, 8), false, ""},
		{"idle", l(2.5, 16, 16, 16), l(2.5, 32, 16, 16), false, ""},
		{"slow, and it never is idle", l(2.5, 16, 16, 16), l(2.5, 32, 16, 16), true, "2.5 of 16 GT/s"},
		{"as fast as the port", l(8, 16, 16, 16), l(8, 8, 16, 16), true, ""},
		{"no port is known", l(16, 16, 4, 16), accel.PCIDevice{}, false, "4 of 16 lanes"},
		{"down", l(0, 16, 0, 16), l(0, 16, 0, 16), true, ""},
	} {
		h := link(c.f, c.port, c.fixed)
		if (h.State == accel.Degraded) != (c.says != "") || !strings.Contains(h.Message, c.says) {
			t.Errorf("%s: %+v, want %q", c.what, h, c.says)
		}
	}
}

func TestLimit(t *testing.T) {
	b := newBench(t)
	at := func(celsius float64) {
		b.e.Measured(one, map[string]float64{"accelerator_temperature_celsius": celsius})
	}
	at(91)
	b.want("for a moment", accel.Healthy, "")
	b.now = b.now.Add(30 * time.Second)
	h := b.want("for long enough", accel.Degraded, accel.LimitExceeded)
	if h.Evidence != "accelerator_temperature_celsius = 91" {
		t.Errorf("health: %+v", h)
	}
	at(85)
	b.want("not cool enough yet", accel.Degraded, accel.LimitExceeded)
	at(80)
	b.want("cool", accel.Healthy, "")
	at(91)
	b.want("hot again, for a moment", accel.Healthy, "")
	at(89)
	b.now = b.now.Add(time.Minute)
	b.want("below the limit again before it counted", accel.Degraded, accel.LimitExceeded)
}

// TestCriticalTemperature: every device has the limit that it reports itself, while it reports one.
func TestCriticalTemperature(t *testing.T) {
	b := newBench(t)
	b.def.Limits = nil
	at := func(celsius, critical float64) {
		b.e.Measured(one, map[string]float64{
			"accelerator_temperature_celsius":          celsius,
			"accelerator_temperature_critical_celsius": critical,
		})
		b.want("for a moment", accel.Healthy, "")
		b.now = b.now.Add(30 * time.Second)
	}
	at(96, 95)
	if h := b.want("above", accel.Degraded,
		accel.LimitExceeded); h.Message != "accelerator_temperature_celsius is above 95" {
		t.Errorf("health: %+v", h)
	}
	b.e.Measured(one, map[string]float64{
		"accelerator_temperature_celsius":          95,
		"accelerator_temperature_critical_celsius": 95,
	})
	b.want("below again", accel.Healthy, "")
	at(96, 0)
	b.want("a device that names none", accel.Healthy, "")
	b.e.Measured(one, map[string]float64{"accelerator_temperature_celsius": 96})
	b.want("or does not say", accel.Healthy, "")
	b.def.Limits = []accel.Limit{{Metric: "accelerator_temperature_celsius", Above: 200}}
	at(96, 95)
	b.want("a definition that has a limit of its own", accel.Healthy, "")
}

func TestUnstable(t *testing.T) {
	b := newBench(t)
	ill, well := accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy}, accel.Health{State: accel.Healthy}
	for i := range flipsMany {
		b.want("ill", accel.Unhealthy, accel.DeviceUnhealthy, ill)
		b.now = b.now.Add(10 * time.Second)
		state, reason := accel.Healthy, accel.Reason("")
		if i == flipsMany-1 {
			state, reason = accel.Unhealthy, accel.Unstable
		}
		b.want("well", state, reason, well)
	}
	b.now = b.now.Add(flipsCalm - 11*time.Second)
	b.want("well for a while", accel.Unhealthy, accel.Unstable, well)
	b.now = b.now.Add(time.Second)
	b.want("well for long enough", accel.Healthy, "", well)
}

// TestUnknown: attributes that cannot be read do not change the answer, and everything else still applies.
func TestUnknown(t *testing.T) {
	b := newBench(t)
	b.want("never answered", "", "", accel.Health{})
	b.want("unhealthy", accel.Unhealthy, accel.DeviceUnhealthy, accel.Health{
		State:  accel.Unhealthy,
		Reason: accel.DeviceUnhealthy,
	})
	b.want("not answered", accel.Unhealthy, accel.DeviceUnhealthy, accel.Health{})
	b.want("healthy", accel.Healthy, "", accel.Health{State: accel.Healthy})
	b.says("NPU: err (01:00.0): 79", 0)
	b.want("not answered, and the log tells", accel.Unhealthy, accel.DeviceFault, accel.Health{})
	b.want("gone", accel.Gone, accel.DeviceGone, accel.Health{State: accel.Gone, Reason: accel.DeviceGone})
}

// TestWorst: the worst state wins, then the most expensive action, and the others are counted.
func TestWorst(t *testing.T) {
	b := newBench(t)
	b.says("NPU: err (01:00.0): 63", 0)
	b.e.record(host.KmsgRecord{
		Sequence: 700, Boot: 1000 * time.Second, Text: "npu core locked up",
		Fields: map[string]string{"DEVICE": "+pci:" + one},
	})
	b.e.record(host.KmsgRecord{Sequence: 701, Boot: 1000 * time.Second, Text: "NPU: err (01:00.0): 79"})
	if h := b.want("three", accel.Unhealthy, accel.DeviceFault); h.Action != accel.ActionReboot ||
		h.Message != "error 79, fell off the bus; and 2 more" {
		t.Errorf("health: %+v", h)
	}
}

// TestMemoryDamaged: a damaged file counts as none.
func TestMemoryDamaged(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{
		"", "{", "[]", `{"cursor": "x"}`,
		`{"findings": [{"device": "` + one + `", "state": "unhealthy"`,
	} {
		b.m.File("/run/acceld/health.json", text)
		b.restart()
		b.want(fmt.Sprintf("%q", text), accel.Healthy, "")
	}
	b.says("NPU: err (01:00.0): 79", 0)
	b.want("and it works on", accel.Unhealthy, accel.DeviceFault)
	file, err := b.m.Host.Path("/run/acceld/health.json")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", st, err)
	}
}

func TestAddress(t *testing.T) {
	for s, want := range map[string]string{
		"0000:01:00.0": one, "0000:01:00": one, "00000000:01:00.0": one, "01:00.0": one, "01:00": one,
		"0000:AB:1f.7":  "0000:ab:1f.7",
		"10001:e0:00.0": "10001:e0:00.0", "": "", "0000": "", "x:01:00.0": "", "0000:01:00.8": "", "../../etc": "",
	} {
		if got := address(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
}

// BenchmarkRecord compares a line that no rule matches, as is nearly always the case, with one that a rule matches.
func BenchmarkRecord(b *testing.B) {
	book := compile(map[string]*accel.Definition{"x": definition()})
	for name, text := range map[string]string{
		"foreign": "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
		"ours":    "NPU: err (0000:01:00.0): 79, pid=7, name=python3",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				book.read(host.KmsgRecord{Text: text})
			}
		})
	}
}

// TestTimeIsUp: the end of a finding is reported, as its start is.
func TestTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		changes := make(chan struct{}, 100)
		b.e = New(Options{
			Host: b.m.Host, File: "/run/acceld/health.json", Changed: func() { changes <- struct{}{} },
			Definitions: func() map[string]*accel.Definition { return map[string]*accel.Definition{b.def.Kind: b.def} },
		})
		b.says("NPU: err (0000:01:00.0): 63", 0)
		<-changes
		b.want("an error that counts for ten minutes", accel.Degraded, accel.DeviceFault)
		began := time.Now()
		<-changes
		if took := time.Since(began).Round(time.Second); took != 10*time.Minute && took != 10*time.Minute-time.Second {
			t.Errorf("told after %s", took)
		}
		b.want("its time is up", accel.Healthy, "")
	})
}
