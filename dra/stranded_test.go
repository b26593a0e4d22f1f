package dra

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
)

// TestStranded: a pod that was bound with a device which fails before the pod has it goes elsewhere after a while, and
// nobody who has the device ends with it.
func TestStranded(t *testing.T) {
	resets := &accel.Repair{Reset: accel.RepairIdle}
	sick := func(i int, change ...func(*accel.Accelerator)) accel.Accelerator {
		a := edu(i)
		a.Health = accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "ecc error", Action: accel.ActionResetDevice,
		}
		for _, c := range change {
			c(&a)
		}
		return a
	}
	common := func(a *accel.Accelerator) { a.Repair = &accel.RepairHave{Common: true} }
	for name, c := range map[string]struct {
		repair  *accel.Repair
		sick    accel.Accelerator
		before  string // a claim that has been prepared
		refused []string
		then    func(*testing.T, *Plugin)
		after   time.Duration
		leaves  bool
	}{
		"soon":               {nil, sick(1), "", []string{"new"}, nil, 29 * time.Second, false},
		"after a while":      {nil, sick(1), "", []string{"new"}, nil, 31 * time.Second, true},
		"it is being reset":  {resets, sick(1), "", []string{"new"}, nil, 31 * time.Second, false},
		"the reset is late":  {resets, sick(1), "", []string{"new"}, nil, 121 * time.Second, true},
		"all are sick":       {nil, sick(1, common), "", []string{"new"}, nil, time.Minute, false},
		"somebody has it":    {nil, sick(1), "old", []string{"new"}, nil, time.Minute, false},
		"its own pod asks":   {nil, sick(1), "old", []string{"old"}, nil, time.Minute, false},
		"nobody asks":        {nil, sick(1), "", nil, nil, time.Minute, false},
		"nobody asks longer": {nil, sick(1), "", []string{"new"}, nil, 6 * time.Minute, false},
		"the pod has gone": {nil, sick(1), "", []string{"new"}, func(t *testing.T, p *Plugin) {
			if fault := unprepare(t, p, "u-new"); fault != "" {
				t.Error(fault)
			}
		}, time.Minute, false},
		"the device is well again": {nil, sick(1), "", []string{"new"}, func(t *testing.T, p *Plugin) {
			p.Update(edus(2))
			if _, fault := prepare(t, p, "new", "u-new"); fault != "" {
				t.Error(fault)
			}
		}, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			def := *b.def
			def.Repair = c.repair
			b.def = &def
			p := b.plugin(edus(2)...)
			if problem := p.book.open(); problem != nil {
				t.Fatal(problem)
			}
			for _, claim := range []string{"old", "new"} {
				b.server.allocate(claim, "u-"+claim, "gpus=0000-01-00-0")
			}
			if c.before != "" {
				if _, fault := prepare(t, p, c.before, "u-"+c.before); fault != "" {
					t.Fatal(fault)
				}
			}
			p.Update([]accel.Accelerator{c.sick, edu(2)})
			for _, claim := range c.refused {
				if _, fault := prepare(t, p, claim, "u-"+claim); !strings.Contains(fault, "ecc error") {
					t.Fatal(fault)
				}
			}
			if c.then != nil {
				c.then(t, p)
			}
			held, known := p.book.held()
			if !known {
				t.Fatal("nobody knows who has which device")
			}
			left := p.stranded.leaving(p.list.load(), held, p.timing, time.Now().Add(c.after))
			if left["0000-01-00-0"] != c.leaves || left["0000-02-00-0"] {
				t.Errorf("pods leave %v", left)
			}
		})
	}
}

// TestStrandedIsPublished: the taint ends the pods that wait, and only that of the sick device.
func TestStrandedIsPublished(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	p.timing.strand = 0
	if problem := p.book.open(); problem != nil {
		t.Fatal(problem)
	}
	b.server.allocate("new", "u-new", "gpus=0000-01-00-0", "gpus=0000-02-00-0")
	a := edu(1)
	a.Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy}
	p.Update([]accel.Accelerator{a, edu(2)})
	effects := func() (out string) {
		for _, d := range (&publisher{Plugin: p}).wanted(nil)[0].Spec.Devices {
			for _, x := range d.Taints {
				out += d.Name + " " + x.Effect
			}
		}
		return out
	}
	if got := effects(); got != "0000-01-00-0 NoSchedule" {
		t.Errorf("before: %s", got)
	}
	if _, fault := prepare(t, p, "new", "u-new"); fault == "" {
		t.Error("it was prepared")
	}
	if got := effects(); got != "0000-01-00-0 NoExecute" {
		t.Errorf("while a pod waits: %s", got)
	}
	p.book.damaged["u-old"] = true // who knows which devices it has
	if got := effects(); got != "0000-01-00-0 NoSchedule" {
		t.Errorf("while nobody knows who has it: %s", got)
	}
}

// TestEvictionRefused: where the API server does not let agents end pods, a sick device is withheld nevertheless.
func TestEvictionRefused(t *testing.T) {
	b := newBed(t)
	def := *b.def
	def.Repair = &accel.Repair{NoExecute: []accel.Action{accel.ActionService}}
	b.def = &def
	p := b.plugin(edus(2)...)
	refused := 0
	b.server.takes = func(s Slice) error {
		if !evicts(s) {
			return nil
		}
		refused++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "resourceslices"}, s.Metadata.Name, nil)
	}
	b.kubelet()
	b.run(p)
	b.offered(p, 2)
	a := edu(1)
	a.Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Action: accel.ActionService}
	p.Update([]accel.Accelerator{a, edu(2)})
	b.offered(p, 1)
	p.poke()
	time.Sleep(20 * time.Millisecond)
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if refused != 1 {
		t.Errorf("%d taints were refused", refused)
	}
}
