package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/page"
)

// podSection says which pods wait and why, with details of the pod that was asked for.
func (p *Page) podSection(s state, pod string, now time.Time) page.Node {
	tone := page.Good
	if s.total > 0 {
		tone = page.Busy
	}
	if !s.booked {
		tone = page.Idle
	}
	out := page.El("section", page.Class(string(tone)), page.Set("id", "pods"),
		page.El("h2", page.Text("Pods that wait "),
			page.El("small", page.Text("for cards, as far as the scheduler has asked"))))
	switch {
	case p.o.Waiting == nil:
		out.Add(paragraph("This controller does not answer the scheduler (resources in its configuration), so it does not know which pods wait. kubectl describe pod has the scheduler's own words.",
			page.Class("faint")))
		return out
	case !s.booked:
		out.Add(paragraph("The cache of cards is not complete yet, or another replica is the leader.",
			page.Class("faint")))
		return out
	case s.total == 0:
		out.Add(paragraph("None."))
	default:
		var rows []page.TableRow
		for _, w := range s.pods {
			rows = append(rows, podRow(w, now))
		}
		out.Add(page.Table("Pods that wait", []string{"Pod", "Asks for", "Because", "Asked"}, rows...))
		if more := s.total - len(s.pods); more > 0 {
			out.Add(paragraph(fmt.Sprintf("%d more wait.", more), page.Class("faint", "small")))
		}
	}
	out.Add(page.El(
		"form", page.Set("method", "get"), page.Set("action", ""), page.Set("role", "search"),
		page.El("input", page.Set("name", "pod"), page.Set("value", pod), page.Set("placeholder", "namespace/name"),
			page.Set("aria-label", "a pod that waits, as namespace/name")),
		page.El("button", page.Text("Why does it wait?")),
	))
	if pod != "" {
		out.Add(p.explain(pod))
	}
	return out
}

func podRow(w extender.Waiting, now time.Time) page.TableRow {
	link := page.El("a", page.Set("href", "?pod="+url.QueryEscape(w.Pod)+"#pods"), page.Text(w.Pod))
	return row(link, asksFor(w), because(w.Verdicts), page.Ago(now, w.Asked))
}

// asksFor lists what the containers of a pod need.
func asksFor(w extender.Waiting) page.Node {
	var out page.Node
	for _, c := range w.Containers {
		if c.Cards == 0 && len(c.PerCard) == 0 {
			continue
		}
		var each []string
		for _, name := range slices.Sorted(maps.Keys(c.PerCard)) {
			each = append(each, name+" "+amount(c.PerCard[name]))
		}
		text := c.Name + ": " + page.Count(int(c.Cards), "card")
		if len(each) > 0 {
			text += " with " + strings.Join(each, ", ") + " each"
		}
		out.Add(paragraph(text))
	}
	return out
}

// because counts the nodes by verdict, the most frequent first.
func because(verdicts map[string]int) page.Node {
	if len(verdicts) == 0 {
		return page.Text("no node is known")
	}
	var out page.Node
	words := slices.SortedFunc(maps.Keys(verdicts), func(a, b string) int {
		return cmp.Or(verdicts[b]-verdicts[a], strings.Compare(a, b))
	})
	for _, v := range words {
		text := v
		if v == fit.Fits.String() {
			text = "cards have room: the scheduler has another reason, or has not come back yet"
		}
		out.Add(paragraph(page.Count(verdicts[v], "node") + ": " + text))
	}
	return out
}

// explain compares a pod with nodes, card by card.
func (p *Page) explain(pod string) page.Node {
	w, ok := p.o.Explain(pod, maxNodes)
	if !ok {
		return paragraph("The scheduler has not asked about a pod “" + pod + "” lately, or it is bound.")
	}
	var rows []page.TableRow
	for _, n := range w.Nodes {
		var cards page.Node
		for _, c := range n.Cards {
			cards.Add(page.El("p", page.El("b", page.Text(c.Card)), page.Text(": "+c.Verdict+amounts(c.Resources))))
			for _, h := range c.Pods {
				text := "held by " + h.Pod
				if h.Presumed {
					text = "counted here: " + h.Pod
				}
				cards.Add(paragraph(text, page.Class("faint")))
			}
		}
		for _, u := range n.Unplaced {
			cards.Add(paragraph("nobody knows the card of "+u, page.Class("faint")))
		}
		rows = append(rows, row(page.Text(n.Node), page.Text(n.Verdict), cards))
	}
	return page.Row(page.El("h3", page.Text("Why "+pod+" waits")),
		page.Table("Why "+pod+" waits", []string{"Node", "Verdict", "Cards"}, rows...))
}

// amounts says how much is free of the resources that the pod needs.
func amounts(all []fit.ResourceReport) string {
	var out []string
	for _, r := range all {
		if r.Need > 0 {
			out = append(out, fmt.Sprintf("%s: %s of %s free, %s needed", r.Name, amount(r.Free), amount(r.Capacity),
				amount(r.Need)))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}

// amount formats a number of anything. Large numbers are assumed to be bytes.
func amount(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 40, "Ti"}, {1 << 30, "Gi"}, {1 << 20, "Mi"}} {
		if n >= 10*unit.size || n >= unit.size && unit.size > 1<<20 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(unit.size)), ".0") + " " + unit.name
		}
	}
	return fmt.Sprint(n)
}
