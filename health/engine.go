package health

import (
	"log/slog"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const (
	// maxDevices and maxCodes bound how much a flooded log can make the engine store.
	maxDevices = 1024
	maxCodes   = 64
	// fresh is the maximum age of an error that counts if the agent finds it in the log on its first start since the
	// boot.
	fresh = 10 * time.Minute
	// quiet is the minimum interval between notifications about a repeated error, of which only the count has changed,
	// and between writes of its place in the log.
	quiet = time.Second
)

// Options of an [Engine].
type Options struct {
	Host *host.Host
	// File is where verdicts are kept until the next boot, such as "/run/acceld/health.json".
	File string
	// Definitions returns the definitions in force, by kind.
	Definitions func() map[string]*accel.Definition
	// Changed is called when the verdict about a device may have changed; it must not block.
	Changed func()
	// Log receives failures to read or store; nil discards them.
	Log *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Engine judges devices. It is safe for concurrent use.
type Engine struct {
	o     Options
	ready chan struct{}
	once  sync.Once

	mu       sync.Mutex
	rules    ruleBook
	memory   memory
	unread   bool                // no memory of this boot was found
	saved    uint64              // the cursor that the file has
	devices  map[string]*device  // by ID
	severity map[string]severity // by PCI function, until the kernel has tried to recover from the error
	since    time.Time           // lines about PCI Express from before this time say nothing about now
	reported time.Time           // the last call of Changed for a repeated error
	expiry   *time.Timer         // calls Changed when a finding expires
}

// device is what the engine knows about one device.
type device struct {
	faults map[string]*fault // by code
	// base is what the attributes last said; flips are the times at which the device became unhealthy.
	base  accel.Health
	flips []time.Time
	// metrics is the last reading; over holds since when each limit has been exceeded, by its index in the definition.
	metrics map[string]float64
	over    map[int]time.Time
	// correctable holds recent readings of the counter of correctable errors, oldest first.
	correctable []reading
}

// New returns an engine with the contents of its file.
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
	e := &Engine{o: o, ready: make(chan struct{}), devices: map[string]*device{}, severity: map[string]severity{}}
	e.memory, e.unread = e.load()
	if e.memory.Lines == nil { // nothing of this boot has been counted yet
		e.memory.Lines, e.since = map[string]busLines{}, e.o.Now()
	}
	e.saved = e.memory.Cursor
	e.expiry = time.AfterFunc(time.Hour, e.o.Changed)
	e.expire()
	return e
}

// expire schedules a call of Changed for when the next finding expires. The caller holds e.mu.
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

// of returns what is known about a device, or nil if there are too many devices to add another.
func (e *Engine) of(id string) *device {
	d, ok := e.devices[id]
	if !ok && len(e.devices) < maxDevices {
		d = &device{faults: map[string]*fault{}, over: map[int]time.Time{}}
		e.devices[id] = d
	}
	return d
}

// Measured stores a reading of a device's metrics.
func (e *Engine) Measured(id string, metrics map[string]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.of(id); d != nil {
		d.metrics = metrics
	}
}

// binding identifies the binding of a driver to a device: for each binding the kernel creates the driver link again,
// with a new inode number. It is 0 without a driver.
func (e *Engine) binding(id string) uint64 {
	n, err := e.o.Host.Identity(e.o.Host.Devices().Place(id).Driver)
	if err != nil {
		return 0
	}
	return n
}
