package agent

import (
	"testing"

	"github.com/acceld/acceld/accel"
)

// offering is a plugin that records what it was asked to offer.
type offering struct {
	told    []accel.Accelerator
	problem *accel.Problem
	held    []string
	known   bool
}

func (o *offering) Update(accs []accel.Accelerator)  { o.told = accs }
func (o *offering) State() accel.PluginHave          { return accel.PluginHave{} }
func (o *offering) Problem() *accel.Problem          { return o.problem }
func (o *offering) Held() (ids []string, known bool) { return o.held, o.known }
func well(id string) accel.Accelerator {
	return accel.Accelerator{ID: id, Health: accel.Health{State: accel.Healthy}}
}

// TestDraining: the device plugin offers a claimed device only after the claim is gone. While it is unknown what
// claims hold, it offers nothing.
func TestDraining(t *testing.T) {
	devices, claims := &offering{}, &offering{}
	d := &draining{Plugin: devices, claims: claims}
	accs := []accel.Accelerator{well("a"), well("b")}
	d.Update(accs)
	if n := accel.CountOffered(devices.told); n != 0 {
		t.Errorf("%d devices are offered while nobody knows who holds them", n)
	}
	if p := d.Problem(); p == nil || p.Reason != accel.ProbeUnanswered {
		t.Errorf("problem: %v", p)
	}
	claims.known, claims.held = true, []string{"b"}
	d.Update(accs)
	if n := accel.CountOffered(devices.told); n != 1 || devices.told[1].Withheld.Reason != accel.DeviceHeld {
		t.Errorf("%d devices are offered: %+v", n, devices.told)
	}
	if n := accel.CountOffered(claims.told); n != 2 {
		t.Errorf("the claim's own device is not well for it: %+v", claims.told)
	}
	if p := d.Problem(); p == nil || p.Reason != accel.DeviceHeld {
		t.Errorf("problem: %v", p)
	}
	devices.problem = accel.Problemf(accel.KubeletAbsent, "x")
	if p := d.Problem(); p != devices.problem {
		t.Errorf("problem: %v", p)
	}
	devices.problem, claims.held = nil, nil
	d.Update(accs)
	if n := accel.CountOffered(devices.told); n != 2 || d.Problem() != nil {
		t.Errorf("%d devices are offered: %v", n, d.Problem())
	}
}
