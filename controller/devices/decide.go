package devices

import (
	"maps"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// Reports are what nodes report now.
type Reports struct {
	// Nodes are all nodes of the cluster, by name.
	Nodes map[string]Node
	// Keep says, for each kind whose history a policy keeps, how long a record stays that no host has any more.
	Keep map[string]time.Duration
}

// Node is a node of the cluster.
type Node struct {
	// Up is whether the node is ready: what one that is not has reported may be outdated.
	Up bool
	// Texts are what it reports about its devices, as it has written that, by the kinds whose history is kept there.
	Texts map[string]string
}

// view is what is known at one moment. Nothing in it is changed.
type view struct {
	now   time.Time
	nodes map[string]node
	keep  map[string]time.Duration
	// records are the objects there are, by name.
	records map[string]*Device
	// since is since when something has been so, which counts only once it lasts; see [plan.since].
	since map[string]time.Time
}

// node is a node with its reports read.
type node struct {
	up bool
	// reports are by kind; a kind that is not in it is not known.
	reports map[string][]accel.DeviceReport
}

// plan is what follows.
type plan struct {
	writes  []write
	deletes []*Device
	// since is what the next view has.
	since map[string]time.Time
	// claimed are the devices that several nodes claim, and leftOut how many devices have no record, because there are
	// too many.
	claimed []string
	leftOut int
	// next is when the passing of time alone will change the plan; zero if it will not.
	next time.Time
}

// write is a record to write.
type write struct {
	name string
	old  *Device // nil for a new one
	Record
	// cause is the node whose report it follows from; empty if it follows from what several say, or no longer say.
	cause string
}

// lasting is how long something must be so before it is written that a device has left a host, or that several hosts
// claim it: nodes restart, and drivers are reloaded.
const lasting = 10 * time.Minute

// claim is what a node says about one device.
type claim struct {
	node   string
	up     bool
	report accel.DeviceReport
}

// present reports whether the node says that it has the device.
func (c claim) present() bool { return c.up && !c.report.Gone }

// decide merges what nodes report into the records. It is pure.
func decide(v view) plan {
	d := &decision{view: v, plan: plan{since: map[string]time.Time{}}, begun: map[string]int{}, total: len(v.records)}
	claims, of := map[string][]claim{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		n := v.nodes[name]
		for kind, reports := range n.reports {
			for _, r := range reports {
				device := Name(kind, r.Serial)
				claims[device], of[device] = append(claims[device], claim{name, n.up, r}), kind
			}
		}
	}
	for name, x := range v.records {
		of[name] = x.Record.Kind
		d.begun[x.Record.owner()]++
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if _, kept := v.keep[of[name]]; kept {
			d.device(name, of[name], claims[name])
		}
	}
	return d.plan
}

type decision struct {
	view
	plan
	// begun is how many records count for a node; total is how many there are.
	begun map[string]int
	total int
}

// device decides about one device.
func (d *decision) device(name, kind string, claims []claim) {
	old := d.records[name]
	var before, r Record
	if old != nil {
		before = old.Record
		r = before.clone()
	}
	here, cause := d.merge(&r, claims)
	switch {
	case old == nil && len(here) == 0:
		return
	case old == nil && !d.room(here[0]):
		d.leftOut++
		return
	case old == nil:
		r.Kind, r.Serial, r.First, r.FirstNode = kind, claims[0].report.Serial, d.now, here[0]
		d.begun[here[0]]++
		d.total++
	case len(claims) > 0 && r.Serial != claims[0].report.Serial: // somebody else has made the object
		d.leftOut++
		return
	}
	d.leave(name, &r, here)
	d.dispute(name, &r, here)
	r.place(here)
	for _, c := range claims {
		if c.node == r.Node && c.report.Model != "" {
			r.Model = c.report.Model
		}
	}
	r.settle(here)
	if at, left := r.left(); old != nil && left {
		over := at.Add(d.keep[kind])
		if !d.now.Before(over) {
			d.deletes = append(d.deletes, old)
			return
		}
		d.wake(over)
	}
	if old == nil || !r.same(before) {
		d.writes = append(d.writes, write{name, old, r, cause})
	}
}

// merge takes over what nodes say. It returns the nodes that say that they have the device, and the first one whose
// report changed something.
func (d *decision) merge(r *Record, claims []claim) (here []string, cause string) {
	for _, c := range claims {
		h := r.host(c.node)
		var before Host
		switch {
		case c.present() && h == nil:
			r.Hosts = append(r.Hosts, Host{Node: c.node, From: d.now})
			h = &r.Hosts[len(r.Hosts)-1]
		case h == nil:
			continue // it had left before there was a record of it
		default:
			before = *h
		}
		if c.present() {
			here = append(here, c.node)
			if !h.Until.IsZero() {
				h.From, h.Until = d.now, time.Time{}
			}
		}
		h.take(c.report, d.now)
		if cause == "" && before != *h {
			cause = c.node
		}
	}
	return here, cause
}

// room reports whether there may be another record that a node begins.
func (d *decision) room(node string) bool { return d.begun[node] < maxBegun && d.total < maxRecords }

// leave ends the stay on hosts that do not have the device any more.
func (d *decision) leave(name string, r *Record, here []string) {
	for i := range r.Hosts {
		h := &r.Hosts[i]
		if !h.Until.IsZero() || slices.Contains(here, h.Node) || !d.lost(h.Node, r, here) {
			continue
		}
		if since, lasts := d.lasts(name + " has left " + h.Node); lasts {
			h.Until = since
		}
	}
}

// lost reports whether a node that does not say that it has a device does not have it. A node that is down is believed
// to have it until another one has it.
func (d *decision) lost(name string, r *Record, here []string) bool {
	n, there := d.nodes[name]
	_, reports := n.reports[r.Kind]
	switch {
	case !there:
		return true
	case !n.up:
		return len(here) > 0
	}
	return reports
}

// dispute names the nodes that say at the same time that they have the device.
func (d *decision) dispute(name string, r *Record, here []string) {
	if len(here) < 2 {
		r.Claimed = nil
		return
	}
	if _, lasts := d.lasts(name + " is claimed"); lasts || len(r.Claimed) > 0 {
		r.Claimed = slices.Clone(here[:min(len(here), maxHosts)])
		d.claimed = append(d.claimed, name)
	}
}

// lasts reports whether something has been so for a while, and since when it has.
func (d *decision) lasts(what string) (since time.Time, lasts bool) {
	since, known := d.view.since[what]
	if !known || since.After(d.now) {
		since = d.now
	}
	d.plan.since[what] = since
	over := since.Add(lasting)
	if d.now.Before(over) {
		d.wake(over)
		return since, false
	}
	return since, true
}

// place says which node has the device: of those that say so, the one that has said so for the longest time, so that a
// node that restarts has its devices back. If none does, it is the last one, until it is known to have lost the device.
func (r *Record) place(here []string) {
	h := r.host(r.Node)
	if len(here) > 0 || h != nil && !h.Until.IsZero() {
		h = nil
	}
	for _, node := range here {
		if x := r.host(node); h == nil || x.From.Before(h.From) {
			h = x
		}
	}
	r.Node, r.Address = "", ""
	if h != nil {
		r.Node, r.Address = h.Node, h.Address
	}
}

func (d *decision) wake(at time.Time) {
	if d.next.IsZero() || at.Before(d.next) {
		d.next = at
	}
}
