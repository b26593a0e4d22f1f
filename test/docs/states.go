package docs

import (
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
)

// back is what the order of the states does not show.
const back = "A kind goes back to an earlier state as soon as that state's gate is no longer true."

// states is the page of the state table: a picture and a table.
func states() string {
	var b strings.Builder
	b.WriteString("# States\n\nGenerated from the state table of package agent/loop; do not edit.\n\n" +
		"Each kind of accelerator walks this way on its own. A state is derived from what is true now, never remembered. " +
		back + "\n\n")
	fmt.Fprintf(&b, "![The states in order, from absent to ready, with the gate between each two; the table below says the same.](%s)\n\n",
		strings.TrimPrefix(statesPicture, "docs/"))
	b.WriteString(
		"| state | means | step that leaves it | left when (validated) | published state |\n|---|---|---|---|---|\n")
	rows := loop.States()
	for _, r := range rows {
		shows := make([]string, len(r.Shows))
		for i, p := range r.Shows {
			shows[i] = "`" + string(p) + "`"
		}
		step := "none"
		if r.Step != accel.StepNone {
			step = "`" + string(r.Step) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.State, r.Means, step, r.Gate, strings.Join(shows, ", "))
	}
	b.WriteString("\nA host without a kubelet has no `plugin-missing` and no `kubelet-pending`.\n" +
		"\nA published state is `ready` when every state that shows it is passed, `failed` when the kind is blocked in one of them, `pending` otherwise. " +
		"`driver-container` is `unchecked` instead of `ready` if the definition has no check: " +
		"the devices are offered like others, and nothing has proven that they compute. The label is `acceld.dev/<published state>-<kind>`. " +
		"A definition may have [states of its own](definitions.md#states-of-your-own) after any of these: the published state is then `ready`, and the next one waits for them.\n")
	return b.String()
}

// statesPicture is where the picture of the states is.
const statesPicture = "docs/pictures/states.svg"

// drawStates draws the state table: the states from top to bottom, what each means beside it, and the gate that
// validates leaving it beside the arrow. A dashed state is one of hosts with a kubelet.
func drawStates() string {
	const left, wide, tall = 48, 170, 44
	p := &picture{title: "The states of a kind of accelerator"}
	y := 20
	var before, after int // where the way of a host without a kubelet leaves and comes back
	rows := loop.States()
	for i, r := range rows {
		class := "box"
		if r.Kubelet {
			class = "box dashed"
		}
		p.box(class, left, y, wide, tall)
		p.text("strong", left+12, y+19, string(r.State))
		if r.Step != accel.StepNone {
			p.text("small faint", left+12, y+35, "step: "+string(r.Step))
		}
		p.lines("", left+wide+16, y+19, broken(r.Means, 58))
		switch {
		case r.Kubelet && before == 0:
			before = i - 1
		case !r.Kubelet && before != 0 && after == 0:
			after = i
		}
		y += tall
		if i == len(rows)-1 {
			break
		}
		gate := broken(r.Gate, 78)
		gap := max(28, len(gate)*lineHeight+18)
		p.arrow(left+24, y, y+gap)
		p.lines("small faint", left+42, y+gap/2-(len(gate)-1)*lineHeight/2+4, gate)
		p.marks = append(p.marks, y-tall/2)
		y += gap
	}
	p.marks = append(p.marks, y-tall/2)
	p.around(left, p.marks[before], p.marks[after], "no kubelet on the host")
	p.lines("small faint", left, y+32, broken(back, 90))
	return p.svg(y + 52)
}
