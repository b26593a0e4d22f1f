package exporter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/page"
)

// kindSection renders one kind: its state and since when, why and what to do, its progress, its devices.
func kindSection(v view, k string, now time.Time) page.Node {
	st, have := v.Status[k], v.Have[k]
	state, whole := tones(v, k)
	about := k
	if def := v.Want.Kinds[k]; def != nil {
		about += " · " + def.Offered()
	}
	head := page.El("h2", page.Text(title(v, k)+" "), page.Badge(state, stateWord(st)), page.Text(" "))
	current := accel.Current(have.Accelerators)
	if n := len(current) - accel.CountUsable(current); n > 0 {
		head.Add(page.Badge(page.Bad, fmt.Sprintf("%d not healthy", n)), page.Text(" "))
	}
	head.Add(page.El("small", page.Text(about)))
	s := page.El("section", page.Class(string(whole)), page.Set("id", k), page.Set("aria-label", title(v, k)), head)
	s.Add(page.El("p", page.Text(st.Sentence)))
	if !st.Since.IsZero() {
		s.Add(page.El("p", page.Class("faint", "small"), page.Text("Since "+page.Full(st.Since)+", "),
			page.Ago(now, st.Since), page.Text(".")))
	}
	if f := st.Blocked; f != nil {
		s.Add(failure(*f, now, page.Bad))
	}
	if u := have.Driver.Upgrade; u != nil {
		s.Add(upgrade(*u, now))
	}
	s.Add(way(v, k), timeline(v, k, now), page.Facts(kindFacts(v, k, now)...), deviceTable(v, k, now))
	return s
}

// stateWord returns the state in words; it is empty before a kind was looked at.
func stateWord(st accel.Status) string {
	switch {
	case st.State == "":
		return "not looked at yet"
	case st.Blocked != nil:
		return string(st.State) + ", blocked"
	}
	return string(st.State)
}

// failure renders why something does not continue, who must do what, and when it is tried again.
func failure(f accel.Failure, now time.Time, tone page.Tone) page.Node {
	doc := f.Reason.Doc()
	box := page.El("div", page.Class("blocked", string(tone)),
		page.El("p", page.Badge(tone, string(f.Reason)), page.Text(f.Message)),
		page.El("p", page.Class("do"), page.Text(f.Remedy())),
	)
	when := page.El("p", page.Class("faint", "small"), page.Text(doc.Sentence+" Who must act: "+string(doc.Actor)+"."))
	if !f.Since.IsZero() {
		when.Add(page.Text(" The step “"+string(f.Step)+"” failed first "), page.Ago(now, f.Since),
			page.Text(", "+page.Count(f.Attempts, "attempt")+"."))
	}
	when.Add(again(f, now))
	box.Add(when)
	if len(f.Tried) > 0 {
		list := page.El("ul")
		for _, t := range f.Tried {
			list.Add(page.El("li", page.Text(t)))
		}
		box.Add(page.El("p", page.Class("faint", "small"), page.Text("Tried before:")), list)
	}
	return box
}

// again says when a failed step runs again.
func again(f accel.Failure, now time.Time) page.Node {
	switch {
	case f.RetryAt.IsZero():
		return page.Text(" It is not tried again until something changes.")
	case !f.RetryAt.After(now):
		return page.Text(" It is being tried again now.")
	}
	return page.Row(page.Text(" It is tried again "), page.In(now, f.RetryAt), page.Text("."))
}

// upgrade renders which driver is wanted instead, its progress, and who holds it up.
func upgrade(u accel.Upgrade, now time.Time) page.Node {
	text := page.El("p", page.Badge(page.Busy, "upgrade "+string(u.Phase)),
		page.Text(" from "+u.From.String()+" to "+u.To.String()+", wanted "), page.Ago(now, u.Since), page.Text("."))
	out := page.Row(text)
	if len(u.Holders) > 0 {
		var who []string
		for _, h := range u.Holders {
			who = append(who, h.String())
		}
		out.Add(page.El("p", page.Class("small"), page.Text("In use by "+strings.Join(who, ", ")+".")))
	}
	if u.Failure != nil {
		out.Add(failure(*u.Failure, now, page.Busy))
	}
	return out
}

