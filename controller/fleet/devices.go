package fleet

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/page"
)

// deviceSection shows what devices have been through on all hosts: those that several nodes claim, and those with the
// most faults.
func deviceSection(o devices.Overview, now time.Time) page.Node {
	tone, claimed := page.Idle, 0
	var rows []page.TableRow
	for _, r := range o.Devices {
		if len(r.Claimed) > 0 {
			claimed++
			tone = page.Bad
		}
		rows = append(rows, deviceRow(r, now))
	}
	s := page.El("section", page.Class(string(tone)), page.Set("id", "devices"),
		page.El("h2", page.Text("What devices have been through")),
		paragraph(fmt.Sprintf("%s on record, %d of them with faults.", page.Count(o.Total, "device"), o.Faulty)))
	if claimed > 0 {
		s.Add(paragraph("Several nodes say at the same time that they have the same device: a serial number that is not "+
			"unique, or a node that does not tell the truth.", page.Class("do")))
	}
	if o.LeftOut > 0 {
		s.Add(paragraph(page.Count(o.LeftOut, "device") + " more have no record, because there are too many."))
	}
	if o.Unreadable > 0 {
		s.Add(paragraph(page.Count(o.Unreadable, "report") + " of nodes cannot be read."))
	}
	if len(rows) > 0 {
		s.Add(page.Table("Devices", []string{"Device", "Kind", "Where", "Faults", "Resets", "Last fault"}, rows...))
	}
	if more := o.Faulty - len(rows); more > 0 {
		s.Add(paragraph(fmt.Sprintf("%d more are not shown; kubectl get acceleratordevices shows all.", more),
			page.Class("faint", "small")))
	}
	return s
}

func deviceRow(r devices.Record, now time.Time) page.TableRow {
	kind := r.Kind
	if r.Model != "" {
		kind += ", " + r.Model
	}
	where := page.Row(paragraph(strings.TrimSpace(cmp.Or(r.Node, "nowhere") + " " + r.Address)))
	if len(r.Claimed) > 0 {
		where.Add(page.El("p", page.Badge(page.Bad, "claimed by "+page.Count(len(r.Claimed), "node")),
			page.Text(" "+strings.Join(r.Claimed, ", "))))
	}
	var before []string
	for _, h := range r.Hosts {
		if h.Node != r.Node {
			before = append(before, h.Node+": "+page.Count(faultsOn(h), "fault"))
		}
	}
	if r.Earlier != nil {
		before = append(before, fmt.Sprintf("%d earlier: %s", r.Earlier.Hosts, page.Count(r.Earlier.Counts.Faults, "fault")))
	}
	if len(before) > 0 {
		where.Add(paragraph("also on "+strings.Join(before, ", "), page.Class("faint", "small")))
	}
	last := page.Text("–")
	if f := r.LastFault; f != nil {
		last = page.Row(page.El("b", page.Text(string(f.Reason))), page.Text(" on "+f.Node+" "), page.Ago(now, f.At),
			paragraph(f.Message))
	}
	return row(page.El("span", page.Class("id"), page.Text(r.Serial)), page.Text(kind), where,
		page.Text(fmt.Sprint(r.Total.Faults)), page.Text(fmt.Sprint(r.Total.Resets)), last)
}

// faultsOn is how many faults a device has had on a host.
func faultsOn(h devices.Host) int { return h.Before.Faults + h.Counts.Faults }
