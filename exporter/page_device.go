package exporter

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/page"
)

// deviceTable renders the devices of a kind, those that need attention first, each followed by its partitions.
func deviceTable(v view, k string, now time.Time) page.Node {
	by := map[string]*device{}
	for _, d := range v.devices {
		if d.kind == k {
			by[d.ID] = d
		}
	}
	var rows []page.TableRow
	for _, a := range accel.Flat(accel.SickFirst(v.Have[k].Accelerators)) {
		if d := by[a.ID]; d != nil {
			rows = append(rows, deviceRow(v, d, now))
		}
	}
	if len(rows) == 0 {
		return page.Node{}
	}
	heads := []string{"Device", "Health", "Utilization", "Memory", "Power", "Temperature", "Held by"}
	return page.Table("Devices of "+k, heads, rows...)
}

// healthTone returns the tone of a device's health.
func healthTone(d *device) page.Tone {
	switch {
	case d.Seen() == accel.HealthUnknown:
		return page.Idle
	case d.Health.State == accel.Healthy:
		return page.Good
	case d.Health.Usable():
		return page.Busy
	}
	return page.Bad
}

func deviceRow(v view, d *device, now time.Time) page.TableRow {
	r := page.TableRow{ID: anchor(d.ID)}
	if d.Profile != "" {
		r.Class = "part"
	}
	tone := healthTone(d)
	health := page.Row(page.Badge(tone, d.Seen()))
	if tone != page.Good && tone != page.Idle {
		health.Add(page.El("p", page.Class("faint"), page.Ago(now, d.Health.Since)))
	}
	if d.WithheldAlone() {
		health.Add(page.El("p", page.Badge(page.Busy, "held back")))
	}
	got := d.Readings()
	r.Cells = []page.Node{
		deviceName(v, d), health, utilizationCell(v, d, got), amount(got.MemoryText(), "memory in use", got.MemoryShare()),
		amount(got.PowerText(), "power drawn", got.PowerShare()), number(got.TemperatureText()), heldBy(d),
	}
	r.Below = page.Row(troubles(v, d, now), uses(d.Use), deviceReadings(d))
	return r
}

// deviceName renders what identifies a device, and where it is.
func deviceName(v view, d *device) page.Node {
	about := page.Row(page.El("span", page.Class("mono", "id"), page.Text(d.ID)))
	if m := d.model(); m != title(v, d.kind) && d.Profile == "" {
		about.Add(page.El("p", page.Text(m)))
	}
	var where []string
	if d.Serial != "" {
		where = append(where, "serial "+d.Serial)
	}
	if d.Bound != "" {
		where = append(where, "driver "+d.Bound)
	}
	if n := numa(d.NUMANode); n != "" {
		where = append(where, "NUMA "+n)
	}
	for _, n := range d.Nodes {
		where = append(where, n.Path)
	}
	return page.Row(about, page.When(len(where) > 0, page.El("p", page.Class("faint"), page.Text(strings.Join(where, " · ")))))
}

// number is a cell with a number; empty for an unknown one.
func number(text string) page.Node {
	return page.When(text != "", page.El("span", page.Class("num", "nw"), page.Text(text)))
}

// amount is a cell with a number and a bar of its share, as far as they are known.
func amount(text, label string, share accel.Answer[float64]) page.Node {
	cell := number(text)
	if share.Known {
		tone := page.Good
		if share.Value > 0.95 {
			tone = page.Busy
		}
		cell = page.Row(cell, page.Bar(label+": "+text, share.Value, tone))
	}
	return cell
}

// utilizationCell is the utilization, and a line of the last hour. Without a utilization the line shows what is known.
func utilizationCell(v view, d *device, got accel.Readings) page.Node {
	cell := number(got.UtilizationText())
	line, ok := v.traces[d.ID]
	known := slices.DeleteFunc(slices.Clone(line.points), math.IsNaN)
	if !ok || len(known) < 2 || !d.Present() {
		return cell
	}
	high := map[string]float64{utilization: 1, inheritedUtilization: 100, accel.MetricTemperature: 100}[line.name]
	if high == 0 { // power
		high = max(slices.Max(known), got.PowerLimit.Or(0))
	}
	said := fmt.Sprintf("%s over the last hour, from %s to %s", spoken(line.name), quantity(line.name, slices.Min(known)),
		quantity(line.name, slices.Max(known)))
	cell = page.Row(cell, page.Line(said, line.points, 0, high))
	if line.name != utilization && line.name != inheritedUtilization {
		cell.Add(page.El("p", page.Class("faint"), page.Text(spoken(line.name))))
	}
	return cell
}

