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
	"github.com/acceld/acceld/pace"
)

const (
	// calm is how long a device must have been held back before it is divided: the kubelet has then heard of it.
	calm = 3 * time.Second
	// again is how soon it is looked again whether somebody uses it, and later how soon a failure is tried again.
	again, later = 5 * time.Second, time.Minute
	// dividing is how long a division may take. Drivers reset a device for it.
	dividing = 2 * time.Minute
)

// division is a device that is to be divided otherwise.
type division struct {
	parts  map[string]int
	since  time.Time // when it was held back
	next   time.Time // when it is tried
	busy   bool
	why    string // what it waits for
	answer chan string
}

// divisions are those of one program.
type divisions struct {
	mu   sync.Mutex
	of   map[string]*division
	asks chan accel.ProbeRequest
}

// hold holds a device back that is not divided as it should be, and sees to it that it is. The device is as the program
// has just said.
func (p *program) hold(def *accel.Definition, a *accel.Accelerator) {
	parts, declared := def.LayoutOf(a.ID)
	d := &p.divisions
	d.mu.Lock()
	defer d.mu.Unlock()
	if !declared || divided(*a, parts) {
		if x := d.of[a.ID]; x != nil && !x.busy {
			delete(d.of, a.ID)
		}
		return
	}
	x := d.of[a.ID]
	if x == nil {
		x = &division{since: time.Now(), answer: make(chan string, 1)}
		d.of[a.ID] = x
	}
	if !maps.Equal(x.parts, parts) { // another wish, and perhaps a better one
		x.parts, x.why, x.next = parts, "", time.Time{}
	}
	a.Withheld = &accel.Withheld{
		By: accel.ByPartitioning, Reason: accel.DeviceHeld,
		Message: "it is to be " + into(parts) + x.why,
	}
	if now := time.Now(); p.ctx != nil && !x.busy && !now.Before(x.next) {
		x.busy = true
		device := *a
		go p.divide(p.ctx, def, device, x)
	}
}

// divided reports whether a device is divided so.
func divided(a accel.Accelerator, parts map[string]int) bool {
	have := map[string]int{}
	for _, p := range a.Partitions {
		have[p.Profile]++
	}
	// One without any part may be in the mode in which it has some.
	return maps.Equal(have, parts) && (len(parts) > 0 || a.Health.Reason != accel.DevicePartitioned)
}

// into says how.
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

// divide divides a device when nobody uses it.
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
	if maps.Equal(x.parts, parts) { // no other wish since
		x.why, x.next = why, time.Now().Add(next)
	}
	p.divisions.mu.Unlock()
	p.o.Changed()
	if pace.Sleep(ctx, next+time.Millisecond) == nil {
		p.o.Changed()
	}
}

// request asks the program to divide a device and returns why it did not.
func (p *program) request(ctx context.Context, id string, parts map[string]int, x *division) string {
	limit := time.NewTimer(dividing)
	defer limit.Stop()
	select {
	case <-x.answer: // of a request that was given up
	default:
	}
	select {
	case p.asks <- accel.ProbeRequest{Divide: &accel.ProbeDivision{Device: id, Parts: parts}}:
	case <-limit.C:
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

// answered takes in the answer to a request.
func (d *divisions) answered(a accel.ProbeDivision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.of[a.Device]; x != nil {
		select {
		case x.answer <- clean(a.Problem):
		default:
		}
	}
}
