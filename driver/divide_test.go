package driver

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/test/ko"
)

// partsFile is the attribute that divides the device of a [divisible] machine.
const partsFile = "/sys/bus/pci/devices/" + ko.Device + "/partitions"

// divisible is a machine whose device can be divided.
type divisible struct {
	*testMachine
	def    *accel.Definition
	needed bool
}

func withParts(t *testing.T) *divisible {
	t.Helper()
	m := &divisible{testMachine: newMachine(t), def: ko.Definition()}
	m.Install("updates/edu.ko", ko.Edu())
	m.Write(partsFile, "1\n")
	m.def.Partitions = &accel.Partitions{
		Find: "edu*p*", Form: "(?P<name>p[0-9]+)$", Make: &accel.Making{File: "partitions", Whole: "1"},
		Profiles: []accel.Profile{
			{Name: "half", Make: "2", Possible: []string{"p0", "p1"}},
			{Name: "quarter", Make: "4", Possible: []string{"p0", "p1", "p2", "p3"}},
		},
	}
	if _, problem := m.driver(Options{}).Ensure(t.Context(), m.def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	return m
}

func (m *divisible) request(profile string) DivideRequest {
	return DivideRequest{
		Def: m.def, Device: m.accs()[0], Profile: profile, Claim: "uid-1", Name: "team/c",
		Needed: func(accel.Divided) bool { return m.needed },
	}
}

func (m *divisible) make(d *Driver, profile string) *accel.Problem {
	return NewDivisions(d).Make(m.T.Context(), m.request(profile))
}

func (m *divisible) back(d *Driver) *accel.Problem {
	return NewDivisions(d).Return(m.T.Context(), ko.Device, nil, func(accel.Divided) bool { return m.needed })
}

// is checks how the device is divided, and whether there is a journal.
func (m *divisible) is(when, value string, journal bool) {
	m.T.Helper()
	j, err := m.Host.Devices().DividedOf(ko.Device)
	if got := strings.TrimSpace(m.Read(partsFile)); got != value || (j != nil) != journal || err != nil {
		m.T.Errorf("%s: %q, want %q; journal %+v, %v", when, got, value, j, err)
	}
}

func TestDivideAndReturn(t *testing.T) {
	m := withParts(t)
	d := m.driver(Options{})
	if problem := m.make(d, "half"); problem != nil {
		t.Fatal(problem)
	}
	m.is("divided", "2", true)
	if j, _ := m.Host.Devices().DividedOf(ko.Device); j.Before != "1" || j.Profile != "half" || j.Name != "team/c" ||
		j.Kind != m.def.Kind {
		t.Errorf("%+v", j)
	}
	if problem := m.make(m.driver(Options{}), "half"); problem != nil {
		t.Error("again:", problem)
	}
	m.needed = true
	if problem := m.make(d, "quarter"); problem == nil || problem.Reason != accel.DivisionRefused ||
		!strings.Contains(problem.Message, "team/c") {
		t.Error("under others:", problem)
	}
	if problem := m.back(d); problem != nil {
		t.Error(problem)
	}
	m.is("needed", "2", true)
	m.needed = false
	if problem := m.make(d, "quarter"); problem != nil {
		t.Error("after others:", problem)
	}
	m.is("divided otherwise", "4", true)
	if problem := m.back(d); problem != nil {
		t.Error(problem)
	}
	m.is("whole", "1", false)
}

// TestDivideRefused has a row for each device that is not divided; nothing is changed.
func TestDivideRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*divisible)
		reason accel.Reason
		says   string
	}{
		"in use": {func(m *divisible) {
			m.Write("/proc/77/comm", "train\n")
			m.link("/proc/77/fd/3", "/dev/edu0")
		}, accel.InUse, "train"},
		"divided by somebody": {func(m *divisible) { m.Write(partsFile, "4\n") }, accel.DivisionRefused, "somebody else"},
		"with another driver": {func(m *divisible) { m.rebound() }, accel.DivisionRefused, "mine"},
		"given out with vfio": {func(m *divisible) {
			j := accel.Switched{Use: accel.UseVFIO, Kind: "qemu-edu", Driver: "vfio-pci", From: "edu", Group: 7, Claim: "u"}
			if err := m.Host.Devices().Switch(ko.Device, j); err != nil {
				m.T.Fatal(err)
			}
		}, accel.OtherUse, "another driver"},
		"no attribute": {func(m *divisible) { _ = os.Remove(m.Path(partsFile)) }, accel.ProbeUnanswered, "not known"},
		"a journal that cannot be read": {func(m *divisible) {
			m.Write("/run/acceld/divided/"+ko.Device+".json", "{")
		}, accel.ProbeUnanswered, "cannot read"},
	} {
		t.Run(name, func(t *testing.T) {
			m := withParts(t)
			c.change(m)
			was := ""
			if m.Host.Exists(partsFile) {
				was = m.Read(partsFile)
			}
			problem := m.make(m.driver(Options{}), "half")
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says) {
				t.Error(problem)
			}
			if m.Host.Exists(partsFile) && m.Read(partsFile) != was {
				t.Error("it is divided")
			}
			if j, err := m.Host.Devices().DividedOf(ko.Device); j != nil || err != nil && c.says != "cannot read" {
				t.Error("a journal is left:", j, err)
			}
		})
	}
}

