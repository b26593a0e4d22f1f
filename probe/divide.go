package probe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

const (
	// calm is how long a device must have been withheld before it is divided, so that the kubelet knows about it.
	calm = 3 * time.Second
	// again is the interval between checks whether the device is in use; later is the delay before a failed division
	// is retried.
	again, later = 5 * time.Second, time.Minute
	// dividing limits how long a division may take. Drivers reset a device for it.
	dividing = 2 * time.Minute
	// handing limits how long a request may wait for a program: who uses the device is asked again for the next one.
	handing = time.Second
)

// division is a pending division of a device.
type division struct {
	parts  map[string]int
	asked  map[string]int // the parts of the last request
	since  time.Time      // when the device was first withheld
	next   time.Time      // when it is tried next
	busy   bool
	why    string // what it waits for
	answer chan string
}

// divisions are the pending divisions of one program.
type divisions struct {
	mu   sync.Mutex
	of   map[string]*division
	asks chan accel.ProbeRequest
}

// hold withholds a device that is not divided as configured, and starts the division when it is due. While the program
// has not reported how the device is divided now, a pending division only stays pending.
func (p *program) hold(def *accel.Definition, a *accel.Accelerator, l layout) {
	parts, declared := def.LayoutOf(a.ID)
	d := &p.divisions
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.of[a.ID]
	switch {
	case !declared || l.current && l.divided(*a, parts):
		if x != nil && !x.busy {
			delete(d.of, a.ID)
		}
		return
	case x == nil && !l.current:
		return
	case x == nil:
		x = &division{since: time.Now(), answer: make(chan string, 1)}
		d.of[a.ID] = x
	}
	if !maps.Equal(x.parts, parts) { // another configuration, which may succeed: retry now
		x.parts, x.why, x.next = parts, "", time.Time{}
	}
	a.Withheld = &accel.Withheld{
		By: accel.ByPartitioning, Reason: accel.DeviceHeld,
		Message: "it is to be " + into(parts) + x.why,
	}
	if now := time.Now(); l.current && p.ctx != nil && !x.busy && !now.Before(x.next) {
		x.busy = true
		reading := *a // the caller goes on changing its own
		guard.Go(func() {
			guard.Keep(p.ctx, "division of "+reading.ID, func(ctx context.Context) error {
				p.divide(ctx, def, reading, x)
				return nil
			})
		})
	}
}

// divided reports whether a device is divided into these parts.
func (l layout) divided(a accel.Accelerator, parts map[string]int) bool {
	have := map[string]int{}
	for _, p := range a.Partitions {
		have[p.Profile]++
	}
	return maps.Equal(have, parts) && (len(parts) > 0 || !l.mode)
}

// into describes a layout.
func into(parts map[string]int) string {
	if len(parts) == 0 {
		return "whole"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		words = append(words, fmt.Sprintf("%d of %s", parts[name], name))
	}
	return "divided into " + strings.Join(words, ", ")
}

// divide divides a device if it is not in use.
func (p *program) divide(ctx context.Context, def *accel.Definition, a accel.Accelerator, x *division) {
	p.divisions.mu.Lock()
	wait, parts := time.Until(x.since.Add(calm)), x.parts
	p.divisions.mu.Unlock()
	next, why := again, ""
	if wait > 0 && pace.Sleep(ctx, wait) != nil {
		return
	}
	if users := p.o.Users(ctx, def, a); len(users) > 0 {
		why = "; it waits for " + strings.Join(users[:min(len(users), 3)], ", ")
	} else if problem := p.request(ctx, a.ID, parts, x); problem != "" {
		next, why = later, "; that failed: "+problem
		p.o.Log.Warn("device not divided", "kind", p.kind, "device", a.ID, "parts", parts, "error", problem)
	} else {
		p.o.Log.Info("device divided", "kind", p.kind, "device", a.ID, "parts", parts)
	}
	p.divisions.mu.Lock()
	x.busy = false
	if maps.Equal(x.parts, parts) { // the configuration has not changed since
		x.why, x.next = why, time.Now().Add(next)
	}
	p.divisions.mu.Unlock()
	p.o.Changed()
	if pace.Sleep(ctx, next+time.Millisecond) == nil {
		p.o.Changed()
	}
}

// request asks the program to divide a device and returns why that failed, or "".
func (p *program) request(ctx context.Context, id string, parts map[string]int, x *division) string {
	limit, late := time.NewTimer(dividing), time.NewTimer(handing)
	defer limit.Stop()
	defer late.Stop()
	p.divisions.mu.Lock()
	x.asked = parts
	p.divisions.mu.Unlock()
	select {
	case <-x.answer: // a late answer to an abandoned request
	default:
	}
	select {
	case p.asks <- accel.ProbeRequest{Divide: &accel.ProbeDivision{Device: id, Parts: parts}}:
	case <-late.C:
		return "no program runs"
	case <-ctx.Done():
		return ctx.Err().Error()
	}
	select {
	case problem := <-x.answer:
		return problem
	case <-limit.C:
		return "the program has not answered"
	case <-ctx.Done():
		return ctx.Err().Error()
	}
}

// answered passes on the answer to a request, unless it names other parts: then an earlier request was meant.
func (d *divisions) answered(a accel.ProbeDivision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.of[a.Device]; x != nil && (len(a.Parts) == 0 || maps.Equal(a.Parts, x.asked)) {
		select {
		case x.answer <- clean(a.Problem):
		default:
		}
	}
}
