package driver

import (
	"cmp"
	"log/slog"
	"runtime"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/build"
	"github.com/acceld/acceld/driver/companion"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/firmware"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/driver/proof"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/steps"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/toolchain"
	"github.com/acceld/acceld/driver/userspace"
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
	// Kernel loads and unloads modules; the running kernel when nil.
	Kernel Kernel
	// Ledger makes and records the changes outside StateDir; the one in StateDir when nil.
	Ledger *ledger.Ledger
	// StoreEntries is how many unneeded drivers the store keeps, newest first; 8 when zero, none when negative.
	// StoreMiB bounds their total size, and apart from that the size of an unneeded builder image; no bound when zero.
	StoreEntries, StoreMiB int
	// Artifact configures access to registries; its zero value is usable.
	Artifact artifact.Options
	// Trust is the host's policy on signatures; the zero value demands none.
	Trust accel.Trust
	// Beside is the directory of the agent's own programs, in this process's file system: definitions may have one of
	// them check a device.
	Beside string
	// Ours reports whether a process belongs to acceld, so that it does not count as a user of a device; nil if none
	// does.
	Ours func(pid int) bool
	// Pods returns the pods of this node, for the definitions' own steps; nil without Kubernetes.
	Pods func() ([]accel.NodePod, error)
	// Services runs the drivers' companions; the host's systemd when nil.
	Services companion.Manager
	// Elect chooses the host that builds a driver that will be published; every host builds for itself when nil.
	Elect source.Elect
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
	operations deadline.Operations

	store    *store.Store
	images   *toolchain.Images
	attempts *store.Attempts
	sources  *source.Sources
	devices  *devices.Devices
	firmware *firmware.Firmware
	spaces   *userspace.Spaces
	steps    *steps.Steps
	prover   *proof.Prover
	// companions are the drivers' daemons.
	companions *companion.Companions
	loader     *loader
	takeover   takeover
	halves     halves
	takes      takes
	journals   journals
}

// withDefaults replaces zero values by their defaults.
func withDefaults(o Options) Options {
	o.StateDir = cmp.Or(o.StateDir, "/var/lib/acceld")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.LoadTimeout = cmp.Or(o.LoadTimeout, time.Minute)
	o.BuildTimeout = cmp.Or(o.BuildTimeout, 30*time.Minute)
	o.Jobs = cmp.Or(o.Jobs, runtime.NumCPU())
	o.StoreEntries = cmp.Or(o.StoreEntries, 8)
	if o.Progress == nil {
		o.Progress = func(accel.Progress) {}
	}
	return o
}

// New returns the driver manager of h and removes what an interrupted build left behind.
func New(h *host.Host, o Options) *Driver {
	o = withDefaults(o)
	d := &Driver{
		h: h, attribute: h.WriteAttribute, o: o, log: o.Log, ledger: o.Ledger, settle: settleTime,
		locks: lock.Locks{Host: h, Tell: o.Progress, Timeout: o.LoadTimeout}, tell: o.Progress,
		attempts: store.NewAttempts(h, o.Log, o.StateDir),
	}
	if d.ledger == nil {
		var err error
		if d.ledger, err = ledger.Open(h, o.StateDir, o.Log); err != nil {
			panic(err) // the state directory is unusable, although configuration was validated long before
		}
	}
	d.store = store.New(h, store.Options{
		StateDir: o.StateDir, Log: o.Log, Locks: d.locks, Now: time.Now, Wait: o.BuildTimeout,
		Entries: o.StoreEntries, MiB: o.StoreMiB, Trust: o.Trust, Point: d.point,
	})
	d.firmware = firmware.New(h, o.Log, d.ledger, d.store, o.StateDir)
	d.spaces = userspace.New(h, userspace.Options{
		StateDir: o.StateDir, Log: o.Log, Store: d.store, Trust: o.Trust, Now: time.Now, Point: d.point,
	})
	o.Artifact.Trust = o.Trust
	d.images = toolchain.New(h, toolchain.Options{
		Log: o.Log, Store: d.store, Tell: d.tell, StateDir: o.StateDir, Artifact: o.Artifact, Trust: o.Trust,
		Spare: o.StoreEntries > 0, MiB: o.StoreMiB,
	})
	d.sources = source.New(h, source.Parts{
		Log: o.Log, Store: d.store, Attempts: d.attempts, Firmware: d.firmware, Spaces: d.spaces, Tell: d.tell,
		Artifact: o.Artifact, Trust: o.Trust, Elect: o.Elect, Builder: build.New(h, build.Options{
			Log: o.Log, Store: d.store, Images: d.images, Tell: d.tell, Timeout: o.BuildTimeout, Jobs: o.Jobs,
			Memory: o.BuildMemory, CPUWeight: o.CPUWeight, Trust: o.Trust,
		}),
	})
	d.devices = devices.New(h, o.Log, d.ledger)
	d.steps = steps.New(h, o.Log, &d.operations, o.Pods)
	d.companions = companion.New(h, o.Services, o.Log)
	d.prover = proof.New(proof.Options{
		Host: h, Operations: &d.operations, Beside: o.Beside, Ours: func(pid int) bool {
			return o.Ours != nil && o.Ours(pid) || d.companions.Is(pid, "*")
		},
	})
	if o.Kernel == nil {
		o.Kernel = &helperKernel{h: h, argv: []string{"/proc/self/exe", "load-module"}}
	}
	d.loader = &loader{Driver: d, kernel: o.Kernel, coming: map[string]time.Time{}}
	d.takeover, d.journals, d.halves = takeover{d}, journals{d}, halves{d}
	d.store.Sweep()
	d.attempts.Settle()
	return d
}

// List returns the drivers in the store, oldest first. Its problem says if this host does not trust who signed one.
func (d *Driver) List() ([]store.Entry, error) {
	entries, err := d.store.List()
	for i, e := range entries {
		if p := d.store.Trusted(&accel.Definition{}, e.Manifest); e.Problem == "" && p != nil {
			entries[i].Problem = p.Message
		}
	}
	return entries, err
}

// Steps returns what runs the definitions' own steps.
func (d *Driver) Steps() *steps.Steps { return d.steps }

// Sources returns the sources of drivers.
func (d *Driver) Sources() *source.Sources { return d.sources }
