package fleet

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/page"
)

// standing says how a kind is on a node, as far as it is known: what a node that is down last said is out of date, and
// the phases say nothing about devices that are not well.
func standing(n policy.NodeView, k policy.KindView) (page.Tone, string) {
	tone, word := phaseOf(k)
	switch {
	case !n.Up:
		return page.Idle, "unknown"
	case tone == page.Good && n.Ready == "False" && strings.Contains(n.Message, k.Kind+" "):
		return page.Bad, "needs attention"
	case tone == page.Good && k.UpgradeReport.Acts():
		return page.Busy, "upgrading"
	}
	return tone, word
}

// devicesTally counts the devices of the cluster, each once.
type devicesTally struct {
	offered, withheld, sick, waiting, unknown, all int
}

// count counts the devices of nodes, as their labels say. Those of a node that is down are unknown: what it last said
// is out of date. Those whose driver does not serve wait for it.
func count(nodes []policy.NodeView) devicesTally {
	var t devicesTally
	for _, n := range nodes {
		for _, k := range n.Kinds {
			total := k.Devices()
			t.all += total
			sick := min(k.Sick, total)
			withheld := min(k.Withheld, total-sick)
			switch {
			case !n.Up:
				t.unknown += total
			case !k.States[accel.DriverContainer].Reached() || !k.States[accel.RuntimeEnablement].Reached():
				t.sick += sick
				t.waiting += total - sick
			default:
				t.sick += sick
				t.withheld += withheld
				t.offered += total - sick - withheld
			}
		}
	}
	return t
}

// totals shows the devices of the cluster; nothing without one.
func totals(nodes []policy.NodeView) page.Node {
	t := count(nodes)
	if t.all == 0 {
		return page.Node{}
	}
	item := func(tone page.Tone, n int, word string) page.Node {
		if n == 0 {
			tone = page.Idle
		}
		return page.TallyItem(tone, fmt.Sprint(n), word)
	}
	return page.El(
		"section", page.Class("idle"), page.Set("id", "totals"),
		page.El("h2", page.Text("Devices "), page.El("small", page.Text("as the nodes report them"))),
		page.Tally(
			item(page.Good, t.offered, "offered, used or free"), item(page.Busy, t.withheld, "held back"),
			item(page.Bad, t.sick, "sick"), item(page.Busy, t.waiting, "without their driver"),
			item(page.Idle, t.unknown, "unknown, node is down"), item(page.Idle, t.all, "in all"),
		),
		paragraph("What they do now is on the page of each node, in acceld top, and in the metrics.",
			page.Class("faint", "small")),
	)
}

// model says what the devices of a kind on a node are; empty if it is not known.
func model(k policy.KindView) string {
	about := strings.ReplaceAll(k.Product, "_", " ")
	if mib, err := strconv.Atoi(k.Memory); err == nil && mib > 0 {
		about = strings.TrimPrefix(about+fmt.Sprintf(", %d GiB each", (mib+512)>>10), ", ")
	}
	var bad []string
	if k.Sick > 0 {
		bad = append(bad, fmt.Sprintf("%d sick", k.Sick))
	}
	if k.Withheld > 0 {
		bad = append(bad, fmt.Sprintf("%d held back", k.Withheld))
	}
	if len(bad) > 0 {
		about = strings.TrimPrefix(about+", "+strings.Join(bad, ", "), ", ")
	}
	return about
}
