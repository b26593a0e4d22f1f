package agent

import (
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/history"
)

// past is what happened to the devices, as the endpoint shows it.
func (a *Agent) past() (all []exporter.Past) {
	for _, r := range a.history.Records() {
		p := exporter.Past{
			Kind: r.Kind, ID: r.ID, Model: r.Model, Address: r.Address, First: r.First, Last: r.Seen(),
			Faults: r.Count(),
		}
		for _, e := range r.Entries {
			x := exporter.PastEvent{
				At: e.At, Address: e.Address, Text: e.Text(), Times: e.Times, Until: e.Last,
				Bad: e.What == history.Fault || e.What == history.Unclean,
			}
			p.Events = append(p.Events, x)
		}
		all = append(all, p)
	}
	return all
}
