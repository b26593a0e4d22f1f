package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

const askingForCheck = `{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","check":true}`

// checker is a self-test that notes what it tested, and fails as long as there is a problem.
type checker struct {
	problem *accel.Problem
	tested  [][]string
	during  func()
}

func (c *checker) of(p *Plugin) *checker {
	p.cfg.Definition.Check = &accel.Check{File: "factorial", Write: "5", Want: "120"}
	p.cfg.Check = func(_ context.Context, _ *accel.Definition, accs []accel.Accelerator) *accel.Problem {
		var ids []string
		for _, a := range accs {
			ids = append(ids, a.ID)
		}
		c.tested = append(c.tested, ids)
		if c.during != nil {
			c.during()
		}
		return c.problem
	}
	return c
}

// TestCheckedFirst: a claim that asks for it is prepared only when its devices have passed their self-test; then never
// again, because its pods may be computing. Until then it holds its devices.
func TestCheckedFirst(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	c := (&checker{problem: accel.Problemf(accel.CheckFailed, "device %q gave 119", "0000:01:00.0")}).of(p)
	b.server.allocate("c", "u-1", "gpus=0000-01-00-0", "more=0000-01-00-0", "other=0000-02-00-0!")
	b.server.configure("c", nil, askingForCheck)
	b.server.allocate("rival", "u-2", "r=0000-01-00-0")
	for range 2 {
		ids, fault := prepare(t, p, "c", "u-1")
		if len(ids) > 0 || b.there(fmt.Sprintf(specOf, "u-1")) || !strings.Contains(fault, "CheckFailed") ||
			!strings.Contains(fault, "claim team/c") || !strings.Contains(fault, "gave 119") {
			t.Errorf("given before it has passed: %v %q", ids, fault)
		}
	}
	if ids, fault := prepare(t, p, "rival", "u-2"); len(ids) > 0 || !strings.Contains(fault, "u-1") {
		t.Errorf("another claim has got it: %v %q", ids, fault)
	}
	c.problem = nil
	ids, fault := prepare(t, p, "c", "u-1")
	if fault != "" || len(ids) != 3 || !b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Fatalf("%v %q", ids, fault)
	}
	again := b.plugin(edus(2)...) // another agent, after the kubelet's restart
	next := (&checker{problem: c.problem}).of(again)
	if problem := again.book.open(); problem != nil {
		t.Fatal(problem)
	}
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Error(fault)
	}
	if _, fault := prepare(t, again, "c", "u-1"); fault != "" || len(next.tested) > 0 {
		t.Errorf("%q; a device is tested under its pod: %v", fault, next.tested)
	}
	// The device with administrative access may be another claim's.
	if diff := cmp.Diff([][]string{{"0000:01:00.0"}, {"0000:01:00.0"}, {"0000:01:00.0"}}, c.tested); diff != "" {
		t.Error(diff)
	}
}

// TestCheckInTime: the kubelet gives a call 45 s; the self-test gets less.
func TestCheckInTime(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	(&checker{}).of(p)
	var left time.Duration
	p.cfg.Check = func(ctx context.Context, _ *accel.Definition, _ []accel.Accelerator) *accel.Problem {
		end, _ := ctx.Deadline()
		left = time.Until(end)
		return nil
	}
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	b.server.configure("c", nil, askingForCheck)
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" || left <= 0 || left > callDeadline {
		t.Errorf("%q, %v", fault, left)
	}
}

// TestCheckNotKept: a self-test whose result could not be written down is repeated.
func TestCheckNotKept(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	c := (&checker{}).of(p)
	records := filepath.Join(b.root, "/var/lib/acceld/dra")
	c.during = func() {
		c.during = nil
		if err := errors.Join(os.RemoveAll(records), os.WriteFile(records, nil, 0o644)); err != nil {
			t.Error(err) // a file in the way fails for root, too
		}
	}
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	b.server.configure("c", nil, askingForCheck)
	if ids, fault := prepare(t, p, "c", "u-1"); !strings.Contains(fault, "cannot keep the record") {
		t.Errorf("%v %q", ids, fault)
	}
	if err := os.Remove(records); err != nil {
		t.Fatal(err)
	}
	if ids, fault := prepare(t, p, "c", "u-1"); fault != "" || len(ids) != 1 || len(c.tested) != 2 {
		t.Errorf("with room: %v %q, tested %v", ids, fault, c.tested)
	}
}

// TestCheckRefused: what cannot be tested is refused by name, never said to be tested.
func TestCheckRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bed, *Plugin)
		words  []string
	}{
		"no self-test": {
			func(_ *bed, p *Plugin) { p.cfg.Definition.Check = nil },
			[]string{"config[0].opaque.parameters.check", `kind "qemu-edu" has no self-test`},
		},
		"a share": {
			func(b *bed, _ *Plugin) {
				b.server.claims["c"].Status.Allocation.Devices.Results[0].ShareID = "s-1"
			},
			[]string{"check", "0000-01-00-0", "others use"},
		},
	} {
		b := newBed(t)
		p := b.plugin(edus(1)...)
		k := (&checker{}).of(p)
		b.server.allocate("c", "u-1", "r=0000-01-00-0")
		b.server.configure("c", nil, askingForCheck)
		c.change(b, p)
		ids, fault := prepare(t, p, "c", "u-1")
		for _, w := range c.words {
			if !strings.Contains(fault, w) {
				t.Errorf("%s: %q does not say %q", name, fault, w)
			}
		}
		if len(ids) > 0 || len(k.tested) > 0 {
			t.Errorf("%s: %v, tested %v", name, ids, k.tested)
		}
	}
}

// TestCheckOfClass: what a class asks for, a claim cannot undo.
func TestCheckOfClass(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	k := (&checker{}).of(p)
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	b.server.configure("c", nil, askingForCheck)
	b.server.configure("c", nil, strings.Replace(askingForCheck, "true", "false", 1))
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" || len(k.tested) != 1 {
		t.Errorf("%q, tested %v", fault, k.tested)
	}
}
