package exporter

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
)

// told returns the events of e, one line each.
func lastSeen(t *testing.T, e *Exporter) []string {
	t.Helper()
	_, body := get(t, e.Handler(), "/v1/events")
	var all []Event
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, x := range all {
		out = append(out, strings.Join(strings.Fields(fmt.Sprint(x.What, " ", x.Kind, " ", x.Device, " ", x.From, ">",
			x.To, " ", x.Reason)), " "))
	}
	return out
}

// TestHistory: a change from one machine to the next is an event; what was healthy when the agent started is not.
func TestHistory(t *testing.T) {
	now := noon()
	e := New(Options{Machine: exampleMachine, Now: noon})
	at := func(change func(*accel.Have, *accel.Status)) {
		m := accel.Machine{Taken: now}
		have := accel.Have{Accelerators: []accel.Accelerator{{ID: "a", Health: accel.Health{State: accel.Healthy}}}}
		status := accel.Status{State: accel.Ready}
		change(&have, &status)
		m.Have, m.Status = map[string]accel.Have{"k": have}, map[string]accel.Status{"k": status}
		e.See(m)
		now = now.Add(time.Second)
	}
	well := func(*accel.Have, *accel.Status) {}
	ill := func(h *accel.Have, _ *accel.Status) {
		h.Accelerators[0].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceFault}
	}
	blocked := func(r accel.Reason) func(*accel.Have, *accel.Status) {
		return func(_ *accel.Have, s *accel.Status) { s.Blocked = &accel.Failure{Problem: accel.Problem{Reason: r}} }
	}
	set := func(s accel.SettingState) func(*accel.Have, *accel.Status) {
		return func(h *accel.Have, _ *accel.Status) {
			h.Accelerators[0].Settings = []accel.SettingHave{{Name: "limit", State: s}}
		}
	}
	repair := func(s accel.RepairState) func(*accel.Have, *accel.Status) {
		return func(h *accel.Have, _ *accel.Status) {
			h.Accelerators[0].Repair = &accel.RepairHave{State: s}
		}
	}
	upgrade := func(p accel.UpgradePhase) func(*accel.Have, *accel.Status) {
		return func(h *accel.Have, _ *accel.Status) { h.Driver.Upgrade = &accel.Upgrade{Wish: "2", Phase: p} }
	}
	since := now.Add(4500 * time.Millisecond)
	used := func(h *accel.Have, _ *accel.Status) {
		h.Accelerators[0].Unrequested = &accel.UnrequestedHave{Count: 1, Users: []accel.UnrequestedUser{{Since: since}}}
	}
	e.Observe("k", "", accel.Absent, 0)
	e.Observe("k", accel.Absent, accel.Ready, time.Second)
	for _, change := range []func(*accel.Have, *accel.Status){
		well, well, ill, ill, well, used, used, well,
		repair(accel.RepairWaits), repair(accel.RepairRuns), repair(accel.RepairRuns), repair(accel.RepairGivenUp),
		well,
		set(accel.SettingApplied), set(accel.SettingGivenUp), set(accel.SettingGivenUp), well,
		blocked(accel.NoSpace), blocked(accel.NoSpace), blocked(accel.ReadOnly), well,
		upgrade(accel.UpgradePending), upgrade(accel.UpgradePending), upgrade(accel.UpgradeReplacing), well,
		func(h *accel.Have, _ *accel.Status) {
			h.Accelerators = append(h.Accelerators, accel.Accelerator{ID: "b"})
		},
		func(h *accel.Have, _ *accel.Status) { h.Accelerators = nil },
	} {
		at(change)
	}
	want := []string{
		"state k absent>ready",
		"health k a healthy>unhealthy DeviceFault", "health k a unhealthy>healthy",
		"use k a > UnrequestedUse", "repair k a >runs", "repair k a >given-up", "setting k a >contested SettingContested",
		"blocked k > NoSpace", "blocked k > ReadOnly",
		"upgrade k >pending", "upgrade k pending>replacing", "upgrade k replacing>",
		"health k b >", "health k a healthy>", "health k b >",
	}
	if diff := cmp.Diff(want, lastSeen(t, e)); diff != "" {
		t.Error(diff)
	}
}

// TestHistoryBounded: neither a flapping device nor a compiler's long message fills the memory.
func TestHistoryBounded(t *testing.T) {
	e := New(Options{Machine: exampleMachine, Now: noon})
	for i := range 3 * maxEvents {
		h := accel.Health{State: accel.Healthy}
		if i%2 == 0 {
			h = accel.Health{State: accel.Unhealthy, Message: "x" + strings.Repeat("ä", 5*maxEvent)}
		}
		e.See(accel.Machine{
			Taken: noon().Add(time.Duration(i) * time.Second), Status: map[string]accel.Status{"k": {}},
			Have: map[string]accel.Have{"k": {Accelerators: []accel.Accelerator{{ID: "a", Health: h}}}},
		})
	}
	all := e.view().events
	if !utf8.ValidString(all[0].Message) || !utf8.ValidString(all[1].Message) {
		t.Errorf("a character was cut: %q", all[0].Message)
	}
	if len(all) != maxEvents || len(all[0].Message) > maxEvent+len("…") && len(all[1].Message) > maxEvent+len("…") {
		t.Errorf("%d events, the first with %d bytes", len(all), len(all[0].Message))
	}
	if last := all[len(all)-1]; !last.At.Equal(noon().Add(time.Duration(3*maxEvents-1) * time.Second)) {
		t.Errorf("the newest is of %v", last.At)
	}
}