// heldBy renders who holds a device: pods, a claim of a virtual machine, and processes that nobody gave it to.
func heldBy(d *device) page.Node {
	var holder page.Node
	for _, h := range d.holders {
		holder.Add(page.El("p", page.Class("holder"), page.Set("title", h.Resource),
			page.Text(h.Namespace+"/"+h.Pod+prefixed(", ", h.Container))))
	}
	if d.Switched != nil && len(d.holders) == 0 {
		holder.Add(page.El("p", page.Class("holder"), page.Text(d.Switched.For())))
	}
	return holder
}

// troubles renders what is wrong with a device and what is done about it. Why a part is withheld is left out where the
// row of its whole device says so.
func troubles(v view, d *device, now time.Time) page.Node {
	var out page.Node
	add := func(parts ...page.Node) { out.Add(page.El("p", parts...)) }
	if tone := healthTone(d); tone != page.Good && tone != page.Idle {
		add(page.El("b", page.Text(string(d.Health.Reason))), page.Text(prefixed(": ", d.Health.Message)+" · "),
			page.Ago(now, d.Health.Since))
		if do := d.Remedy(); do != "" {
			add(page.Class("do"), page.Text(page.Sentence(do)))
		}
		if d.Health.Evidence != "" {
			add(page.Class("mono", "faint"), page.Text(d.Health.Evidence))
		}
	}
	saidAbove := slices.ContainsFunc(v.Have[d.kind].Accelerators, d.WithheldWith)
	if d.WithheldAlone() && !saidAbove {
		add(page.El("b", page.Text("Held back: "+string(d.Withheld.Reason))), page.Text(prefixed(": ", d.Withheld.Message)))
	}
	if d.Recorded > 0 {
		add(page.Class("faint"), page.Link("/history", fmt.Sprintf("faults on record: %d", d.Recorded)))
	}
	if d.Switched != nil {
		add(page.Text("use: " + d.Switched.String()))
	}
	if d.Divided != nil {
		add(page.Text("use: " + d.Divided.String()))
	}
	out.Add(unrequested(d.Unrequested)...)
	if d.Repair != nil {
		add(page.Text("repair: " + d.Repair.String()))
	}
	for _, x := range d.Deviations() {
		add(page.El("b", page.Text(string(x.Reason()))), page.Text(" setting "+x.String()))
	}
	if d.Handover != nil {
		add(page.Class("faint"), page.Text("hand-over: "+d.Handover.String()))
	}
	for _, f := range d.Faults {
		add(page.Class("faint"), page.Text("fault "+f.Code+prefixed(" ", f.Title)+" "),
			page.El("b", page.Text(fmt.Sprintf("%d×", f.Count))))
	}
	return out
}

// unrequested renders who uses a device although nobody gave it to them, as far as anybody on this host may know.
func unrequested(h *accel.UnrequestedHave) (lines []page.Node) {
	if h == nil {
		return nil
	}
	tone := page.Class("t-" + string(page.Bad))
	if h.Unknown != "" {
		tone = page.Class("faint")
	}
	for _, text := range h.Public().Lines() {
		lines = append(lines, page.El("p", tone, page.Text("in use without a request: "+text)))
	}
	return lines
}

// uses renders what each user uses of a device, as far as anybody on this host may know.
func uses(h *accel.UseHave) (lines page.Node) {
	if h == nil {
		return lines
	}
	if h.Unknown != "" {
		return page.El("p", page.Class("faint"), page.Text("what its users use is not known: "+h.Unknown))
	}
	for _, u := range h.Public().Users {
		who := u.Who()
		text := prefixed(" · memory ", u.MemoryText()) + prefixed(" · busy ", u.BusyText()) + prefixed(" · ", u.EngineText())
		lines.Add(page.El("p", page.Class("holder"), page.Text("used by "), page.El("b", page.Text(who)), page.Text(text)))
	}
	if rest := h.Rest(); rest != "" {
		lines.Add(page.El("p", page.Class("faint"), page.Text(rest)))
	}
	return lines
}

// inColumns are the readings that have a column of their own.
func inColumns() []string {
	return []string{
		utilization, inheritedUtilization, accel.MetricMemoryUsed, accel.MetricMemoryTotal, accel.MetricPower,
		accel.MetricPowerLimit, accel.MetricTemperature,
	}
}

// deviceReadings renders the other readings of a device, folded away.
func deviceReadings(d *device) page.Node {
	if !d.Present() {
		return page.Node{}
	}
	list, count := page.El("div", page.Class("readings")), 0
	for _, r := range readings() {
		if n, ok := d.Metrics[r.name]; ok && !slices.Contains(inColumns(), r.name) {
			count++
			list.Add(page.El("span", page.Text(spoken(r.name)+" "), page.El("b", page.Text(quantity(r.name, n)))),
				page.Text(" "))
		}
	}
	return page.When(count > 0, page.El("details", page.El("summary", page.Text(page.Count(count, "more reading"))), list))
}
