package cli

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
)

// offering is a plugin that notes what it was told to offer.
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

// TestDraining: what a claim of before holds is offered by the device plugin when the claim is over, not sooner, and as long as
// it is not known what claims hold, nothing is.
func TestDraining(t *testing.T) {
	devices, claims := &offering{}, &offering{}
	d := &draining{Plugin: devices, claims: claims}
	accs := []accel.Accelerator{well("a"), well("b")}
	d.Update(accs)
	if n := accel.CountOffered(devices.told); n != 0 {
		t.Errorf("%d devices are offered while nobody knows who holds them", n)
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

// TestOneAfterTheOther: what serves a kind begins when what served it before has ended, not when it was told to.
func TestOneAfterTheOther(t *testing.T) {
	a := &running{parts: &parts{log: slog.New(slog.DiscardHandler)}, plugins: map[string]*serving{}}
	a.holding = a.follower()
	ending := make(chan struct{})
	begun := make(chan string, 2)
	first := &serving{}
	a.serve(t.Context(), "slot", first, func(ctx context.Context) error {
		begun <- "first"
		<-ctx.Done()
		<-ending // calls in flight
		return ctx.Err()
	})
	if got := <-begun; got != "first" || first.stopped() {
		t.Fatalf("%s began", got)
	}
	second := &serving{}
	a.serve(t.Context(), "slot", second, func(context.Context) error { begun <- "second"; return nil })
	for !first.stopped() {
		runtime.Gosched()
	}
	select {
	case got := <-begun:
		t.Errorf("%s began while the first had calls in flight", got)
	case <-time.After(20 * time.Millisecond):
	}
	close(ending)
	if got := <-begun; got != "second" {
		t.Errorf("%s began", got)
	}
	a.group.Wait()
	<-second.done
}

func TestNameClaimants(t *testing.T) {
	processes := []accel.Holder{{PID: 7, Comm: "train", PodUID: "u-1"}, {PID: 8, Comm: "bash"}}
	got := nameClaimants(processes, []dra.Holder{
		{Device: "a", Namespace: "team", Pod: "one", UID: "u-1", Claim: "c"},
		{Device: "a", Namespace: "team", Pod: "two", UID: "u-2", Claim: "c"},
		{Device: "b", Namespace: "team", Pod: "two", UID: "u-2", Claim: "c"},
		{Device: "d", Namespace: "team", Claim: "idle"},
	})
	want := []accel.Holder{
		{PID: 7, Comm: "train", PodUID: "u-1", Namespace: "team", Pod: "one"},
		{PID: 8, Comm: "bash"},
		{Namespace: "team", Pod: "two", PodUID: "u-2", Device: "a"},
		{Other: "claim team/idle", Device: "d"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
