package health

import (
	"log/slog"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const (
	// maxDevices and maxCodes bound what a log that somebody floods can make the engine keep.
	maxDevices = 1024
	maxCodes   = 64
	// fresh is how old an error may be that an agent finds in the log when it starts for the first time since the boot.
	fresh = 10 * time.Minute
	// quiet is how seldom a repeated error is news: only its count has changed.
	quiet = time.Second
)

// Options of an [Engine].
type Options struct {
	Host *host.Host
	// File is where verdicts are kept until the next boot, such as "/run/acceld/health.json".
	File string
	// Definitions returns those that are in force, by kind.
	Definitions func() map[string]*accel.Definition
	// Changed is called when a device may be judged otherwise than before; it must not block.
	Changed func()
	// Log gets what cannot be read or kept; nil discards it.
	Log *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Engine judges devices. It is safe for concurrent use.
type Engine struct {
	o     Options
	ready chan struct{}
	once  sync.Once

	mu      sync.Mutex
	rules   ruleBook
	memory  memory
	unread  bool               // there was no memory of this boot
	devices map[string]*device // by ID
	told    time.Time          // when Changed was called last for a repeated error
	expiry  *time.Timer        // calls Changed when a finding counts no more
}

// device is what the engine knows about one device.
type device struct {
	faults map[string]*fault // by code
	// base is what the attributes said last; flips are the times at which it became unhealthy.
	base  accel.Health
	flips []time.Time
	// metrics are the last reading; over is since when a limit has been exceeded, by its place in the definition.
	metrics map[string]float64
	over    map[int]time.Time
	// correctable are recent readings of the counter of correctable errors, oldest first.
	correctable []reading
}

// New returns an engine that knows what its file says.
func New(o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	e := &Engine{o: o, ready: make(chan struct{}), devices: map[string]*device{}}
	e.memory, e.unread = e.load()
	e.expiry = time.AfterFunc(time.Hour, e.o.Changed)
	e.expire()
	return e
}

// expire makes Changed be called when the next finding counts no more. e.mu is held.
func (e *Engine) expire() {
	now := e.o.Now()
	var next time.Time
	for _, f := range e.memory.Findings {
		if f.Until.After(now) && (next.IsZero() || f.Until.Before(next)) {
			next = f.Until
		}
	}
	if next.IsZero() {
		e.expiry.Stop()
		return
	}
	e.expiry.Reset(next.Sub(now))
}

// of returns what is known about a device, nil when there are too many to begin another.
func (e *Engine) of(id string) *device {
	d, ok := e.devices[id]
	if !ok && len(e.devices) < maxDevices {
		d = &device{faults: map[string]*fault{}, over: map[int]time.Time{}}
		e.devices[id] = d
	}
	return d
}

// Measured takes in a reading of a device's metrics.
func (e *Engine) Measured(id string, metrics map[string]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.of(id); d != nil {
		d.metrics = metrics
	}
}

// binding identifies the binding of a driver to a device: the kernel makes the link again, with a number of its own,
// each time. It is 0 without a driver.
func (e *Engine) binding(id string) uint64 {
	n, err := e.o.Host.Identity("/sys/bus/pci/devices/" + id + "/driver")
	if err != nil {
		return 0
	}
	return n
}