// refusing is a divider whose device refuses something, or forgets it.
type refusing struct {
	attributeDivider
	value  string
	err    error
	forget bool
}

func (r refusing) Divide(ctx context.Context, value string) error {
	switch {
	case value == r.value && r.forget:
		return nil
	case value == r.value:
		return r.err
	}
	return r.attributeDivider.Divide(ctx, value)
}

func TestDivideUndone(t *testing.T) {
	for name, r := range map[string]refusing{
		"refused": {value: "2", err: syscall.EBUSY}, "forgotten": {value: "2", forget: true},
	} {
		m := withParts(t)
		d := m.driver(Options{})
		r.attributeDivider = attributeDivider{NewDivisions(d), partsFile}
		request := m.request("half")
		request.Divider = r
		problem := NewDivisions(d).Make(t.Context(), request)
		if problem == nil || problem.Reason != accel.DivisionFailed {
			t.Error(name, problem)
		}
		m.is(name, "1", false)
	}
	m := withParts(t)
	d := m.driver(Options{})
	if problem := m.make(d, "half"); problem != nil {
		t.Fatal(problem)
	}
	m.Write("/proc/77/comm", "train\n")
	m.link("/proc/77/fd/3", "/dev/edu0")
	if problem := m.back(d); problem == nil || problem.Reason != accel.NotUndivided ||
		!strings.Contains(problem.Message, "train") {
		t.Error("in use:", problem)
	}
	m.is("in use", "2", true)
	if problem := m.make(d, "half"); problem != nil {
		t.Error("what is made is used:", problem)
	}
	s := NewDivisions(d).see(t.Context(), ko.Device, nil)
	if _, problem := whole(ko.Device, s); problem == nil {
		t.Error("without the program that knows how it is divided")
	}
	vfio := withVFIO(t)
	if err := vfio.Host.Devices().Divide(ko.Device, accel.Divided{
		Kind: "qemu-edu", Profile: "half", File: "partitions", Value: "2", Before: "1", Claim: "u",
	}); err != nil {
		t.Fatal(err)
	}
	if _, problem := vfio.give(vfio.new()); problem == nil || !strings.Contains(problem.Message, "divided for claims") {
		t.Error("a divided device with vfio:", problem)
	}
}

// TestDivideKilledAtEveryPoint kills the agent before and after everything that outlives it, when a device is divided
// and made whole. The next agent goes on, or goes back.
func TestDivideKilledAtEveryPoint(t *testing.T) {
	for _, way := range []string{"apart", "whole", "otherwise"} {
		for n := 0; ; n++ {
			ended := true
			for _, next := range []string{"goes on", "goes back", "is purged", "boots"} {
				m := withParts(t)
				d := m.driver(Options{})
				profile, value := "half", "2"
				do := func() { _ = m.make(d, profile) }
				if way != "apart" {
					if problem := m.make(d, "half"); problem != nil {
						t.Fatal(problem)
					}
				}
				switch way {
				case "whole":
					do = func() { _ = m.back(d) }
				case "otherwise":
					profile, value = "quarter", "4"
				}
				if _, dead := m.killAt(d, n, do); !dead {
					continue
				}
				ended = false
				when := way + ", killed at " + string(rune('a'+n)) + ", then it " + next
				m.killedThen(next, when, profile, value)
			}
			if ended {
				if n < 4 {
					t.Errorf("%s: only %d points", way, n)
				}
				break
			}
		}
	}
}