// TestProgressServed: the work in progress, and an empty list if it is not known.
func TestProgressServed(t *testing.T) {
	want := []accel.Progress{{
		Kind: "qemu-edu", Stage: accel.StagePull, What: "registry.example/edu:1", Done: 5,
		Total: 10, Since: noon(),
	}}
	_, body := get(t, New(Options{Machine: exampleMachine, Progress: func() []accel.Progress {
		return want
	}}).Handler(), "/v1/progress")
	var got []accel.Progress
	if err := json.Unmarshal([]byte(body), &got); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%s, %v\n%s", body, err, cmp.Diff(want, got))
	}
	if _, body := get(t, New(Options{Machine: exampleMachine}).Handler(),
		"/v1/progress"); strings.TrimSpace(body) != "[]" {
		t.Errorf("%q", body)
	}
}

// TestPastServed: what happened to a device, newest first for people, and an empty list if it is not known.
func TestPastServed(t *testing.T) {
	want := []Past{{
		Kind: "qemu-edu", ID: "<EDU>", Model: "edu", Address: "0000:02:00.0", First: noon(), Last: noon(), Faults: 3,
		Events: []PastEvent{
			{At: noon(), Address: "0000:01:00.0", Text: "seen for the first time"},
			{At: noon(), Address: "0000:02:00.0", Text: "unhealthy DeviceFault", Bad: true, Times: 3, Until: noon()},
		},
	}}
	h := New(Options{Machine: exampleMachine, Past: func() []Past { return want }, Now: noon}).Handler()
	_, body := get(t, h, "/v1/history")
	var got []Past
	if err := json.Unmarshal([]byte(body), &got); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%s, %v\n%s", body, err, cmp.Diff(want, got))
	}
	_, body = get(t, h, "/history")
	newest, oldest := strings.Index(body, "<b>unhealthy DeviceFault</b>"), strings.Index(body, "seen for the first time")
	if newest < 0 || oldest < newest || !strings.Contains(body, "&lt;EDU&gt;") || !strings.Contains(body, "3 faults on record") ||
		!strings.Contains(body, "3, last 2026") {
		t.Error(body)
	}
	h = New(Options{Machine: exampleMachine}).Handler()
	if _, body := get(t, h, "/v1/history"); strings.TrimSpace(body) != "[]" {
		t.Errorf("%q", body)
	}
	if _, body := get(t, h, "/history"); !strings.Contains(body, "No device is on record yet.") {
		t.Error(body)
	}
}

// TestHoldersServed: who holds which device, and an empty answer if that is not known.
func TestHoldersServed(t *testing.T) {
	_, body := get(t, example().Handler(), "/v1/holders")
	var all map[string][]Holder
	if err := json.Unmarshal([]byte(body), &all); err != nil || all["0000:01:00.0"][0].Pod != "train-0" {
		t.Errorf("%s, %v", body, err)
	}
	if _, body := get(t, New(Options{Machine: exampleMachine}).Handler(),
		"/v1/holders"); strings.TrimSpace(body) != "{}" {
		t.Errorf("%q", body)
	}
	for said, e := range map[bool]*Exporter{true: example(), false: New(Options{Machine: exampleMachine})} {
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/v1/holders", nil))
		if got := w.Header().Get("Last-Modified") != ""; got != said {
			t.Errorf("whether the kubelet has said so is %t, want %t", got, said)
		}
	}
}

// TestEventsOfAStart: what devices are without their driver is no event of a start; what is not well when the kind has
// arrived is. On the page, the states that a kind only passes through are one event.
func TestEventsOfAStart(t *testing.T) {
	now := noon()
	e := New(Options{Machine: exampleMachine, Now: func() time.Time { return now }})
	see := func(state accel.State, healths ...accel.HealthState) {
		m := accel.Machine{
			Taken: now, Agent: accel.Agent{Started: noon()}, Status: map[string]accel.Status{"k": {State: state}},
			Have: map[string]accel.Have{},
		}
		var have accel.Have
		for i, h := range healths {
			a := accel.Accelerator{ID: fmt.Sprint(i), Health: accel.Health{State: h}}
			have.Accelerators = append(have.Accelerators, a)
		}
		m.Have["k"] = have
		e.See(m)
		now = now.Add(time.Second)
	}
	see(accel.DriverMissing, accel.Unhealthy, accel.Unhealthy)
	e.Observe("k", accel.Absent, accel.DriverMissing, time.Second)
	e.Observe("k", accel.DriverMissing, accel.RuntimeMissing, time.Second)
	e.Observe("k", accel.RuntimeMissing, accel.Ready, time.Second)
	see(accel.Ready, accel.Healthy, accel.Unhealthy)
	see(accel.Ready, accel.Healthy, accel.Healthy)
	want := []string{
		"state k absent>driver-missing", "state k driver-missing>runtime-missing", "state k runtime-missing>ready",
		"health k 1 >unhealthy", "health k 1 unhealthy>healthy",
	}
	if diff := cmp.Diff(want, lastSeen(t, e)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var shown []string
	for _, x := range folded(e.view().events) {
		shown = append(shown, fmt.Sprint(x.What, " ", x.From, ">", x.To))
	}
	if got := strings.Join(shown, ", "); got != "state absent>ready, health >unhealthy, health unhealthy>healthy" {
		t.Errorf("on the page: %s", got)
	}
}
