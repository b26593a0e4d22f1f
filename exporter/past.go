package exporter

import (
	"net/http"
	"strconv"
	"time"

	"github.com/acceld/acceld/page"
)

// Past is what happened to one device, over restarts of the agent, reboots and slots.
type Past struct {
	Kind string `json:"kind"`
	// ID is its serial number; its UUID, or its address, if it has none.
	ID    string `json:"id"`
	Model string `json:"model,omitempty"`
	// Address is where it was last.
	Address string    `json:"address"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	// Faults is how many faults are on record.
	Faults int `json:"faults"`
	// Events are what happened, oldest first.
	Events []PastEvent `json:"events"`
}

// PastEvent is something that happened to a device.
type PastEvent struct {
	At      time.Time `json:"at"`
	Address string    `json:"address"`
	Text    string    `json:"text"`
	// Bad means that something was wrong with the device.
	Bad bool `json:"bad,omitempty"`
	// Times is how often the same happened in a row, and Until is the last time; both are zero if it happened once.
	Times int       `json:"times,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// pasts returns what is known, never nil.
func (e *Exporter) pasts() []Past {
	if e.o.Past == nil {
		return []Past{}
	}
	return append([]Past{}, e.o.Past()...)
}

// past serves what happened to the devices as JSON.
func (e *Exporter) past(w http.ResponseWriter, _ *http.Request) {
	e.answerJSON(w, "history", e.pasts())
}

// pastPage serves the same for people.
func (e *Exporter) pastPage(w http.ResponseWriter, _ *http.Request) {
	node := e.o.Machine().Agent.Node
	page.Write(w, http.StatusOK, pastDocument(node, e.pasts(), e.o.Now()))
}

// pastDocument renders the page.
func pastDocument(node string, all []Past, now time.Time) page.Document {
	d := page.Document{Title: "devices of " + node + " – acceld", Tone: page.Idle, Now: now}
	d.Header = page.Row(page.El("h1", page.Text("Devices of "+node)),
		page.El("p", page.Class("meta"), page.Text("What happened to them, by serial number: over restarts, reboots and slots.")))
	for _, p := range all {
		var rows []page.TableRow
		for i := len(p.Events) - 1; i >= 0; i-- {
			rows = append(rows, pastRow(p.Events[i]))
		}
		d.Main.Add(page.El("section",
			page.El("h2", page.Text(p.ID)),
			page.El("p", page.Class("meta"), page.Text(p.Kind+prefixed(", ", p.Model)+", at "+p.Address+", last seen "),
				page.Ago(now, p.Last), page.Text(", "+page.Count(p.Faults, "fault")+" on record")),
			page.Table("What happened to "+p.ID, []string{"When (UTC)", "What", "Times", "Where"}, rows...)))
	}
	if len(all) == 0 {
		d.Main.Add(page.El("p", page.Text("No device is on record yet.")))
	}
	d.Footer = page.Row(page.Link("/", "this host"), page.Link("/v1/history", "everything as JSON"))
	return d
}

// pastRow renders an event.
func pastRow(x PastEvent) page.TableRow {
	const minute = "2006-01-02 15:04"
	what := page.Text(x.Text)
	if x.Bad {
		what = page.El("b", what)
	}
	times := ""
	if x.Times > 1 {
		times = strconv.Itoa(x.Times) + ", last " + x.Until.UTC().Format(minute)
	}
	return page.TableRow{Cells: []page.Node{
		page.El("span", page.Class("nw"), page.Text(x.At.UTC().Format(minute))), what, page.Text(times),
		page.El("span", page.Class("mono"), page.Text(x.Address)),
	}}
}
