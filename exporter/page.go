package exporter

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // page.html and page.css
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// page is the status page for people: one file, no script, nothing loaded from elsewhere.
type page struct {
	e      *Exporter
	tmpl   *template.Template
	policy string
}

func newPage(e *Exporter) *page {
	hash := sha256.Sum256([]byte(pageCSS))
	return &page{
		e:    e,
		tmpl: template.Must(template.New("page").Parse(pageHTML)), // a test renders it: it cannot fail in the field
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

// ServeHTTP renders the page into memory first, so that a failure is a 500 and never half a page.
func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := p.tmpl.Execute(&b, newSheet(p.e.view(), p.e.o.Now())); err != nil {
		p.e.o.Log.Error("status page cannot be rendered", "error", err)
		http.Error(w, "cannot render the page; /v1/machine has the same content", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", p.policy)
	_, _ = w.Write(b.Bytes()) // the client may have gone
}

// tone is how something stands: it picks the colour and the mark.
type tone string

const (
	good tone = "good"
	busy tone = "busy"
	bad  tone = "bad"
	idle tone = "idle"
)

// Mark tells tones apart without colour.
func (t tone) Mark() string {
	switch t {
	case good:
		return "✓"
	case busy:
		return "…"
	case bad:
		return "✕"
	}
	return "–"
}

// sheet is what the template shows.
type sheet struct {
	Style    template.CSS
	Node     string
	Tone     tone
	Verdict  string
	Version  string
	Up       string
	Taken    string
	Kinds    []card
	Idle     []string // titles of kinds that are not on the host
	Facts    []pair
	Problems []string
}

type pair struct{ Name, Value string }

// card is one kind.
type card struct {
	Kind, Title, Resource string
	Tone                  tone // of the whole card
	State                 accel.State
	StateTone             tone
	Unwell                string // how many devices are not healthy, empty when none
	Sentence              string
	Since, SinceFull      string
	Phases                []phase
	Blocked               *blocked
	Facts                 []pair
	Devices               []entry
}

type phase struct {
	Name accel.Published
	accel.Phase
	Tone tone
}

type blocked struct {
	*accel.Failure
	Doc   accel.ReasonDoc
	Since string
	Next  string
}

// entry is one row of the device table.
type entry struct {
	ID, Model, Serial, Driver, NUMA, Nodes, Holder string
	Tone                                           tone
	Health                                         accel.Health
	Since                                          string
	Readings                                       []pair
}

func newSheet(v view, now time.Time) sheet {
	s := sheet{
		Style: template.CSS(pageCSS), //nolint:gosec // embedded, nothing of the machine is in it
		Node:  v.Agent.Node, Version: v.Agent.Version,
		Up: span(now.Sub(v.Agent.Started)), Taken: v.Taken.UTC().Format(time.DateTime) + " UTC",
		Facts: machineFacts(v.Facts), Problems: v.Facts.Problems,
	}
	for _, k := range v.kinds() {
		st := v.Status[k]
		if st.State == accel.Absent && len(v.Have[k].Accelerators) == 0 && st.Blocked == nil {
			s.Idle = append(s.Idle, title(v, k))
			continue
		}
		s.Kinds = append(s.Kinds, newCard(v, k, now))
	}
	s.Tone, s.Verdict = verdict(v, s.Kinds)
	return s
}

// verdict sums the host up in one sentence.
func verdict(v view, kinds []card) (tone, string) {
	healthy, degraded, total := 0, 0, 0
	for _, d := range v.devices {
		total++
		healthy += int(truth(d.Health.State == accel.Healthy))
		degraded += int(truth(d.Health.State == accel.Degraded))
	}
	var blocked, waiting []string
	for _, c := range kinds {
		switch c.Tone {
		case bad:
			blocked = append(blocked, c.Kind)
		case busy:
			waiting = append(waiting, c.Kind)
		}
	}
	switch {
	case v.Taken.IsZero():
		return busy, "The host has not been read yet."
	case len(blocked) > 0:
		return bad, "Needs attention: " + strings.Join(blocked, ", ") + fmt.Sprintf(". %d of %s healthy.", healthy, count(total))
	case len(waiting) > 0:
		return busy, "On the way: " + strings.Join(waiting, ", ") + fmt.Sprintf(". %d of %s healthy.", healthy, count(total))
	case total == 0:
		return idle, "No accelerator on this host."
	case degraded > 0:
		return busy, fmt.Sprintf("Ready. %d of %s degraded, and usable.", degraded, count(total))
	case total == 1:
		return good, "Ready. The accelerator is healthy."
	}
	return good, fmt.Sprintf("Ready. All %d accelerators are healthy.", total)
}

func count(n int) string {
	if n == 1 {
		return "1 accelerator"
	}
	return strconv.Itoa(n) + " accelerators"
}

func newCard(v view, k string, now time.Time) card {
	st, have := v.Status[k], v.Have[k]
	c := card{
		Kind: k, Title: title(v, k), Tone: busy, State: st.State, Sentence: st.Sentence,
		Since: ago(now, st.Since), SinceFull: full(st.Since), Facts: kindFacts(v, k, now),
	}
	if def := v.Want.Kinds[k]; def != nil {
		c.Resource = def.Offered()
	}
	if st.State == accel.Ready {
		c.Tone = good
	}
	for _, p := range []accel.Published{accel.DriverContainer, accel.RuntimeEnablement, accel.DevicePlugin, accel.DeviceMonitoring, accel.FeatureDiscovery} {
		if ph, ok := st.Published[p]; ok {
			c.Phases = append(c.Phases, phase{p, ph, map[accel.Phase]tone{accel.PhaseReady: good, accel.PhasePending: busy, accel.PhaseFailed: bad}[ph]})
		}
	}
	for _, d := range v.devices {
		if d.kind == k {
			c.Devices = append(c.Devices, newEntry(v, d, now))
		}
	}
	if f := st.Blocked; f != nil {
		c.Tone = bad
		c.Blocked = &blocked{Failure: f, Doc: f.Reason.Doc(), Since: ago(now, f.Since), Next: next(now, f)}
		for i := range c.Phases {
			if c.Phases[i].Tone == busy {
				c.Phases[i].Tone = idle // nobody works on it until the block is gone
			}
		}
	}
	c.StateTone = c.Tone
	if n := len(have.Accelerators) - accel.CountUsable(have.Accelerators); n > 0 {
		c.Tone, c.Unwell = bad, strconv.Itoa(n)+" not healthy"
	}
	return c
}

func newEntry(v view, d device, now time.Time) entry {
	e := entry{
		ID: d.ID, Model: model(v, d), Serial: d.Serial, Driver: d.Bound, NUMA: numa(d.NUMANode), Health: d.Health, Tone: bad,
		Since: ago(now, d.Health.Since),
	}
	switch {
	case d.Health.State == accel.Healthy:
		e.Tone = good
	case d.Health.Usable():
		e.Tone = busy
	}
	var nodes []string
	for _, n := range d.Nodes {
		nodes = append(nodes, n.Path)
	}
	e.Nodes = strings.Join(nodes, " ")
	for _, h := range v.holders[d.ID] {
		e.Holder = strings.TrimSpace(e.Holder + " " + h.Namespace + "/" + h.Pod)
	}
	for _, r := range readings() {
		if n, ok := d.Metrics[r.name]; ok && d.Present() {
			e.Readings = append(e.Readings, pair{spoken(r.name), quantity(r.name, n)})
		}
	}
	return e
}

func kindFacts(v view, k string, now time.Time) []pair {
	have := v.Have[k]
	var facts []pair
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, pair{name, value})
		}
	}
	add("Driver", strings.TrimSpace(have.Driver.Version+" "+parenthesis(have.Driver.Source)))
	if !have.Driver.Proven.IsZero() {
		add("Proven", strings.TrimSpace(ago(now, have.Driver.Proven)+" "+parenthesis(have.Driver.Proof)))
	}
	add("CDI spec", have.Runtime.Spec)
	add("Hook", have.Runtime.Hook)
	if v.Want.Kubernetes && len(have.Accelerators) > 0 && have.Plugin.Allocatable >= 0 {
		add("Allocatable", fmt.Sprintf("%d of %d usable", have.Plugin.Allocatable, accel.CountUsable(accel.Units(have.Accelerators))))
	}
	add("Labels wait", have.Monitoring.LabelProblem)
	return facts
}

func machineFacts(f accel.Facts) []pair {
	facts := []pair{
		{"Kernel", f.Kernel.Release + " " + f.Kernel.Arch},
		{"Operating system", f.OS.Pretty},
		{"Lockdown", f.Kernel.Lockdown},
		{"Container runtime", strings.TrimSpace(f.Runtime.Name + " " + f.Runtime.Endpoint)},
		{"Kubelet", map[bool]string{true: f.Kubelet.Root, false: "none"}[f.Kubelet.Present]},
	}
	if f.Kernel.SecureBoot {
		facts = append(facts, pair{"Secure boot", "on"})
	}
	if f.Kernel.Taint != 0 {
		facts = append(facts, pair{"Kernel taint", fmt.Sprintf("%#x", f.Kernel.Taint)})
	}
	return slices.DeleteFunc(facts, func(p pair) bool { return strings.TrimSpace(p.Value) == "" })
}

func title(v view, k string) string {
	if def := v.Want.Kinds[k]; def != nil && def.Title != "" {
		return def.Title
	}
	return k
}
