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

// Options are the settings of an [Exporter].
type Options struct {
	// Machine returns the newest snapshot; it must be quick and safe for concurrent use. Required.
	Machine func() accel.Machine
	// Follow returns the newest snapshot and a channel that is closed when there is a newer one, for clients that
	// wait for it. If nil, no client can wait.
	Follow func() (accel.Machine, <-chan struct{})
	// Ready reports whether every task is ready. The text lists those that are not, one per line. Nil means ready.
	Ready func() (bool, string)
	// Live returns an error if the agent's loop is stuck. It must not depend on devices. Nil means alive.
	Live func() error
	// Holders returns who holds which device, at once and without a request. Nil means that it is not known.
	Holders func() Holdings
	// Progress returns the progress of the work in progress, at once. Nil means that it is not known.
	Progress func() []accel.Progress
	// Past returns what happened to each device, over restarts of the agent, at once. Nil means that it is not known.
	Past func() []Past
	// Hosts are the names of this host, in lower case, under which it may be asked over TCP. Its addresses and
	// "localhost" always may.
	Hosts []string
	// Pages are further pages of metrics, each at "/metrics/<its name>".
	Pages []accel.MetricPage
	// Log gets errors in rendering a page; if nil, they are discarded.
	Log *slog.Logger
	// Process adds the go_ and process_ metrics of the agent itself.
	Process bool
	// Now is the clock of the status page; nil means time.Now.
	Now func() time.Time
}

// Holdings says who holds which accelerator.
type Holdings struct {
	// By has the holders by the accelerator's ID. A shared accelerator has several, each named once.
	By map[string][]Holder
	// Told is when the kubelet last answered; zero if it has not answered yet.
	Told time.Time
	// Revision changes whenever another field changes.
	Revision uint64
}

// Holder is the container that holds an accelerator.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	// UID is the pod's UID; empty if it is not known.
	UID string `json:"uid,omitempty"`
	// Resource is the extended resource, or the claim's driver, through which the device was allocated.
	Resource string `json:"resource,omitempty"`
	// Claim is the resource claim; empty for an extended resource.
	Claim string `json:"claim,omitempty"`
}

// Exporter renders a Machine. It is safe for concurrent use.
type Exporter struct {
	o       Options
	metrics *gatherer
	pages   map[string]*gatherer // the further pages, by path
	waiting chan struct{}        // a semaphore for the requests that wait
	mu      sync.Mutex
	tally   tally
	history history
	traces  traces
}

// tally counts what a snapshot does not have: what happened since the agent started. The counter rows of the agent's
// table read it.
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
	if o.Holders == nil {
		o.Holders = func() Holdings { return Holdings{} }
	}
	e := &Exporter{
		o:       o,
		pages:   map[string]*gatherer{},
		waiting: make(chan struct{}, maxWaiting),
		traces:  traces{},
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

// Observe records that kind changed from one state to another after it had been in from for took.
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
	held := e.o.Holders()
	v := view{Machine: m, lastSeen: held.Told, devices: devices(m, held.By)}
	e.mu.Lock()
	defer e.mu.Unlock()
	v.tally = tally{
		maps.Clone(e.tally.transitions), maps.Clone(e.tally.seconds), maps.Clone(e.tally.failures),
		e.tally.revision,
	}
	v.events = slices.Clone(e.history.events)
	return v
}

// slogErrors logs the errors of the metrics handler.
type slogErrors struct{ log *slog.Logger }

func (l slogErrors) Println(v ...any) {
	l.log.Error("metrics page incomplete", "error", fmt.Sprint(v...))
}
