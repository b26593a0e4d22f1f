package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/steps"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
)

// TestBeside: a service and the pods of a namespace may have devices open whoever has them; nobody else by a name like
// theirs.
func TestBeside(t *testing.T) {
	m := newMachine(t)
	c := NewCleaner(m.driver(Options{}))
	def := ko.Definition()
	def.Handover = &accel.Handover{Beside: []string{"monitor.service", "namespace/watch"}}
	if text := def.Handover.Problems(); text != nil {
		t.Fatal(text)
	}
	m.Write("/proc/1/cgroup", "0::/system.slice/monitor.service\n")
	m.Write("/proc/2/cgroup", "0::/kubepods/pod0/monitor.service\n")
	for _, dir := range []string{"watch_exporter-x_u1", "other_watch_u2", "watchful_x_u3"} {
		m.Write("/var/log/pods/"+dir+"/x/0.log", "")
	}
	for _, u := range []struct {
		holder accel.Holder
		want   bool
	}{
		{accel.Holder{PID: 1}, true},
		{accel.Holder{PID: 2}, false},
		{accel.Holder{PID: 3, PodUID: "u1"}, true},
		{accel.Holder{PID: 3, PodUID: "u2"}, false},
		{accel.Holder{PID: 3, PodUID: "u3"}, false},
		{accel.Holder{PID: 3}, false},
	} {
		if c.beside(def.Handover.Beside, u.holder.PID, u.holder.PodUID) != u.want {
			t.Errorf("%+v: %t", u.holder, !u.want)
		}
	}
}

// TestExpected: who may have devices open without having been given them: a driver's daemons, and who is named for the
// handover or for this.
func TestExpected(t *testing.T) {
	m, d, def := resettable(t)
	c := NewCleaner(d)
	m.Write("/proc/1/cgroup", "0::/system.slice/monitor.service\n")
	m.Write("/proc/2/cgroup", "0::/system.slice/watch.service\n")
	m.Write("/proc/3/cgroup", "0::/system.slice/"+accel.CompanionUnit(def.Kind, "state")+"\n")
	m.Write("/proc/4/cgroup", "0::/system.slice/ssh.service\n")
	m.Write("/var/log/pods/watch_exporter-x_u5/x/0.log", "")
	is := func() (all []bool) {
		for pid, pod := range []string{1: "", 2: "", 3: "", 4: "", 5: "u5"} {
			if pid > 0 {
				all = append(all, c.Expected(def, pid, pod))
			}
		}
		return all
	}
	if got := is(); !slices.Equal(got, []bool{false, false, true, false, false}) {
		t.Errorf("with nobody named %v", got)
	}
	def.Handover = &accel.Handover{Beside: []string{"monitor.service"}}
	def.Unrequested = &accel.Unrequested{Beside: []string{"watch.service", "namespace/watch"}}
	if text := def.Unrequested.Problems(); text != nil {
		t.Fatal(text)
	}
	if got := is(); !slices.Equal(got, []bool{true, true, true, false, true}) {
		t.Errorf("with some named %v", got)
	}
	if got := def.Handover.Beside; len(got) != 1 {
		t.Errorf("the definition has %q now", got)
	}
}

// TestClean: a device is scrubbed as its definition says, and then has to pass its self-test.
func TestClean(t *testing.T) {
	for name, c := range map[string]struct {
		handover accel.Handover
		spoil    func(*testMachine, *accel.Definition)
		reason   accel.Reason
		said     string
	}{
		"nothing to scrub": {handover: accel.Handover{}},
		"by an attribute":  {handover: accel.Handover{Scrub: accel.ScrubAttribute, File: "scrub"}},
		"by an attribute that is not there": {
			handover: accel.Handover{Scrub: accel.ScrubAttribute, File: "none"}, reason: accel.ScrubFailed, said: "none",
		},
		"by a program": {handover: accel.Handover{
			Scrub: accel.ScrubProgram, Argv: []string{"/bin/sh", "-c", "test $0 = " + ko.Device, "{{.Address}}"},
		}},
		"by a program that fails": {
			handover: accel.Handover{Scrub: accel.ScrubProgram, Argv: []string{"/bin/sh", "-c", "echo no; exit 3"}},
			reason:   accel.ScrubFailed, said: "no",
		},
		"by a reset": {handover: accel.Handover{Scrub: accel.ScrubReset}},
		"by a reset that is not possible": {
			handover: accel.Handover{Scrub: accel.ScrubReset}, reason: accel.CannotReset, said: "not to be reset",
			spoil: func(_ *testMachine, def *accel.Definition) { def.Reset = accel.ResetNever },
		},
		"and computes wrongly": {
			handover: accel.Handover{}, reason: accel.CheckFailed, said: "7",
			spoil: func(_ *testMachine, def *accel.Definition) { def.Check.Want = "7" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, d, def := resettable(t)
			m.Write(m.Host.Devices().Dir(ko.Device)+"/scrub", "")
			def.Handover = &c.handover
			if c.handover.Scrub == accel.ScrubProgram {
				live, err := host.New("/") // the fake machine has no programs
				if err != nil {
					t.Fatal(err)
				}
				d.steps = steps.New(live, d.log, &d.operations, nil)
			}
			if c.spoil != nil {
				c.spoil(m, def)
			}
			problem := NewCleaner(d).Clean(t.Context(), def, slots(), accel.Accelerator{ID: ko.Device}, atOnce)
			switch {
			case c.reason == "" && problem != nil:
				t.Fatal(problem)
			case c.reason != "" && (problem == nil || problem.Reason != c.reason ||
				!strings.Contains(problem.Message, c.said)):
				t.Fatalf("%v, want %s with %q", problem, c.reason, c.said)
			}
			if c.handover.File == "scrub" {
				if text, err := m.Host.ReadAttribute(m.Host.Devices().Dir(ko.Device) + "/scrub"); err != nil || text != "1" {
					t.Errorf("the attribute has %q, %v", text, err)
				}
			}
		})
	}
}
