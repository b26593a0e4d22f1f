package exporter

import (
	"fmt"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/page"
)

// maxAttention is how many lines the list of what needs attention has.
const maxAttention = 12

// attention lists at the top what somebody has to look at, so that it is on the first screen of a phone: kinds that are
// blocked or warn, and devices that are not healthy, each with a link to where the page says more.
func attention(v view) page.Node {
	var lines []page.Node
	for _, k := range v.kinds() {
		if f := v.Status[k].Blocked; f != nil {
			lines = append(lines, concernLine(page.Bad, "blocked", k, title(v, k), f.Reason, f.Message, f.Remedy()))
		}
		for _, p := range v.Have[k].Warnings() {
			lines = append(lines, concernLine(page.Busy, "warning", k, title(v, k), p.Reason, p.Message, p.Remedy()))
		}
	}
	for _, tone := range []page.Tone{page.Bad, page.Busy} {
		for _, d := range v.devices {
			if d.FormerPartition() || d.Health.State == accel.Healthy || healthTone(d) != tone {
				continue
			}
			name := d.ID
			if len(d.holders) > 0 {
				name += ", held by " + d.holders[0].Namespace + "/" + d.holders[0].Pod
			}
			lines = append(lines, concernLine(tone, d.Seen(), anchor(d.ID), name, d.Health.Reason, d.Health.Message,
				d.Remedy()))
		}
	}
	if len(lines) == 0 {
		return page.Node{}
	}
	list := page.El("ul", page.Class("attention"))
	list.Add(lines[:min(len(lines), maxAttention)]...)
	s := page.El("section", page.Class(string(page.Bad)), page.Set("id", "attention"),
		page.El("h2", page.Text("Needs attention")), list)
	if more := len(lines) - maxAttention; more > 0 {
		s.Add(page.El("p", page.Class("faint", "small"), page.Text(fmt.Sprintf("%d more are below.", more))))
	}
	return s
}

func concernLine(t page.Tone, word, to, name string, reason accel.Reason, message, remedy string) page.Node {
	return page.El("li", page.Badge(t, word), page.Text(" "), page.Here(to, name), page.Text(" "),
		page.El("b", page.Text(string(reason))), page.Text(prefixed(": ", message)),
		page.When(remedy != "", page.El("p", page.Class("do"), page.Text(page.Sentence(remedy)))))
}

// anchor is where links to a device lead.
func anchor(id string) string { return "device-" + id }

// concern is lower the more a kind needs attention.
func concern(v view, k string) int {
	switch _, whole := tones(v, k); whole {
	case page.Bad:
		return 0
	case page.Busy:
		return 1
	case page.Good, page.Idle:
	}
	return 2
}

// totals counts the devices of the host; nothing without one.
func totals(v view) page.Node {
	var t accel.Tally
	for _, k := range v.kinds() {
		t = t.Add(v.Have[k].Accelerators, v.heldBy())
	}
	if t.Total == 0 {
		return page.Node{}
	}
	var items []page.Node
	tones := map[string]page.Tone{"used": page.Good, "free": page.Good, "offered": page.Good, "held back": page.Busy, "sick": page.Bad}
	for _, p := range t.Parts() {
		tone := tones[p.Word]
		if p.Count == 0 {
			tone = page.Idle
		}
		items = append(items, page.TallyItem(tone, fmt.Sprint(p.Count), p.Word))
	}
	items = append(items, page.TallyItem(page.Idle, fmt.Sprint(t.Total), "in all"))
	return page.El("section", page.Class("idle"), page.Set("id", "totals"),
		page.El("h2", page.Text("Devices "), page.El("small", page.Text("of all kinds; a divided one counts as its parts"))),
		page.Tally(items...))
}

// heldBy returns whether somebody holds a device; nil while nobody has said who holds what.
func (v view) heldBy() func(id string) bool {
	if v.lastSeen.IsZero() {
		return nil
	}
	held := map[string]bool{}
	for _, d := range v.devices {
		held[d.ID] = len(d.holders) > 0
	}
	return func(id string) bool { return held[id] }
}