// way renders the states that a kind passes through on this host, how long each took, and which is the current one.
func way(v view, k string) page.Node {
	st := v.Status[k]
	tone, _ := tones(v, k)
	list := page.El("ol", page.Class("way"), page.Set("aria-label", "the way of "+k))
	passed := true
	for _, s := range states() {
		if s == accel.Absent || !v.Want.Kubernetes && (s == accel.PluginMissing || s == accel.KubeletPending) {
			continue
		}
		item, note := page.El("li", page.Class(string(page.Idle))), "to come"
		switch {
		case s == st.State:
			passed = false
			item, note = page.El("li", page.Class(string(tone)), page.Set("aria-current", "step")), "now"
			if st.Blocked != nil {
				note = "blocked"
			}
		case passed && st.State != accel.Absent && st.State != "":
			item, note = page.El("li", page.Class(string(page.Good))), "done"
		}
		if took, ok := st.Took[s]; ok && note == "done" {
			note = brief(took)
		}
		if s == accel.DriverUnproven && s != st.State && v.Have[k].Driver.Unchecked {
			item, note = page.El("li", page.Class(string(page.Idle))), "unchecked"
		}
		item.Add(page.El("b", page.Text(string(s))), page.Text(note))
		list.Add(item)
	}
	return list
}

// brief renders a short duration.
func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return page.Span(d)
}

func kindFacts(v view, k string, now time.Time) []page.Node {
	have := v.Have[k]
	facts := []page.Node{page.Fact("Driver",
		strings.TrimSpace(have.Driver.Version+" "+parenthesis(have.Driver.Source)))}
	if u := have.Driver.UserSpace; u != nil {
		facts = append(facts, page.Fact("User space", u.Origin))
	}
	for _, c := range have.Driver.Companions {
		facts = append(facts, page.Fact("Daemon", c.Name+" "+c.State()+" ("+c.Unit+")"))
	}
	if have.Driver.Unchecked {
		facts = append(facts, page.Fact("Proof", have.Driver.WhyUnchecked()))
	} else if !have.Driver.Proven.IsZero() {
		facts = append(facts, page.FactOf("Proven", page.Row(page.Ago(now, have.Driver.Proven),
			page.Text(" "+parenthesis(have.Driver.Proof)))))
	}
	for _, release := range slices.Sorted(maps.Keys(have.Driver.Next)) {
		word := "the driver is ready for it"
		if p := have.Driver.Next[release].Problem; p != nil {
			word = string(p.Reason) + ": " + p.Message
		}
		facts = append(facts, page.Fact("Next kernel", release+": "+word))
	}
	facts = append(facts, page.Fact("CDI spec", have.Runtime.Spec), page.Fact("Hook", have.Runtime.Hook))
	if p := have.Runtime.NotHonored; p != nil && v.Status[k].Blocked == nil {
		facts = append(facts, page.Fact("Ignored", string(p.Reason)+": "+p.Message))
	}
	if v.Want.Kubernetes && len(have.Accelerators) > 0 && have.Plugin.Allocatable.Known {
		facts = append(facts, page.Fact("Allocatable", fmt.Sprintf("%d of %d offered", have.Plugin.Allocatable.Value,
			accel.CountOffered(accel.Offer(v.Machine, k)))))
	}
	return append(facts, page.Fact("Labels wait", have.Monitoring.LabelProblem))
}

// deviceTable renders the devices of a kind, each followed by its partitions.
func deviceTable(v view, k string, now time.Time) page.Node {
	var rows []page.TableRow
	for _, d := range v.devices {
		if d.kind == k {
			rows = append(rows, deviceRow(v, d, now))
		}
	}
	if len(rows) == 0 {
		return page.Node{}
	}
	return page.Table("Devices of "+k, []string{"Device", "Health", "Driver", "NUMA", "Held by"}, rows...)
}

