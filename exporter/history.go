package exporter

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/page"
)

// Event is something that happened to a kind or to one of its devices.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// Device is empty if the event is about the whole kind.
	Device string `json:"device,omitempty"`
	// What is the type of the event.
	What What `json:"what"`
	// From and To are states of the kind, health states of the device or phases of an upgrade.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Reason and Message say why.
	Reason  accel.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
}

// What is the type of an [Event].
type What string

// The event types.
const (
	WhatState   What = "state"   // the kind changed its state
	WhatBlocked What = "blocked" // the kind's step failed for a new reason
	WhatHealth  What = "health"  // a device came, went, or its health changed
	WhatUpgrade What = "upgrade" // an upgrade started, continued or ended
	WhatRepair  What = "repair"  // a device is reset, would be, or has been given up
	WhatSetting What = "setting" // a device is not set as configured, for a new reason
	WhatUse     What = "use"     // somebody uses a device although nobody gave it to them
	WhatSwitch  What = "switch"  // a device was given out with another driver, or has its own again
)

// maxEvents is how many events are kept, the newest ones: a device that flaps must not fill the memory. maxEvent is
// the length, in bytes, at which a message is cut: it may come from a compiler.
const (
	maxEvents = 256
	maxEvent  = 500
)

// history has what happened since the agent started. The status page and /v1/events read it.
type history struct {
	events []Event // oldest first
	last   accel.Machine
	// arrived are the kinds that have been ready, absent or blocked since the agent started. Until then, each device
	// gets its health with its driver, which is no event.
	arrived map[string]bool
}

// arrive adds the devices of a kind that are not healthy when it arrives.
func (h *history) arrive(m accel.Machine, kind string) {
	if h.arrived[kind] || !accel.Arrived(m.Status[kind], m.Taken.Sub(m.Agent.Started)) {
		return
	}
	if h.arrived == nil {
		h.arrived = map[string]bool{}
	}
	h.arrived[kind] = true
	for _, a := range m.Have[kind].Accelerators {
		for _, x := range accel.Current([]accel.Accelerator{a}) {
			follows := x.Health.State == a.Health.State && x.Health.Reason == a.Health.Reason
			if x.Health.State == accel.Healthy || x.Parent != "" && follows {
				continue
			}
			h.add(Event{
				At: m.Taken, Kind: kind, What: WhatHealth, Device: x.ID, To: string(x.Health.State),
				Reason: x.Health.Reason, Message: x.Health.Message,
			})
		}
	}
}

func (h *history) add(x Event) {
	if len(x.Message) > maxEvent {
		x.Message = strings.ToValidUTF8(x.Message[:maxEvent], "") + "…"
	}
	if len(h.events) == maxEvents {
		h.events = append(h.events[:0], h.events[1:]...)
	}
	h.events = append(h.events, x)
}

