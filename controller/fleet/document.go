package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/page"
)

// document renders the page. pod is a pod to show in detail, or empty.
func (p *Page) document(s state, pod string) page.Document {
	now := p.o.Now()
	tone, words := verdict(s)
	d := page.Document{Title: tone.Mark() + " accelerators – acceld", Tone: tone, Tag: s.tag, Now: now}
	d.Header = page.Row(
		page.El("h1", page.Text("Accelerators of the cluster")),
		page.Verdict(tone, words),
		page.El("p", page.Class("meta"), page.Text("acceld-controller "+p.o.Identity)),
	)
	if s.overview.Problem != "" {
		d.Main.Add(page.El("section", page.Class("bad"), page.Set("id", "problem"),
			page.El("h2", page.Text("The API server is not followed")),
			paragraph(s.overview.Problem+". What is shown may be old.")))
	}
	if s.known {
		d.Main.Add(totals(s.overview.Nodes), nodeSection(s.overview.Nodes))
		for _, x := range s.overview.Policies {
			d.Main.Add(policySection(x, now))
		}
		if s.devices.Total > 0 {
			d.Main.Add(deviceSection(s.devices, now))
		}
	}
	d.Main.Add(p.podSection(s, pod, now))
	d.Footer = page.Row(
		page.Link("/metrics", "metrics"),
		page.Link("/readyz", "readiness"),
		page.Link("/healthz", "health"),
	)
	return d
}

// paragraph returns a text as a paragraph with attributes.
func paragraph(text string, attributes ...page.Node) page.Node {
	return page.El("p", append(attributes, page.Text(text))...)
}

// row returns a row of a table.
func row(cells ...page.Node) page.TableRow { return page.TableRow{Cells: cells} }

// condition is the status of a node, from best to worst.
type condition int

const (
	ready condition = iota
	moving
	upgrading
	blocked
	down
)

// words returns the tone and the words of a status.
func (s condition) words() (page.Tone, string) {
	switch s {
	case ready:
		return page.Good, "ready"
	case moving:
		return page.Busy, "on the way"
	case upgrading:
		return page.Busy, "upgrading"
	case blocked:
		return page.Bad, "blocked"
	case down:
	}
	return page.Bad, "node is down"
}

// conditionOf sums up a node.
func conditionOf(n policy.NodeView) condition {
	at := ready
	for _, k := range n.Kinds {
		switch {
		case k.UpgradeReport.Acts():
			at = max(at, upgrading)
		case k.UpgradeReport.Phase == accel.ReportFailed:
			at = max(at, blocked)
		}
		for _, phase := range k.States {
			switch phase {
			case accel.PhaseFailed:
				at = max(at, blocked)
			case accel.PhasePending:
				at = max(at, moving)
			case accel.PhaseReady, accel.PhaseUnchecked:
			}
		}
	}
	switch {
	case !n.Up:
		return down
	case at == ready && n.Ready == "False":
		return blocked // a device is not healthy
	}
	return at
}

// verdict sums up the cluster in one sentence.
func verdict(s state) (page.Tone, string) {
	switch {
	case !s.known && !s.booked && s.holder != "":
		return page.Busy, "Another replica is the leader: " + s.holder + "."
	case !s.known && !s.booked:
		return page.Busy, "Another replica is the leader, or the cluster has not been read yet."
	}
	counts := map[condition]int{}
	for _, n := range s.overview.Nodes {
		counts[conditionOf(n)]++
	}
	total, bad, busy := len(s.overview.Nodes), counts[blocked]+counts[down], counts[moving]+counts[upgrading]
	tally := fmt.Sprintf("%d of %s ready", counts[ready], page.Count(total, "node"))
	waits := ""
	if s.total > 0 {
		waits = ", " + page.Count(s.total, "pod") + " waiting"
	}
	switch {
	case !s.known && s.total > 0:
		return page.Busy, page.Count(s.total, "pod") + " waiting for cards."
	case !s.known:
		return page.Good, "No pod waits for cards."
	case bad > 0:
		return page.Bad, fmt.Sprintf("%s, %d need attention%s.", tally, bad, waits)
	case busy > 0 || s.total > 0:
		return page.Busy, tally + waits + "."
	case total == 0:
		return page.Idle, "No node has accelerators."
	case total == 1:
		return page.Good, "The one node with accelerators is ready."
	}
	return page.Good, fmt.Sprintf("All %d nodes with accelerators are ready.", total)
}

