package exporter

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/page"
)

// page serves the status page for people. Like /v1/machine, it waits with its answer if the client already has the
// newest one, so that the page in a browser follows the agent without polling.
func (e *Exporter) page(w http.ResponseWriter, r *http.Request) {
	m, known := e.snapshot(w, r)
	if known {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	v := e.viewOf(m)
	v.traces = e.copied()
	page.Write(w, http.StatusOK, document(v, e.o.Now()))
}

// document renders the page.
func document(v view, now time.Time) page.Document {
	tone, words := verdict(v)
	d := page.Document{Title: tone.Mark() + " " + v.Agent.Node + " – acceld", Tone: tone, Tag: tag(v.Machine), Now: now}
	d.Header = page.Row(
		page.El("h1", page.Text(v.Agent.Node)),
		page.Verdict(tone, words),
		page.El("p", page.Class("meta"), page.Text("acceld "+v.Agent.Version+", started "),
			page.Ago(now, v.Agent.Started),
			page.Text(" · host read "), page.Ago(now, v.Taken)),
	)
	for _, m := range v.Facts.Maintenance {
		d.Header.Add(page.El("p", page.Class("meta"), page.Text("maintenance: "+m.String())))
	}
	d.Main.Add(attention(v), totals(v))
	var idle, here []string
	for _, k := range v.kinds() {
		if absent(v, k) {
			idle = append(idle, title(v, k))
			continue
		}
		here = append(here, k)
	}
	slices.SortStableFunc(here, func(a, b string) int { return concern(v, a) - concern(v, b) })
	for _, k := range here {
		d.Main.Add(kindSection(v, k, now))
	}
	d.Main.Add(eventSection(v.events, now), hostSection(v, idle))
	d.Footer = page.Row(
		page.Link("/v1/machine", "everything as JSON"),
		page.Link("/v1/events", "events"),
		page.Link("/history", "history of the devices"),
		page.Link("/metrics", "metrics"),
		page.Link("/healthz", "health"),
		page.Link("/readyz", "readiness"),
		page.Link("/livez", "liveness"),
	)
	return d
}

// absent reports whether there is nothing to show about a kind.
func absent(v view, k string) bool {
	st := v.Status[k]
	return st.State == accel.Absent && len(v.Have[k].Accelerators) == 0 && st.Blocked == nil
}

// tones returns the tone of a kind's state and of the whole kind: a ready kind may have an unhealthy device or
// partition, or wait for another driver.
func tones(v view, k string) (state, whole page.Tone) {
	st, accs := v.Status[k], accel.Current(v.Have[k].Accelerators)
	switch {
	case st.Blocked != nil:
		state = page.Bad
	case st.State == accel.Ready:
		state = page.Good
	default:
		state = page.Busy
	}
	whole = state
	switch {
	case accel.CountUsable(accs) < len(accs):
		whole = page.Bad
	case whole == page.Good && (len(v.Have[k].Warnings()) > 0 || v.Have[k].Driver.Upgrade != nil ||
		accel.CountWithheld(accs) > 0 || slices.ContainsFunc(accs, notHealthy)):
		whole = page.Busy
	}
	return state, whole
}

func notHealthy(a accel.Accelerator) bool { return a.Health.State != accel.Healthy }

// verdict summarizes the host in one sentence.
func verdict(v view) (page.Tone, string) {
	healthy, degraded, total := 0, 0, 0
	for _, d := range v.devices {
		if d.FormerPartition() {
			continue
		}
		total++
		switch d.Health.State {
		case accel.Healthy:
			if d.Seen() == accel.HealthUnknown {
				continue // its driver is missing, and nothing has told how it is
			}
			healthy++
		case accel.Degraded:
			degraded++
		case accel.Unhealthy, accel.Gone:
		}
	}
	var blocked, waiting, lacking, upgrading, unchecked []string
	withheld := 0
	for _, k := range v.kinds() {
		state, whole := tones(v, k)
		withheld += accel.CountWithheld(accel.Current(v.Have[k].Accelerators))
		switch {
		case v.Have[k].Runtime.LibraryMissing != nil && whole != page.Bad:
			lacking = append(lacking, k)
		case absent(v, k):
		case whole == page.Bad:
			blocked = append(blocked, k)
		case state == page.Busy:
			waiting = append(waiting, k)
		case v.Have[k].Driver.Upgrade != nil:
			upgrading = append(upgrading, k)
		case v.Have[k].Driver.Unchecked:
			unchecked = append(unchecked, k)
		}
	}
	tally := fmt.Sprintf(". %d of %s healthy.", healthy, page.Count(total, "accelerator"))
	switch {
	case v.Taken.IsZero():
		return page.Busy, "The host has not been read yet."
	case len(blocked) > 0:
		return page.Bad, "Needs attention: " + strings.Join(blocked, ", ") + tally
	case len(lacking) > 0:
		return page.Bad, "No container can use it, a library is missing: " + strings.Join(lacking, ", ") + tally
	case len(waiting) > 0:
		return page.Busy, "On the way: " + strings.Join(waiting, ", ") + tally
	case len(upgrading) > 0:
		return page.Busy, "Another driver is wanted: " + strings.Join(upgrading, ", ") + tally
	case total == 0:
		return page.Idle, "No accelerator on this host."
	case withheld > 0:
		return page.Busy, fmt.Sprintf("Ready. %d of %s withheld.", withheld, page.Count(total, "accelerator"))
	case degraded > 0:
		return page.Busy, fmt.Sprintf("Ready. %d of %s degraded, and usable.", degraded,
			page.Count(total, "accelerator"))
	}
	all := fmt.Sprintf("Ready. All %d accelerators are healthy", total)
	if total == 1 {
		all = "Ready. The accelerator is healthy"
	}
	if len(unchecked) > 0 {
		all += "; unchecked: " + strings.Join(unchecked, ", ")
	}
	return page.Good, all + "."
}

// hostSection renders the machine, and the kinds that are not on it.
func hostSection(v view, idle []string) page.Node {
	f := v.Facts
	kubelet := "none"
	if f.Kubelet.Present {
		kubelet = f.Kubelet.Root
	}
	facts := []page.Node{
		page.Fact("Kernel", strings.TrimSpace(f.Kernel.Release+" "+f.Kernel.Arch)),
		page.Fact("Operating system", f.OS.Pretty), page.Fact("Lockdown", lockdown(f.Kernel)),
		page.Fact("Container runtime", strings.TrimSpace(f.Runtime.Name+" "+f.Runtime.Version+" "+f.Runtime.Endpoint)),
		page.Fact("Kubelet", kubelet),
	}
	switch {
	case f.Kernel.SecureBootUnknown:
		facts = append(facts, page.Fact("Secure boot", "unknown"))
	case f.Kernel.SecureBoot:
		facts = append(facts, page.Fact("Secure boot", "on"))
	}
	if f.Kernel.Taint != 0 {
		facts = append(facts, page.Fact("Kernel taint", fmt.Sprintf("%#x", f.Kernel.Taint)))
	}
	facts = append(facts, page.Fact("Not on this host", strings.Join(idle, ", ")))
	s := page.El("section", page.Class("idle"), page.Set("id", "host"), page.El("h2", page.Text("Host")),
		page.Facts(facts...))
	if p := v.Want.Problem; p != nil {
		s.Add(page.El("p", page.Badge(page.Bad, string(p.Reason)),
			page.Text(" "+p.Message+"; the previous configuration stays in force")))
	}
	for _, p := range v.Agent.Problems {
		s.Add(page.El("p", page.Badge(page.Bad, string(p.Reason)), page.Text(" "+p.Part+": "+p.Message)))
	}
	s.Add(titled("Could not be read", f.Problems), titled("Seen and ignored", f.Notes))
	return s
}

// titled is a list of sentences below a title; nothing without a sentence.
func titled(title string, sentences []string) page.Node {
	if len(sentences) == 0 {
		return page.Row()
	}
	list := page.El("ul", page.Class("small"))
	for _, x := range sentences {
		list.Add(page.El("li", page.Text(x)))
	}
	return page.Row(page.El("h3", page.Text(title)), list)
}

func title(v view, k string) string {
	if def := v.Want.Kinds[k]; def != nil && def.Title != "" {
		return def.Title
	}
	return k
}

// lockdown returns the lockdown of the kernel as far as it is known.
func lockdown(k accel.Kernel) string {
	if k.LockdownUnknown {
		return "unknown"
	}
	return k.Lockdown
}