// See records what changed since the previous machine: why a kind is blocked, the health, repairs and settings of
// devices, the progress of an upgrade. Changes of state come through [Exporter.Observe], one at a time. Call See with
// every new machine, in order; it is quick.
func (e *Exporter) See(m accel.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range accel.Diff(e.history.last, m) {
		x := Event{At: m.Taken, Kind: c.Of()}
		switch c := c.(type) {
		case accel.BlockedChange:
			x.What, x.Reason, x.Message = WhatBlocked, c.Problem.Reason, c.Problem.Message
		case accel.HealthChange:
			if !e.history.arrived[c.Kind] {
				continue
			}
			x.What, x.Device = WhatHealth, c.Device
			if c.From != nil {
				x.From = string(c.From.State)
			}
			if c.To == nil {
				x.Message = "it is not remembered any more"
			} else {
				x.To, x.Reason, x.Message = string(c.To.State), c.To.Reason, c.To.Message
			}
		case accel.UpgradeChange:
			x = upgraded(x, c)
		case accel.RepairChange:
			x.What, x.Device, x.To = WhatRepair, c.Device, string(c.Repair.State)
			x.Reason, x.Message = c.Why.Reason, c.Repair.String()
		case accel.SettingChange:
			x.What, x.Device, x.To = WhatSetting, c.Device, string(c.Setting.State)
			x.Reason, x.Message = c.Setting.Reason(), c.Setting.String()
		case accel.SwitchChange:
			x.What, x.Device, x.Message = WhatSwitch, c.Device, c.String()
		case accel.UnrequestedChange:
			x.What, x.Device, x.Reason, x.Message = WhatUse, c.Device, accel.UnrequestedUse, c.Public().String()
		}
		if x.What != "" {
			e.history.add(x)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(m.Status)) {
		e.history.arrive(m, kind)
	}
	e.history.last = m
	e.traces.see(m)
}

// upgraded turns x into the event of an upgrade, unless only the reason of a failure changed.
func upgraded(x Event, c accel.UpgradeChange) Event {
	old, now := c.From.Upgrade, c.To.Upgrade
	switch {
	case now == nil:
		x.What, x.From = WhatUpgrade, string(old.Phase)
		x.Message = fmt.Sprintf("no other driver is wanted any more; %s serves", version(c.To))
	case c.Wished():
		x.What, x.To = WhatUpgrade, string(now.Phase)
		x.Message = fmt.Sprintf("from %s to %s", now.From, now.To)
	case old.Phase != now.Phase:
		x.What, x.From, x.To = WhatUpgrade, string(old.Phase), string(now.Phase)
		x.Message = fmt.Sprintf("from %s to %s", now.From, now.To)
	}
	return x
}

func version(d accel.DriverHave) string {
	if !d.Serves {
		return "none"
	}
	return accel.DriverRef{Version: d.Version, Key: d.Key}.String()
}

// events serves what happened since the agent started, oldest first.
func (e *Exporter) events(w http.ResponseWriter, _ *http.Request) {
	e.answerJSON(w, "events", append([]Event{}, e.view().events...)) // [], not null
}

// holders serves which containers hold which device.
func (e *Exporter) holders(w http.ResponseWriter, _ *http.Request) {
	held := e.o.Holders()
	if !held.Told.IsZero() {
		w.Header().Set("Last-Modified", held.Told.UTC().Format(http.TimeFormat))
	}
	all := map[string][]Holder{} // {}, not null
	maps.Copy(all, held.By)
	e.answerJSON(w, "holders", all)
}

// progress serves the work in progress.
func (e *Exporter) progress(w http.ResponseWriter, _ *http.Request) {
	all := []accel.Progress{} // [], not null
	if e.o.Progress != nil {
		all = append(all, e.o.Progress()...)
	}
	e.answerJSON(w, "progress", all)
}

// answerJSON writes v, or 500 if what cannot be encoded: JSON has no number for an infinite reading.
func (e *Exporter) answerJSON(w http.ResponseWriter, what string, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		e.o.Log.Error("answer cannot be encoded", "answer", what, "error", err)
		http.Error(w, "cannot encode the "+what, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}

// shownEvents is how many events are on the page; /v1/events has all of them.
const shownEvents = 20

// eventSection renders the last events, newest first.
func eventSection(events []Event, now time.Time) page.Node {
	if len(events) == 0 {
		return page.Node{}
	}
	events = folded(events)
	list := page.El("ol", page.Class("log"))
	for i, x := range slices.Backward(events) {
		if len(events)-i > shownEvents {
			break
		}
		when := page.Clock(x.At)
		if now.Sub(x.At) > 20*time.Hour { // the time of day would be ambiguous
			when = page.Ago(now, x.At)
		}
		tone, words := x.words()
		text := page.El("div", page.El("b", page.Text(x.Kind+prefixed(" ", x.Device))), page.Text(" "),
			page.El("span", page.Class("t-"+string(tone)), page.Text(words)))
		if x.Reason != "" {
			text.Add(page.Text(" "), page.El("b", page.Text(string(x.Reason))))
		}
		text.Add(page.Text(prefixed(" ", x.Message)))
		list.Add(page.El("li", when, text))
	}
	return page.El("section", page.Class("idle"), page.Set("id", "events"), page.El("h2", page.Text("Last events "),
		page.El("small", page.Text("since the agent started"))), list)
}

// oneWalk is how soon a change of a kind's state follows the last one on the same way.
const oneWalk = time.Minute

// folded returns events with the states that a kind only passes through as one: at a start there are six.
func folded(events []Event) []Event {
	var out []Event
	at := map[string]int{} // the last change of state of each kind, by its index in out
	for _, x := range events {
		i, ok := at[x.Kind]
		switch {
		case x.What != WhatState:
			if x.What == WhatBlocked {
				delete(at, x.Kind)
			}
			out = append(out, x)
		case ok && x.At.Sub(out[i].At) < oneWalk && out[i].To == x.From && x.From != string(accel.Ready):
			x.From = out[i].From
			out[i] = x
		default:
			at[x.Kind] = len(out)
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.At.Compare(b.At) })
	return out
}

// words returns what happened in words, and their tone.
func (x Event) words() (page.Tone, string) {
	switch {
	case x.What == WhatBlocked:
		return page.Bad, "blocked"
	case x.What == WhatRepair && x.To == string(accel.RepairGivenUp):
		return page.Bad, "repair"
	case x.What == WhatRepair:
		return page.Busy, "repair"
	case x.What == WhatSetting:
		return page.Busy, "setting"
	case x.What == WhatUse:
		return page.Bad, "used"
	case x.What == WhatSwitch:
		return page.Idle, "switched"
	case x.What == WhatUpgrade && x.To == "":
		return page.Good, "upgrade over"
	case x.What == WhatUpgrade:
		return page.Busy, "upgrade " + x.To
	case x.What == WhatHealth && x.To == string(accel.Healthy):
		return page.Good, "healthy"
	case x.What == WhatHealth && x.To == "":
		return page.Idle, "forgotten"
	case x.What == WhatHealth && x.To == string(accel.Degraded):
		return page.Busy, "degraded"
	case x.What == WhatHealth:
		return page.Bad, x.To
	case x.To == string(accel.Ready):
		return page.Good, prefixed("", x.From) + " → ready"
	}
	return page.Idle, x.From + " → " + x.To
}

// day is the longest time that a timeline shows, and shortest the shortest.
const (
	day      = 24 * time.Hour
	shortest = 10 * time.Minute
)

// timeline renders the states of a kind over the last day, or since the agent started.
func timeline(v view, k string, now time.Time) page.Node {
	length := min(max(now.Sub(v.Agent.Started), shortest), day)
	begin := now.Add(-length)
	share := func(t time.Time) float64 { return float64(t.Sub(begin)) / float64(length) }
	var segments []page.Segment
	at, state := accel.Latest(begin, v.Agent.Started), accel.State("")
	add := func(until time.Time, s accel.State, tone page.Tone) {
		if until.After(at) && s != "" {
			segments = append(segments, page.Segment{
				From: share(at), To: share(until), Tone: tone,
				Says: fmt.Sprintf("%s from %s to %s", s, page.Full(at), page.Full(until)),
			})
		}
		at = accel.Latest(at, until)
	}
	known := false
	for _, x := range v.events {
		if x.What == WhatState && x.Kind == k {
			known = true
			add(x.At, accel.State(x.From), stateTone(accel.State(x.From)))
			state = accel.State(x.To)
		}
	}
	if !known {
		state = v.Status[k].State
	}
	if f := v.Status[k].Blocked; f != nil {
		add(f.Since, state, stateTone(state))
		add(now, state, page.Bad)
	}
	add(now, state, stateTone(state))
	if len(segments) == 0 {
		return page.Node{}
	}
	return page.Row(
		page.Strip("the states of "+k+" in the last "+page.Span(length), segments),
		page.El("p", page.Class("scale"), page.Set("aria-hidden", "true"),
			page.El("span", page.Text(page.Span(length)+" ago")),
			page.El("span", page.El("i", page.Class("key", string(page.Good))), page.Text("ready "),
				page.El("i", page.Class("key", string(page.Busy))), page.Text("on the way "),
				page.El("i", page.Class("key", string(page.Bad))), page.Text("blocked")),
			page.El("span", page.Text("now"))),
	)
}

func stateTone(s accel.State) page.Tone {
	switch s {
	case accel.Ready:
		return page.Good
	case accel.Absent, "":
		return page.Idle
	case accel.DriverMissing, accel.DriverUnproven, accel.RuntimeMissing, accel.PluginMissing, accel.KubeletPending,
		accel.Unwatched:
	}
	return page.Busy
}