// nodeSection lists nodes by status; ready ones are folded away.
func nodeSection(nodes []policy.NodeView) page.Node {
	by := map[condition][]policy.NodeView{}
	worst := ready
	for _, n := range nodes {
		at := conditionOf(n)
		by[at], worst = append(by[at], n), max(worst, at)
	}
	tone, _ := worst.words()
	if len(nodes) == 0 {
		tone = page.Idle
	}
	s := page.El("section", page.Class(string(tone)), page.Set("id", "nodes"), page.El("h2", page.Text("Nodes")))
	tally := page.El("ul", page.Class("tally"))
	for _, at := range []condition{ready, moving, upgrading, blocked, down} {
		t, word := at.words()
		tally.Add(page.El("li", page.El("b", page.Class("t-"+string(t)), page.Text(fmt.Sprint(len(by[at])))),
			page.Text(word)))
	}
	s.Add(tally, reasonTable(by))
	for _, at := range []condition{down, blocked, upgrading, moving} {
		if len(by[at]) > 0 {
			_, word := at.words()
			s.Add(page.El("h3", page.Text(page.Sentence(word))), nodeTable(word, by[at]))
		}
	}
	if len(by[ready]) > 0 {
		s.Add(page.El("details", page.Set("id", "ready"),
			page.El("summary", page.Text(page.Count(len(by[ready]), "node")+" ready")),
			nodeTable("Nodes that are ready", by[ready])))
	}
	return s
}

// reasonTable shows how many nodes each reason blocks.
func reasonTable(by map[condition][]policy.NodeView) page.Node {
	type reason struct {
		nodes   []string
		example string
	}
	reasons := map[string]*reason{}
	for _, at := range []condition{blocked, moving, upgrading} {
		for _, n := range by[at] {
			if n.Reason == "" {
				continue
			}
			x := reasons[n.Reason]
			if x == nil {
				x = &reason{example: n.Message}
				reasons[n.Reason] = x
			}
			x.nodes = append(x.nodes, n.Name)
		}
	}
	if len(reasons) == 0 {
		return page.Node{}
	}
	names := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(len(reasons[b].nodes)-len(reasons[a].nodes), strings.Compare(a, b))
	})
	var rows []page.TableRow
	for _, name := range names {
		x := reasons[name]
		what := page.Row(page.El("span", page.Text(x.example)))
		if doc := accel.Reason(name).Doc(); string(doc.Reason) == name {
			what.Add(paragraph(doc.Remedy+" ("+string(doc.Actor)+")", page.Class("do")))
		}
		var some page.Node
		for i, n := range x.nodes[:min(len(x.nodes), 3)] {
			some.Add(page.Text([]string{"", ", ", ", "}[i]), page.El("span", page.Class("nw"), page.Text(n)))
		}
		if more := len(x.nodes) - 3; more > 0 {
			some.Add(page.Text(fmt.Sprintf(" and %d more", more)))
		}
		rows = append(rows, row(page.Text(name), page.Text(fmt.Sprint(len(x.nodes))), what, some))
	}
	return page.Row(page.El("h3", page.Text("Why nodes are not ready")),
		page.Table("Reasons", []string{"Reason", "Nodes", "What, and what to do", "Which"}, rows...))
}

func nodeTable(caption string, nodes []policy.NodeView) page.Node {
	var rows []page.TableRow
	for _, n := range nodes[:min(len(nodes), maxNodes)] {
		rows = append(rows, nodeRow(n))
	}
	table := page.Table(caption, []string{"Node", "Kinds", "Driver", "Policy", "Says"}, rows...)
	if more := len(nodes) - maxNodes; more > 0 {
		return page.Row(table, paragraph(fmt.Sprintf("%d more are not shown; kubectl get nodes shows all.", more),
			page.Class("faint", "small")))
	}
	return table
}

func nodeRow(n policy.NodeView) page.TableRow {
	var kinds, drivers, policies, says page.Node
	for _, k := range n.Kinds {
		text := k.Kind
		if k.Count != "" {
			text = k.Count + " × " + k.Kind
		}
		tone, word := standing(n, k)
		kinds.Add(page.El("p", page.Text(text+" "), page.Badge(tone, word)))
		if about := model(k); about != "" {
			kinds.Add(paragraph(about, page.Class("faint")))
		}
		driver := k.Version
		if k.UpgradeReport != (accel.UpgradeReport{}) {
			driver = strings.TrimSpace(fmt.Sprintf("%s, %s %s %s", cmp.Or(driver, "none"), k.UpgradeReport.Phase,
				k.UpgradeReport.Version,
				k.UpgradeReport.Reason))
		}
		drivers.Add(paragraph(cmp.Or(driver, "–")))
		if k.Policy != "" {
			policies.Add(paragraph(k.Policy))
		}
		if text := repairText(k); text != "" {
			says.Add(paragraph(text))
		}
	}
	if n.Ready != "True" && n.Reason != "" {
		says.Add(page.El("p", page.El("b", page.Text(n.Reason)), page.Text(": "+n.Message)))
	}
	if n.Cordoned {
		by := ""
		if n.CordonedBy != "" {
			by = " by policy " + n.CordonedBy
		}
		says.Add(paragraph("cordoned" + by))
	}
	for _, text := range n.Maintenance {
		says.Add(paragraph(text))
	}
	return row(page.El("span", page.Class("id"), page.Text(n.Name)), kinds, drivers, policies, says)
}

