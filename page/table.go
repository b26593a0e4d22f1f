package page

import "strconv"

// TableRow is a row of a table.
type TableRow struct {
	// ID is where a link to the row leads; may be empty.
	ID string
	// Class is a CSS class; may be empty.
	Class string
	// Cells are the cells; the first one names the subject of the row.
	Cells []Node
	// Below spans the whole width under the cells; may be empty.
	Below Node
}

// Table is a table that becomes a list of blocks on a narrow screen. Its roles are explicit, because browsers drop
// them when a table is not displayed as one. The caption is for screen readers.
func Table(caption string, heads []string, rows ...TableRow) Node {
	head := El("tr", Set("role", "row"))
	for _, h := range heads {
		head.Add(El("th", Set("scope", "col"), Set("role", "columnheader"), Text(h)))
	}
	body := El("tbody", Set("role", "rowgroup"))
	for _, r := range rows {
		tr := El("tr", Set("role", "row"), Class(r.Class), Anchor(r.ID))
		for i, c := range r.Cells {
			switch {
			case i == 0:
				tr.Add(El("th", Set("scope", "row"), Set("role", "rowheader"), c))
			case c.empty():
				tr.Add(El("td", Set("role", "cell"), Class("none"), Text("–")))
			default:
				tr.Add(El("td", Set("role", "cell"), Set("data-name", heads[i]), c))
			}
		}
		body.Add(tr)
		if !r.Below.empty() {
			body.Add(El("tr", Set("role", "row"), Class("below"),
				El("td", Set("role", "cell"), Set("colspan", strconv.Itoa(len(heads))), r.Below)))
		}
	}
	return El("table", Set("role", "table"), El("caption", Text(caption)), El("thead", Set("role", "rowgroup"), head),
		body)
}

// Segment is a part of a [Strip].
type Segment struct {
	// From and To are shares of the strip, from 0 to 1.
	From, To float64
	Tone     Tone
	// Says is the tooltip, which screen readers also read.
	Says string
}

// Strip is a bar of segments, such as the states of the last day. The label says what it shows.
func Strip(label string, segments []Segment) Node {
	svg := El("svg", Class("strip"), Set("viewBox", "0 0 1000 14"), Set("preserveAspectRatio", "none"),
		Set("role", "img"), Set("aria-label", label))
	for _, s := range segments {
		from, to := max(s.From, 0)*1000, min(s.To, 1)*1000
		svg.Add(El(
			"rect", Class(string(s.Tone)), Set("x", number(from)), Set("y", "0"), Set("height", "14"),
			Set("width", number(max(to-from, 1))),
			El("title", Text(s.Says)),
		))
	}
	return svg
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