func deviceRow(v view, d *device, now time.Time) page.TableRow {
	r := page.TableRow{}
	if d.Profile != "" {
		r.Class = "part"
	}
	tone := page.Bad
	switch {
	case d.Seen() == accel.HealthUnknown:
		tone = page.Idle
	case d.Health.State == accel.Healthy:
		tone = page.Good
	case d.Health.Usable():
		tone = page.Busy
	}
	health := page.Row(page.Badge(tone, d.Seen()))
	if tone != page.Good && tone != page.Idle {
		health.Add(page.El("p", page.El("b", page.Text(string(d.Health.Reason))),
			page.Text(prefixed(": ", d.Health.Message)+" · "), page.Ago(now, d.Health.Since)))
		if do := d.Remedy(); do != "" {
			health.Add(page.El("p", page.Class("do"), page.Text(do)))
		}
		if d.Health.Evidence != "" {
			health.Add(page.El("p", page.Class("mono", "faint"), page.Text(d.Health.Evidence)))
		}
	}
	if d.WithheldAlone() {
		health.Add(page.El("p", page.El("b", page.Text("withheld: "+string(d.Withheld.Reason))),
			page.Text(prefixed(": ", d.Withheld.Message))))
	}
	about := page.Row(page.El("span", page.Class("mono", "id"), page.Text(d.ID)))
	if m := d.model(); m != title(v, d.kind) && d.Profile == "" {
		about.Add(page.El("p", page.Text(m)))
	}
	if d.Serial != "" {
		about.Add(page.El("p", page.Class("faint", "nw"), page.Text("serial "+d.Serial)))
	}
	if d.Recorded > 0 {
		about.Add(page.El("p", page.Class("faint", "nw"), page.Link("/history", fmt.Sprintf("faults on record: %d", d.Recorded))))
	}
	if d.Switched != nil {
		about.Add(page.El("p", page.Text("use: "+d.Switched.String())))
	}
	if d.Divided != nil {
		about.Add(page.El("p", page.Text("use: "+d.Divided.String())))
	}
	about.Add(unrequested(d.Unrequested)...)
	if d.Repair != nil {
		about.Add(page.El("p", page.Text("repair: "+d.Repair.String())))
	}
	for _, x := range d.Deviations() {
		about.Add(page.El("p", page.El("b", page.Text(string(x.Reason()))), page.Text(" setting "+x.String())))
	}
	if d.Handover != nil {
		about.Add(page.El("p", page.Class("faint"), page.Text("hand-over: "+d.Handover.String())))
	}
	driver := page.Row(page.When(d.Bound != "", page.El("span", page.Text(d.Bound))))
	for _, n := range d.Nodes {
		driver.Add(page.El("p", page.Class("mono", "faint"), page.Text(n.Path)))
	}
	var holder page.Node
	for _, h := range d.holders {
		holder.Add(page.El("p", page.Class("holder"), page.Set("title", h.Resource),
			page.Text(h.Namespace+"/"+h.Pod+prefixed(", ", h.Container))))
	}
	r.Cells = []page.Node{about, health, driver, page.Text(numa(d.NUMANode)), holder}
	if d.Present() {
		r.Below = deviceReadings(d)
	}
	return r
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

// deviceReadings renders what a device measures, and the errors that its driver has reported.
func deviceReadings(d *device) page.Node {
	list := page.El("div", page.Class("readings"))
	some := false
	add := func(name, value string) {
		some = true
		list.Add(page.El("span", page.Text(name+" "), page.El("b", page.Text(value))), page.Text(" "))
	}
	for _, r := range readings() {
		if n, ok := d.Metrics[r.name]; ok {
			add(spoken(r.name), quantity(r.name, n))
		}
	}
	for _, f := range d.Faults {
		add("fault "+f.Code+prefixed(" ", f.Title), fmt.Sprintf("%d×", f.Count))
	}
	return page.When(some, list)
}
