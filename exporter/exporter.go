package exporter

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options of an [Exporter].
type Options struct {
	// Machine returns the newest snapshot; it must be quick and safe for concurrent use. Required.
	Machine func() accel.Machine
	// Follow returns the newest snapshot and a channel that is closed when there is a newer one, for clients that wait
	// for that. Nil means that nobody can wait.
	Follow func() (accel.Machine, <-chan struct{})
	// Ready reports whether every task is ready; the text lists those that are not, one a line. Nil means ready.
	Ready func() (bool, string)
	// Live returns an error when the agent's loop has stopped turning. It must not depend on devices. Nil means alive.
	Live func() error
	// Holders returns who holds which device, at once and without asking anybody. Nil means that nobody keeps books.
	Holders func() Holdings
	// Progress returns how far what the agent works on is, at once. Nil means that nobody can tell.
	Progress func() []accel.Progress
	// Pages are further pages of metrics, each on "/metrics/<its name>".
	Pages []accel.MetricPage
	// Log gets what goes wrong while a page is rendered; nil discards it.
	Log *slog.Logger
	// Process adds the go_ and process_ metrics of the agent itself.
	Process bool
	// Now is the clock of the status page; nil is time.Now.
	Now func() time.Time
}

// Holdings is who holds which accelerator.
type Holdings struct {
	// By is by the accelerator's ID; a shared one has several holders, each named once.
	By map[string][]Holder
	// Told is when the kubelet last said so; zero before it has.
	Told time.Time
	// Revision is another number whenever one of the others is another.
	Revision uint64
}

// Holder is the container that holds an accelerator.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	// UID is the pod's; empty where it is not known.
	UID string `json:"uid,omitempty"`
	// Resource is the extended resource, or the driver of the claim, by which the device was given out.
	Resource string `json:"resource,omitempty"`
	// Claim is the resource claim; empty for an extended resource.
	Claim string `json:"claim,omitempty"`
}

// Exporter renders a Machine. It is safe for concurrent use.
type Exporter struct {
	o       Options
	metrics *gatherer
	pages   map[string]*gatherer // further ones, by path
	waiting chan struct{}        // has a place for each request that may wait
	mu      sync.Mutex
	tally   tally
	history history
}

// tally is the little that a snapshot cannot tell: what happened since the agent started. Its readers are the counter
// rows of the agent's table.
type tally struct {
	transitions map[transition]float64
	seconds     map[lived]float64
	failures    map[failed]float64
	revision    uint64 // counts the changes
}

type transition struct {
	kind     string
	from, to accel.State
}

type lived struct {
	kind  string
	state accel.State
}

type failed struct {
	kind   string
	step   accel.Step
	reason accel.Reason
}

// New returns an Exporter.
func New(o Options) *Exporter {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Exporter{
		o:       o,
		pages:   map[string]*gatherer{},
		waiting: make(chan struct{}, maxWaiting),
		tally: tally{
			transitions: map[transition]float64{}, seconds: map[lived]float64{},
			failures: map[failed]float64{},
		},
	}
	var own *prometheus.Registry
	if o.Process {
		own = prometheus.NewPedanticRegistry()
		own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	e.metrics = newGatherer(e, rows(), own)
	for _, p := range o.Pages {
		e.pages["/metrics/"+p.Name] = newGatherer(e, pageRows(p), nil)
	}
	return e
}

// Observe records that kind went from one state to another after it had been took in from.
func (e *Exporter) Observe(kind string, from, to accel.State, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally.transitions[transition{kind, from, to}]++
	e.tally.seconds[lived{kind, from}] += took.Seconds()
	e.tally.revision++
	if from != "" {
		e.history.add(Event{At: e.o.Now(), Kind: kind, What: WhatState, From: string(from), To: string(to)})
	}
}

// ObserveFailure records that a step of kind failed.
func (e *Exporter) ObserveFailure(kind string, step accel.Step, reason accel.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally.failures[failed{kind, step, reason}]++
	e.tally.revision++
}

// view returns what one page is rendered from.
func (e *Exporter) view() view { return e.viewOf(e.o.Machine()) }

func (e *Exporter) viewOf(m accel.Machine) view {
	v := view{Machine: m}
	if e.o.Holders != nil {
		held := e.o.Holders()
		v.holders, v.told = held.By, held.Told
	}
	e.mu.Lock()
	v.tally = tally{
		maps.Clone(e.tally.transitions), maps.Clone(e.tally.seconds), maps.Clone(e.tally.failures),
		e.tally.revision,
	}
	v.events = slices.Clone(e.history.events)
	e.mu.Unlock()
	v.devices = devices(v.Machine)
	return v
}

// slogErrors passes the errors of the metrics handler on.
type slogErrors struct{ log *slog.Logger }

func (l slogErrors) Println(v ...any) {
	l.log.Error("metrics page incomplete", "error", fmt.Sprint(v...))
}