// repairText says what the node does about devices that need a reset; empty if there are none, or no policy limits
// that.
func repairText(k policy.KindView) string {
	r := k.RepairReport
	text := fmt.Sprintf("%d of %d %s to reset: ", r.Ill, r.Devices, k.Kind)
	switch r.Phase {
	case accel.RepairPhaseIll:
		return text + "not possible now"
	case accel.RepairPhaseWaiting:
		if k.MayRepair {
			return text + "the node may begin"
		}
		return text + "waits for the policy"
	case accel.RepairPhaseActing:
		return text + "being repaired"
	case accel.RepairPhaseUnclear:
		return k.Kind + ": what the node says of its repairs cannot be read"
	}
	return ""
}

// phaseOf returns the progress of a kind on a node: the first published state that is not reached.
func phaseOf(k policy.KindView) (page.Tone, string) {
	for _, p := range accel.PublishedStates() {
		switch k.States[p] {
		case accel.PhaseFailed:
			return page.Bad, string(p) + " failed"
		case accel.PhasePending:
			return page.Busy, string(p)
		case accel.PhaseReady, accel.PhaseUnchecked, "":
		}
	}
	if k.States[accel.DriverContainer] == accel.PhaseUnchecked {
		return page.Good, "ready, unchecked"
	}
	return page.Good, "ready"
}

// policySection shows one policy: the progress of its nodes, and what blocks the others.
func policySection(x policy.PolicyView, now time.Time) page.Node {
	n := x.Status.Nodes
	tone, head := page.Busy, page.El("h2", page.Text("Policy "+x.Name+" "))
	var conditions page.Node
	repairs := false
	for _, c := range x.Status.Conditions {
		bad := c.Type == policy.ConditionConflict && c.Status == "True" ||
			slices.Contains([]string{policy.ConditionAccepted, policy.ConditionRepair}, c.Type) && c.Status == "False"
		repair := c.Type == policy.ConditionRepair && c.Reason != "Idle"
		switch {
		case c.Type == policy.ConditionReady && c.Status == "True":
			tone = page.Good
			head.Add(page.Badge(page.Good, c.Reason), page.Text(" "))
		case c.Type == policy.ConditionReady:
			if c.Reason == "Stopped" || c.Reason == "Failed" {
				tone = page.Bad
			}
			head.Add(page.Badge(tone, c.Reason), page.Text(" "))
		}
		switch {
		case bad:
			tone = page.Bad
			head.Add(page.Badge(page.Bad, c.Type+": "+c.Reason), page.Text(" "))
		case repair:
			repairs = true
			head.Add(page.Badge(page.Busy, c.Reason), page.Text(" "))
		}
		if c.Message != "" && (bad || repair || c.Type == policy.ConditionReady || c.Type == policy.ConditionDryRun) {
			conditions.Add(page.El("p", page.Text(c.Message), page.Text(". Since "),
				page.Ago(now, c.LastTransitionTime)))
		}
	}
	if repairs && tone == page.Good {
		tone = page.Busy
	}
	head.Add(page.El("small", page.Text(strings.Join(x.Kinds, ", "))))
	s := page.El("section", page.Class(string(tone)), page.Set("id", "policy-"+x.Name), head, conditions)
	if n.Matched > 0 {
		s.Add(progress(x.Name, n))
	}
	if len(x.Status.Slots) > 0 {
		list := page.El("ul", page.Class("small"))
		for _, slot := range x.Status.Slots {
			what := "replace the driver of " + slot.Kind + " by " + cmp.Or(slot.Version, "what its sources have")
			if slot.Repair {
				what = "repair devices of " + slot.Kind
			}
			list.Add(page.El("li", page.Text(slot.Node+" may "+what+", since "), page.Ago(now, slot.Since)))
		}
		s.Add(page.El("h3", page.Text("In progress")), list)
	}
	if len(x.Status.Blocked) > 0 {
		var rows []page.TableRow
		for _, b := range x.Status.Blocked {
			rows = append(rows, row(page.Text(b.Reason), page.Text(fmt.Sprint(b.Count)), page.Text(b.Example)))
		}
		s.Add(page.El("h3", page.Text("What holds nodes up")),
			page.Table("What holds nodes up", []string{"Reason", "Nodes", "For example"}, rows...))
	}
	return s
}

// progress draws a bar of the nodes of a policy.
func progress(name string, n policy.Nodes) page.Node {
	var segments []page.Segment
	at := 0.0
	words := []string{}
	for _, x := range []struct {
		count int
		tone  page.Tone
		word  string
	}{
		{n.Ready, page.Good, "as asked"},
		{n.Upgrading, page.Busy, "upgrading"},
		{n.Waiting, page.Idle, "waiting"},
		{n.Failed, page.Bad, "failed"},
	} {
		if x.count == 0 {
			continue
		}
		to := at + float64(x.count)/float64(n.Matched)
		words = append(words, fmt.Sprintf("%d %s", x.count, x.word))
		segments = append(segments, page.Segment{From: at, To: to, Tone: x.tone, Says: words[len(words)-1]})
		at = to
	}
	return page.Row(
		page.Strip("nodes of policy "+name+": "+strings.Join(words, ", "), segments),
		page.El("p", page.Class("scale"), page.El("span", page.Text(strings.Join(words, ", "))),
			page.El("span", page.Text(page.Count(n.Matched, "node")))),
	)
}