// killedThen checks what comes after a kill.
func (m *divisible) killedThen(next, when, profile, value string) {
	m.T.Helper()
	switch next {
	case "goes on":
		if problem := m.make(m.driver(Options{}), profile); problem != nil {
			m.T.Error(when, problem)
		}
		m.is(when, value, true)
	case "goes back":
		if problem := m.back(m.driver(Options{})); problem != nil {
			m.T.Error(when, problem)
		}
		m.is(when, "1", false)
	case "is purged":
		out, problem := m.driver(Options{}).Purge(m.T.Context(), PurgeOptions{})
		left := func(o ledger.Outcome) bool { return o.Action == ledger.Left }
		if problem != nil || slices.ContainsFunc(out, left) {
			m.T.Error(when, out, problem)
		}
		m.is(when, "1", false)
	case "boots":
		m.Write(partsFile, "1\n")
		_ = os.RemoveAll(m.Path("/run"))
		if problem := m.back(m.driver(Options{})); problem != nil {
			m.T.Error(when, problem)
		}
		m.is(when, "1", false)
		if problem := m.make(m.driver(Options{}), profile); problem != nil {
			m.T.Error(when, problem)
		}
		m.is(when, value, true)
	}
}

// TestDivideDecisions has what the machine cannot show.
func TestDivideDecisions(t *testing.T) {
	def := ko.Definition()
	def.Partitions = &accel.Partitions{Make: &accel.Making{File: "partitions", Whole: "1"}}
	binds := def.Driver.Binds
	mine := &accel.Divided{Profile: "half", Value: "2", Before: "1", Claim: "c"}
	for name, c := range map[string]struct {
		sight  divideSight
		step   divideStep
		reason accel.Reason
	}{
		"new":       {divideSight{Present: true, Bound: binds, Value: "1"}, divideNote, ""},
		"noted":     {divideSight{Present: true, Bound: binds, Value: "1", Journal: mine}, divideWrite, ""},
		"divided":   {divideSight{Present: true, Bound: binds, Value: "2", Journal: mine, Users: []string{"a pod"}}, divideDone, ""},
		"otherwise": {divideSight{Present: true, Bound: binds, Value: "4", Journal: mine}, divideRestore, ""},
		"gone":      {divideSight{Journal: mine}, "", accel.DeviceGone},
		"opened after the journal": {
			divideSight{Present: true, Bound: binds, Value: "1", Journal: mine, Users: []string{"a"}}, "", accel.InUse,
		},
		"host use":       {divideSight{Present: true, Bound: binds, Value: "1", Use: "a disk"}, "", accel.InUse},
		"unknown":        {divideSight{Present: true, Bound: binds, Value: "1", Unknown: errors.New("x")}, "", accel.ProbeUnanswered},
		"without driver": {divideSight{Present: true, Value: "1", Journal: mine}, "", accel.DivisionRefused},
	} {
		step, problem := apart(DivideRequest{Def: def, Device: accel.Accelerator{ID: "d"}}, "2", c.sight)
		if step != c.step || (problem != nil) != (c.reason != "") || problem != nil && problem.Reason != c.reason {
			t.Errorf("%s: %q %v", name, step, problem)
		}
	}
	others := divideSight{Present: true, Bound: binds, Value: "4", Users: []string{"a"}}
	if step, problem := apart(DivideRequest{Def: def, AsIs: true}, "2", others); step != divideDone || problem != nil {
		t.Errorf("a part that somebody else has made: %q %v", step, problem)
	}
	for name, c := range map[string]struct {
		sight divideSight
		step  divideStep
	}{
		"nothing":        {divideSight{Present: true, Bound: binds, Value: "4"}, divideDone},
		"gone":           {divideSight{Journal: mine}, divideForget},
		"divided":        {divideSight{Present: true, Bound: binds, Value: "2", Journal: mine}, divideRestore},
		"whole":          {divideSight{Present: true, Bound: binds, Value: "1", Journal: mine, Users: []string{"a"}}, divideForget},
		"without driver": {divideSight{Present: true, Journal: mine}, divideForget},
		"switched":       {divideSight{Present: true, Bound: "vfio-pci", Value: "2", Journal: mine, Switched: true}, divideForget},
	} {
		if step, problem := whole("d", c.sight); step != c.step || problem != nil {
			t.Errorf("%s: %q %v", name, step, problem)
		}
	}
	if got := few([]string{"a", "b", "c", "d", "e"}); got != "a, b, c and 2 more" {
		t.Error(got)
	}
}
