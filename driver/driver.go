package driver

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/build"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/firmware"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/steps"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// settleTime is how long devices may take to be bound and to get their nodes once their module is live: probes run
// inside the load, and udev and devtmpfs follow within milliseconds.
const settleTime = 5 * time.Second

// Options of a [Driver]. The zero value of each field is usable.
type Options struct {
	// StateDir is the persistent directory, as a path on the host; "/var/lib/acceld" when empty.
	StateDir string
	Log      *slog.Logger
	// LoadTimeout bounds the initialisation of one module; 60 s when zero.
	LoadTimeout time.Duration
	// BuildTimeout bounds one build; 30 min when zero.
	BuildTimeout time.Duration
	// Jobs is make's -j; the number of processors when zero.
	Jobs int
	// BuildMemory is what one build may use, in bytes; no cap when zero.
	BuildMemory int64
	// CPUWeight is a build's CPU weight, relative to the default of 100. Zero leaves the weight unchanged.
	CPUWeight int
	// Progress receives progress reports. Several goroutines call it at once when several kinds are in progress, and
	// it must return quickly. Nil discards the reports.
	Progress func(accel.Progress)
	// Helper is the program, with its first arguments, that runs [LoadModuleMain]. When empty, it is this process's
	// own program with the argument "load-module".
	Helper []string
	// Kernel loads and unloads modules; the running kernel, through Helper, when nil.
	Kernel Kernel
	// Ledger makes and records the changes outside StateDir; the one in StateDir when nil.
	Ledger *ledger.Ledger
	// Now is the clock for timestamps in the store; time.Now when nil.
	Now func() time.Time
	// StoreEntries is how many unneeded drivers the store keeps, newest first; 8 when zero, none when negative.
	// StoreMiB bounds their total size; no bound when zero.
	StoreEntries, StoreMiB int
	// Artifact configures access to registries; its zero value is usable.
	Artifact artifact.Options
	// Elect makes this host the builder of a driver that will be published, or names the host that is. Release gives
	// up the lease. If Elect is nil or returns an error, every host builds for itself.
	Elect func(ctx context.Context, key string) (release func(), elected bool, holder string, err error)
}

// Driver makes drivers present on one host. It is safe for concurrent use.
type Driver struct {
	h      *host.Host
	o      Options
	log    *slog.Logger
	ledger *ledger.Ledger
	locks  lock.Locks
	tell   progress.Teller
	settle time.Duration // settleTime, less in tests
	// attribute writes to an attribute of a kernel bus to bind or unbind a device; tests substitute a fake machine.
	attribute func(name, text string) error
	stopAt    func(string) // see point; nil except in tests
	// operations tracks operations on devices, which may hang.
	operations *deadline.Operations

	store    *store.Store
	attempts *store.Attempts
	sources  *source.Sources
	devices  *devices.Devices
	firmware *firmware.Firmware
	steps    *steps.Steps
	loader   *loader
	takeover *takeover
	journals *journals
}

// withDefaults replaces zero values by their defaults.
func withDefaults(o Options) Options {
	if o.StateDir == "" {
		o.StateDir = "/var/lib/acceld"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LoadTimeout == 0 {
		o.LoadTimeout = time.Minute
	}
	if o.BuildTimeout == 0 {
		o.BuildTimeout = 30 * time.Minute
	}
	if o.Jobs <= 0 {
		o.Jobs = runtime.NumCPU()
	}
	if o.StoreEntries == 0 {
		o.StoreEntries = 8
	}
	if o.Progress == nil {
		o.Progress = func(accel.Progress) {}
	}
	if len(o.Helper) == 0 {
		o.Helper = []string{"/proc/self/exe", "load-module"}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// New returns the driver manager of h and removes what an interrupted build left behind.
func New(h *host.Host, o Options) *Driver {
	o = withDefaults(o)
	d := &Driver{
		h: h, attribute: h.WriteAttribute, o: o, log: o.Log, ledger: o.Ledger, settle: settleTime,
		locks: lock.Locks{Host: h, Tell: o.Progress, Timeout: o.LoadTimeout}, tell: o.Progress,
		attempts: store.NewAttempts(h, o.Log, o.StateDir), operations: &deadline.Operations{},
	}
	if d.ledger == nil {
		var err error
		if d.ledger, err = ledger.Open(h, o.StateDir, o.Log); err != nil {
			panic(err) // the state directory is unusable, although configuration was validated long before
		}
	}
	d.store = store.New(h, store.Options{
		StateDir: o.StateDir, Log: o.Log, Locks: d.locks, Now: o.Now, Wait: o.BuildTimeout, Entries: o.StoreEntries,
		MiB: o.StoreMiB, Point: d.point,
	})
	d.firmware = firmware.New(h, o.Log, d.ledger, d.store, o.StateDir)
	d.sources = source.New(h, source.Parts{
		Log: o.Log, Store: d.store, Attempts: d.attempts, Firmware: d.firmware, Tell: d.tell, Artifact: o.Artifact,
		Now:   o.Now,
		Elect: o.Elect, Builder: build.New(h, build.Options{
			StateDir: o.StateDir, Log: o.Log, Store: d.store, Tell: d.tell, Now: o.Now, Timeout: o.BuildTimeout,
			Jobs:   o.Jobs,
			Memory: o.BuildMemory, CPUWeight: o.CPUWeight,
		}),
	})
	d.devices = devices.New(h, o.Log, d.ledger)
	d.steps = steps.New(h, o.Log, o.Now, d.operations)
	d.loader = &loader{
		h: h, log: o.Log, ledger: d.ledger, store: d.store, attempts: d.attempts, devices: d.devices, tell: d.tell,
		now:     o.Now,
		timeout: o.LoadTimeout, coming: map[string]time.Time{},
	}
	if o.Kernel == nil {
		o.Kernel = &helperKernel{h: h, argv: o.Helper}
	}
	d.loader.kernel = forgetful{o.Kernel, d.loader.forgetLoad}
	d.takeover = &takeover{
		h: h, log: o.Log, ledger: d.ledger, devices: d.devices, locks: d.locks, operations: d.operations,
		point:     d.point,
		attribute: func(name, text string) error { return d.attribute(name, text) },
	}
	d.journals = &journals{h: h, log: o.Log, stateDir: o.StateDir, point: d.point}
	d.store.Sweep()
	d.attempts.Settle()
	return d
}

// List returns the drivers in the store, oldest first.
func (d *Driver) List() ([]store.Entry, error) { return d.store.List() }

// RunSteps runs the definition's own steps for one published state at one moment, in order, until one fails.
// StepFailed then names the step, the cause, and the end of its output. Without such steps it does nothing.
func (d *Driver) RunSteps(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	state accel.Published, moment accel.Moment,
) *accel.Problem {
	return d.steps.Run(ctx, def, facts, accs, state, moment)
}

// Sources returns the sources of drivers.
func (d *Driver) Sources() *source.Sources { return d.sources }
