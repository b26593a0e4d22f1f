package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// runDir holds the locks: it is empty after a boot, as locks must be.
const runDir = "/run/acceld"

// settleTime is how long devices may take to be bound and to get their nodes after their module is live: probes run
// inside the load, udev and devtmpfs follow within milliseconds.
const settleTime = 5 * time.Second

// deviceDeadline is how long one device may take to answer a check.
const deviceDeadline = 5 * time.Second

// Options of a [Driver]. The zero value of each field is usable.
type Options struct {
	// StateDir is the persistent directory as the machine sees it; "/var/lib/acceld" when empty.
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
	// CPUWeight is a build's share of a busy processor, where everybody else has 100; it is left alone when zero.
	CPUWeight int
	// Progress is told how far the work is, by several goroutines at once when several kinds are worked on; it must be quick.
	// Nil when nobody looks.
	Progress func(accel.Progress)
	// Helper is the program and its first arguments that runs [LoadModuleMain]; this process's own program with the
	// argument "load-module" when empty.
	Helper []string
	// Kernel takes and gives up modules; the running kernel, through Helper, when nil.
	Kernel Kernel
	// Ledger makes and records the changes outside StateDir; the one in StateDir when nil.
	Ledger *ledger.Ledger
	// Now is the clock of what is written into the store; time.Now when nil.
	Now func() time.Time
	// StoreEntries is how many drivers that nothing needs are kept in the store, the youngest ones; 8 when zero, none when
	// negative. StoreMiB bounds what these take; no bound when zero.
	StoreEntries, StoreMiB int
	// Artifact says how registries are asked; its zero value is usable.
	Artifact artifact.Options
	// Elect makes this host the builder of a driver that is published, or names the host that is. Release gives the
	// office back. Nil, or an error: every host builds for itself.
	Elect func(ctx context.Context, key string) (release func(), elected bool, holder string, err error)
}

// Driver makes drivers present on one host. It is safe for concurrent use.
type Driver struct {
	h      *host.Host
	o      Options
	log    *slog.Logger
	kernel Kernel
	ledger *ledger.Ledger
	settle time.Duration // settleTime, less in tests
	// attribute tells a bus of the kernel to bind or unbind a device; a fake machine does it in tests.
	attribute func(name, text string) error
	stopAt    func(string) // see point; nil but in tests

	mu     sync.Mutex
	coming map[string]time.Time // since when a module has been seen neither live nor gone
	asked  map[string]chan error
	// awaited are the keys, by kind, that another host builds; published what became of publishing, by key.
	awaited, published map[string]string
	background         sync.WaitGroup // publishing
}

// New returns the driver manager of h and removes what an interrupted build left behind.
func New(h *host.Host, o Options) *Driver {
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
	d := &Driver{h: h, attribute: h.WriteAttribute, o: o, log: o.Log, kernel: o.Kernel, settle: settleTime, coming: map[string]time.Time{}, asked: map[string]chan error{}, awaited: map[string]string{}, published: map[string]string{}}
	if d.kernel == nil {
		d.kernel = &helperKernel{h: h, argv: o.Helper}
	}
	d.kernel = forgetful{d.kernel, d.forgetLoad}
	if d.ledger = o.Ledger; d.ledger == nil {
		var err error
		if d.ledger, err = ledger.Open(h, o.StateDir, o.Log); err != nil {
			panic(err) // a state directory that is none: configuration is validated long before
		}
	}
	d.sweep()
	d.settleAttempts()
	return d
}

// Lock takes the lock that makes an agent the only one on its host. Release gives it back; so does the end of the
// process.
func Lock(h *host.Host) (release func(), problem *accel.Problem) {
	name := path.Join(runDir, "agent.lock")
	if err := h.MkdirAll(runDir, 0o755); err != nil {
		return nil, accel.ProblemOf(err, "cannot make %q", runDir)
	}
	release, err := h.TryLock(name, lockText(h))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, accel.Problemf(accel.AlreadyRunning, "another acceld holds %q: %s", name, holderOf(h, name))
	}
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot take the agent's lock")
	}
	return release, nil
}

// driverLock is the file that is locked while drivers change, and devices are reset.
func driverLock() string { return path.Join(runDir, "driver.lock") }

// lock excludes every other acceld on the host (a DaemonSet and a unit) from loading and unloading. Kind is whose driver changes,
// empty for those of all.
func (d *Driver) lock(ctx context.Context, kind string) (release func(), problem *accel.Problem) {
	name := driverLock()
	if err := d.h.MkdirAll(runDir, 0o755); err != nil {
		return nil, accel.ProblemOf(err, "cannot make %q", runDir)
	}
	ctx, cancel := context.WithTimeout(ctx, d.o.LoadTimeout)
	defer cancel()
	release, err := d.lockFile(ctx, kind, name)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil, accel.Problemf(accel.AlreadyRunning, "another acceld is changing drivers and holds %q: %s", name, holderOf(d.h, name))
	}
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot take the driver lock")
	}
	return release, nil
}

// owner is the text of a lock file.
type owner struct {
	PID    int    `json:"pid"`
	BootID string `json:"bootID"`
	// Resets are the devices that the owner resets; see [Driver.Reset].
	Resets []string `json:"resets,omitempty"`
}

func lockText(h *host.Host, resets ...string) string {
	b, err := json.Marshal(owner{PID: os.Getpid(), BootID: bootID(h), Resets: resets})
	if err != nil {
		return ""
	}
	return string(b)
}

func holderOf(h *host.Host, name string) string {
	text, err := h.ReadString(name)
	var o owner
	if err != nil || json.Unmarshal([]byte(text), &o) != nil || o.PID == 0 {
		return "holder unknown"
	}
	comm, err := h.ReadString(fmt.Sprintf("/proc/%d/comm", o.PID))
	if err != nil {
		return fmt.Sprintf("process %d", o.PID)
	}
	return fmt.Sprintf("process %d (%s)", o.PID, comm)
}

func bootID(h *host.Host) string {
	id, err := h.ReadString("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return id
}
