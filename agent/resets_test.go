package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host/hosttest"
)

// TestResets: while a device is reset, it is shown as withheld, and nothing else about it changes. The other device
// and the kind's driver stay as they were. When the lock is released, it is over.
func TestResets(t *testing.T) {
	m := hosttest.New(t)
	m.Dir("/run/acceld")
	edu := hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}, Version: "1.0.0", Node: "accelerator_edu/edu%d"}
	m.Modprobe(edu)
	for _, id := range []string{"0000:01:00.0", "0000:02:00.0"} {
		m.AddPCI(accel.PCIDevice{Address: id, Class: "00ff00", Vendor: "1234", Device: "11e8"})
	}
	a := holding(t, m)
	shown := func(what string, want ...string) {
		t.Helper()
		var got []string
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			have := a.machine().Have["qemu-edu"]
			got = nil
			for _, x := range have.Accelerators {
				reset := ""
				if x.WithheldBy(accel.ByReset) {
					reset = string(x.Withheld.Reason)
				}
				got = append(got, strings.Join([]string{x.ID, x.Bound, string(x.Health.State), reset, nodePaths(x)},
					" "))
			}
			if cmp.Equal(want, got) && have.Driver.Serves {
				return
			}
		}
		t.Fatalf("%s:\n%s", what, cmp.Diff(want, got))
	}
	both := []string{"0000:01:00.0 edu healthy  /dev/edu0", "0000:02:00.0 edu healthy  /dev/edu1"}
	shown("at first", both...)
	entered, leave := make(chan struct{}), make(chan struct{})
	d := driver.New(m.Host, driver.Options{Ledger: a.Ledger})
	def := a.Kinds["qemu-edu"]
	facts := accel.Facts{PCI: []accel.PCIDevice{{Address: "0000:01:00.0"}}}
	m.SetAttribute("0000:01:00.0", "reset", "")
	m.SetAttribute("0000:01:00.0", "reset_method", "flr")
	target := driver.ResetTarget{Def: def, Device: accel.Accelerator{ID: "0000:01:00.0"}}
	done := make(chan *accel.Problem)
	go func() {
		done <- d.Reset(t.Context(), facts, []driver.ResetTarget{target}, func(context.Context) *accel.Problem {
			close(entered)
			<-leave
			return accel.Problemf(accel.ProbeUnanswered, "that is enough")
		})
	}()
	<-entered
	shown("announced", "0000:01:00.0 edu healthy BeingReset /dev/edu0", both[1])
	m.Unbind("0000:01:00.0")
	a.loop.Wake(false)
	time.Sleep(50 * time.Millisecond)
	shown("its driver is unbound", "0000:01:00.0 edu healthy BeingReset /dev/edu0", both[1])
	m.Bind("0000:01:00.0", "edu")
	close(leave)
	if problem := <-done; problem == nil || problem.Reason != accel.ProbeUnanswered {
		t.Error(problem)
	}
	shown("at last", "0000:01:00.0 edu healthy  /dev/edu2", both[1])
	// A killed command leaves its text in the file, but no lock. Its end is an event, and the text no longer counts.
	release, err := m.Host.Locks().Try(lock.DriverFile(), `{"pid": 1, "resets": ["0000:02:00.0"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Host.WriteAttribute(lock.DriverFile(), `{"pid": 1, "resets": ["0000:02:00.0"]}`); err != nil {
		t.Fatal(err)
	}
	shown("another", "0000:01:00.0 edu healthy  /dev/edu2", "0000:02:00.0 edu healthy BeingReset /dev/edu1")
	m.Unbind("0000:02:00.0")
	release()
	for until := time.Now().Add(20 * time.Second); a.machine().Have["qemu-edu"].Driver.Serves; time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("that a driver is missing is still no news")
		}
	}
}

// TestResetAtTheStart: an agent that starts during a reset ends the probe program once it knows the device, and resumes
// it after the reset.
func TestResetAtTheStart(t *testing.T) {
	calls, paused := 0, 0
	r := &resets{
		pause: func(context.Context, string) func() { paused++; return func() { paused-- } },
		poke:  func() {}, wake: func(bool) {}, log: slog.New(slog.DiscardHandler),
		machine: func() accel.Machine {
			have := accel.Have{}
			if calls++; calls > 1 {
				have.Accelerators = []accel.Accelerator{{ID: "0000:01:00.0"}}
			}
			return accel.Machine{Have: map[string]accel.Have{"qemu-edu": have}}
		},
	}
	for i, c := range []struct {
		ids  []string
		want int
	}{{[]string{"0000:01:00.0"}, 0}, {[]string{"0000:01:00.0"}, 1}, {[]string{"0000:01:00.0"}, 1}, {nil, 0}} {
		r.hold(t.Context(), c.ids)
		if paused != c.want {
			t.Errorf("look %d: %d programs are paused, want %d", i, paused, c.want)
		}
	}
}

// TestUnreadableBus: devices that cannot be listed for a moment have not left the host.
func TestUnreadableBus(t *testing.T) {
	m := hosttest.New(t)
	m.Dir("/run/acceld")
	m.AddPCI(accel.PCIDevice{Address: "0000:01:00.0", Class: "00ff00", Vendor: "1234", Device: "11e8"})
	a := holding(t, m)
	eventually := func(what string, ok func(accel.Machine) bool) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); !ok(a.machine()); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: %+v", what, a.machine().Have["qemu-edu"].Accelerators)
			}
		}
	}
	present := func(m accel.Machine) bool { return accel.CountPresent(m.Have["qemu-edu"].Accelerators) == 1 }
	eventually("at first", present)
	list := filepath.Join(m.Host.Root(), "sys/bus/pci/devices")
	if err := os.Rename(list, list+".away"); err != nil {
		t.Fatal(err)
	}
	save(t, list, "")
	a.loop.Wake(false)
	eventually("it is said that they cannot be listed", func(m accel.Machine) bool {
		return strings.Contains(strings.Join(m.Facts.Problems, ";"), "cannot list PCI functions")
	})
	if !present(a.machine()) {
		t.Errorf("%+v", a.machine().Have["qemu-edu"].Accelerators)
	}
}

func nodePaths(x accel.Accelerator) string {
	var paths []string
	for _, n := range x.Nodes {
		paths = append(paths, n.Path)
	}
	return strings.Join(paths, ",")
}

// holding returns an agent that only reads its machine and withholds devices.
func holding(t *testing.T, m *hosttest.Machine) *Agent {
	t.Helper()
	o, s := openedBy(t, m.Host.Root(), "logLevel: error\n")
	s.Kinds = map[string]*accel.Definition{"qemu-edu": s.Kinds["qemu-edu"]}
	a := bare(t, o, s)
	probes := a.probes()
	probes.Runtime = func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
		return accel.RuntimeHave{}, nil
	}
	a.loop = loop.New(loop.Options{
		Want: accel.Want{Kinds: s.Kinds}, Log: s.Log, SampleEvery: time.Minute, Resync: time.Minute, Probes: probes,
		Effects: loop.Effects{
			Ensure: func(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator) (accel.DriverHave,
				*accel.Problem,
			) {
				return accel.DriverHave{}, accel.Problemf(accel.ProbeFailed, "not here")
			},
			Prove: func(context.Context, *accel.Definition, []accel.Accelerator) (accel.Proof, *accel.Problem) {
				return accel.Proof{Sentence: "well"}, nil
			},
			Steps: a.driver.Steps().Run,
			Apply: func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
				return accel.RuntimeHave{}, nil
			},
		},
	})
	if err := a.resets.watch(a.ctx); err != nil {
		t.Fatal(err)
	}
	a.group.Go(func() { _ = a.resets.run(a.ctx) })
	a.group.Go(func() { _ = a.loop.Run(a.ctx) })
	return a
}
