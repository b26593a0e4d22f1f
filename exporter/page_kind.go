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
	if n := accel.CountWithheld(current); n > 0 {
		head.Add(page.Badge(page.Busy, fmt.Sprintf("%d withheld", n)), page.Text(" "))
	}
	if have.Driver.Unchecked {
		head.Add(page.Badge(page.Idle, "unchecked"), page.Text(" "))
	}
	head.Add(page.El("small", page.Text(about)))
	s := page.El("section", page.Class(string(whole)), page.Set("id", k), page.Set("aria-label", title(v, k)), head)
	s.Add(page.El("p", page.Text(page.Sentence(st.Sentence))))
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
	for _, p := range have.Warnings() {
		s.Add(page.El("div", page.Class("blocked", string(page.Busy)),
			page.El("p", page.Badge(page.Busy, string(p.Reason)), page.Text(page.Sentence(p.Message))),
			page.El("p", page.Class("do"), page.Text(p.Remedy()))))
	}
	for _, p := range have.Work {
		s.Add(workInProgress(p, now))
	}
	s.Add(way(v, k), deviceTable(v, k, now), timeline(v, k, now), page.Facts(kindFacts(v, k, now)...))
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
		page.El("p", page.Badge(tone, string(f.Reason)), page.Text(page.Sentence(f.Message))),
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

// way renders what a kind needs on this host, by what is done: how long each step took, and which one is not done.
func way(v view, k string) page.Node {
	st := v.Status[k]
	tone, _ := tones(v, k)
	list := page.El("ol", page.Class("way"), page.Set("aria-label", "the steps of "+k))
	passed := true
	for _, s := range accel.States() {
		if s.Done() == "" || !v.Want.Kubernetes && (s == accel.PluginMissing || s == accel.KubeletPending) {
			continue
		}
		at, note := page.Idle, "to come"
		var current page.Node
		switch {
		case s == st.State:
			passed, at, note, current = false, tone, "now", page.Set("aria-current", "step")
			if st.Blocked != nil {
				note = "blocked"
			}
		case passed && st.State != accel.Absent && st.State != "":
			at, note = page.Good, "done"
			if took, ok := st.Took[s]; ok {
				note = brief(took)
			}
		}
		if s == accel.DriverUnproven && s != st.State && v.Have[k].Driver.Unchecked {
			at, note = page.Idle, "unchecked"
		}
		list.Add(page.El("li", page.Class(string(at)), current, page.El("b", page.Text(s.Done()+" "),
			page.El("span", page.Set("aria-hidden", "true"), page.Text(at.Mark()))), page.Text(note)))
	}
	return list
}

// workInProgress renders the work on a driver: what is done from where, how much of it, since when, and whether a
// transfer brings nothing.
func workInProgress(p accel.Progress, now time.Time) page.Node {
	tone, quiet := page.Busy, page.Node{}
	if d, silent := p.Silent(now); silent {
		tone = page.Bad
		quiet = page.Row(page.Text(" · "), page.El("b", page.Text("no byte since ")), page.Ago(now, now.Add(-d)))
	}
	percent, known := p.Percent()
	step := ""
	if p.Step > 0 {
		step = strings.TrimSuffix(fmt.Sprintf("step %d of %d", p.Step, p.Steps), " of 0")
	}
	again := ""
	if p.Attempt > 1 {
		again = fmt.Sprintf("attempt %d because %s", p.Attempt, p.Problem)
	}
	about := []string{step, p.Amount(), again}
	about = slices.DeleteFunc(about, func(s string) bool { return s == "" })
	return page.El("div", page.Class("blocked", string(tone)),
		page.El("p", page.Badge(tone, p.Words()), page.El("span", page.Class("mono"), page.Text(p.What))),
		page.When(known, page.Bar(fmt.Sprintf("%d %% done", percent), float64(percent)/100, page.Busy)),
		page.El("p", page.Class("small"), page.Text("Began "), page.Ago(now, p.Since),
			page.Text(prefixed(" · ", strings.Join(about, " · "))), quiet))
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
