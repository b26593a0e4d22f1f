package health

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/acceld/acceld/accel"
)

const (
	// A device that became unhealthy flipsMany times within flipsWindow is reported unhealthy until it has been stable
	// for flipsCalm.
	flipsMany   = 5
	flipsWindow = 10 * time.Minute
	flipsCalm   = 5 * time.Minute
)

// Judge completes the health of the devices of a kind. On entry, each Health says what the device's attributes report
// and is empty if they could not be read. All are the devices of the host. The result is accs.
func (e *Engine) Judge(def *accel.Definition, all []accel.Device, accs []accel.Accelerator) []accel.Accelerator {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, a := range accs {
		if !a.Present() {
			continue
		}
		d := e.of(a.ID)
		if d == nil {
			continue
		}
		if a.Health.State == "" {
			a.Health = d.base // unknown does not replace the last answer
		}
		d.flip(d.base, a.Health, e.o.Now())
		d.base = a.Health
		accs[i].Health = e.worst(def, d, all, a)
		accs[i].Faults = d.list()
	}
	return accs
}

// worst combines everything that is known about a device. The caller holds e.mu.
func (e *Engine) worst(def *accel.Definition, d *device, pci []accel.Device, a accel.Accelerator) accel.Health {
	ports, _ := accel.PortsAbove(a.ID, pci) // as far up as known
	e.bus(d, a.ID, ports)
	f := function(pci, a.ID)
	if f.Subsystem != "" {
		f = function(pci, f.ParentPort) // a device of another subsystem works as well as the link of its function
	}
	all := []accel.Health{a.Health}
	for _, n := range e.standing(a.ID) {
		all = append(all, accel.Health{
			State: n.State, Reason: n.Reason, Action: n.Action, Message: n.Said,
			Evidence: n.Line,
		})
	}
	all = append(all, link(f, function(pci, f.ParentPort), def.FixedLinkSpeed))
	all = append(all, e.limits(def, d)...)
	all = append(all, d.unstable(e.o.Now()))
	bad := slices.DeleteFunc(all, func(h accel.Health) bool { return !h.State.Worse(accel.Healthy) })
	if len(bad) == 0 {
		return a.Health
	}
	worst := bad[0]
	for _, h := range bad[1:] {
		if h.Worse(worst) {
			worst = h
		}
	}
	if more := len(bad) - 1; more > 0 {
		worst.Message += fmt.Sprintf("; and %d more", more)
	}
	return worst
}

// function returns the device with an address, or a zero one if there is none.
func function(pci []accel.Device, address string) accel.Device {
	i := slices.IndexFunc(pci, func(d accel.Device) bool { return address != "" && d.Address == address })
	if i < 0 {
		return accel.PCIDevice{}
	}
	return pci[i]
}

// link compares a PCI Express link with what both the device and the port support. A link that is down is not judged.
// The speed is judged only if fixedSpeed is set, because some devices slow down an idle link.
func link(f, port accel.PCIDevice, fixedSpeed bool) accel.Health {
	lanes, speed := f.Link.With(port.Link)
	bad := func(format string, args ...any) accel.Health {
		return accel.Health{State: accel.Degraded, Reason: accel.LinkDegraded, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case f.Link.Width > 0 && f.Link.Width < lanes:
		return bad("the PCI Express link has %d of %d lanes", f.Link.Width, lanes)
	case fixedSpeed && f.Link.SpeedGTs > 0 && f.Link.SpeedGTs < speed:
		return bad("the PCI Express link runs at %s of %s GT/s", text(f.Link.SpeedGTs), text(speed))
	}
	return accel.Health{}
}

func text(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// limits judges the last reading. The caller holds e.mu.
func (e *Engine) limits(def *accel.Definition, d *device) (bad []accel.Health) {
	for i, l := range def.AllLimits() {
		v, known := d.metrics[l.Metric]
		above := l.Above
		if l.AboveMetric != "" {
			above = d.metrics[l.AboveMetric]
			known = known && above > 0
		}
		since, was := d.over[i]
		switch {
		case !known || v <= above && (!was || l.Until == 0 || v <= l.Until):
			delete(d.over, i)
			continue
		case !was:
			since = e.o.Now()
			d.over[i] = since
		}
		wait, _ := time.ParseDuration(l.For) // validated when the definition was read
		if e.o.Now().Sub(since) < wait {
			continue
		}
		h := accel.Health{
			State: l.State, Reason: accel.LimitExceeded, Action: l.Action,
			Message: fmt.Sprintf("%s is above %s", l.Metric, text(above)), Evidence: fmt.Sprintf("%s = %s", l.Metric,
				text(v)),
		}
		if h.State == "" {
			h.State = accel.Degraded
		}
		bad = append(bad, h)
	}
	return bad
}

// flip records when a device becomes unhealthy.
func (d *device) flip(before, now accel.Health, at time.Time) {
	if now.State == accel.Unhealthy && before.State != accel.Unhealthy {
		d.flips = append(d.flips, at)
	}
	d.flips = slices.DeleteFunc(d.flips, func(t time.Time) bool { return at.Sub(t) >= flipsWindow })
}

// unstable returns an unhealthy verdict for a device that flaps.
func (d *device) unstable(now time.Time) accel.Health {
	if len(d.flips) < flipsMany || now.Sub(d.flips[len(d.flips)-1]) >= flipsCalm {
		return accel.Health{}
	}
	return accel.Health{
		State: accel.Unhealthy, Reason: accel.Unstable, Message: fmt.Sprintf("it became unhealthy %d times within %s",
			len(d.flips), flipsWindow),
	}
}
