package handover

import (
	"context"
	"encoding/json"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Options of a [Keeper].
type Options struct {
	Host *host.Host
	// File is where it is written down who has which device, as a path on the host: on a file system that is empty
	// after a boot.
	File string
	Log  *slog.Logger
	// Machine returns the last snapshot.
	Machine func() accel.Machine
	// Users returns the processes that have one of a device's own nodes open or mapped, without acceld's own.
	Users func(def *accel.Definition, a accel.Accelerator) []accel.Holder
	// Clean scrubs a device that nobody has open, and lets it pass its self-test.
	Clean func(ctx context.Context, def *accel.Definition, a accel.Accelerator) *accel.Problem
	// Claims returns the UIDs of the claims that are prepared with a device. Known is false while that is not known.
	Claims func(id string) (uids []string, known bool)
	// Changed notifies the loop of news.
	Changed func()
}

// Keeper knows who has had each device since it was cleaned, and cleans devices. It is safe for concurrent use.
type Keeper struct {
	o     Options
	poked chan struct{}

	mu      sync.Mutex
	loaded  bool
	devices map[string]*device
	// news is closed and replaced when something has changed that an admission, or the watch, may wait for.
	news chan struct{}
	// ctx is that of Run, which cleaning goes on with; nil while the keeper does not run.
	ctx context.Context //nolint:containedctx // cleaning outlives the container that asked for it
	// group are the cleanings in progress.
	group guard.Group
}

// device is what the keeper knows of one device.
type device struct {
	// tenancy is nil if it is not known who had the device.
	tenancy *tenancy
	// cleaning is closed when the cleaning in progress has ended; nil if there is none.
	cleaning chan struct{}
	// problem is why the last cleaning failed, failures how many failed in a row, and retry when the next one begins.
	problem  *accel.Problem
	failures int
	retry    time.Time
}

// New returns a keeper that admits nobody until it runs.
func New(o Options) *Keeper {
	return &Keeper{o: o, devices: map[string]*device{}, news: make(chan struct{}), poked: make(chan struct{}, 1)}
}

// load reads what is written down.
func (k *Keeper) load() {
	text, err := k.o.Host.ReadFile(k.o.File)
	var known map[string]*tenancy
	if err == nil {
		known, err = decode(text)
	}
	if err != nil && k.o.Host.Exists(k.o.File) {
		k.o.Log.Warn("it is not known who had which device: all are cleaned before others get them", "file", k.o.File,
			"error", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, y := range known {
		if k.devices[id] == nil {
			k.devices[id] = &device{tenancy: y}
		}
	}
	k.loaded = true
}

// device returns the device with an ID. The keeper is locked.
func (k *Keeper) device(id string) *device {
	d := k.devices[id]
	if d == nil {
		d = &device{}
		k.devices[id] = d
	}
	return d
}

// save writes down who has which device. The keeper is locked, so that no older content is written after a newer one;
// the file is in memory.
func (k *Keeper) save() *accel.Problem {
	f := file{Schema: schema, Devices: map[string]*tenancy{}}
	for id, d := range k.devices {
		if d.tenancy != nil {
			f.Devices[id] = d.tenancy
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // texts, numbers and times always marshal
	}
	const private = 0o600
	if err := k.o.Host.MkdirAll(path.Dir(k.o.File), 0o755); err != nil {
		return accel.ProblemOf(err, "cannot write down who has which device")
	}
	if err := k.o.Host.WriteFile(k.o.File, append(text, '\n'), private); err != nil {
		return accel.ProblemOf(err, "cannot write down who has which device")
	}
	return nil
}

// tell notifies everybody who waits. The keeper is locked.
func (k *Keeper) tell() {
	close(k.news)
	k.news = make(chan struct{})
}

// Poke says that claims, or devices, may have changed. It takes no lock.
func (k *Keeper) Poke() {
	select {
	case k.poked <- struct{}{}:
	default:
	}
}

// Enrich adds to the devices of a kind who has had them, and withholds the ones that could not be cleaned. The result
// is accs.
func (k *Keeper) Enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	if def.Handover == nil {
		return accs
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range accs {
		d := k.devices[accs[i].ID]
		if d == nil {
			d = &device{}
		}
		have := d.have()
		accs[i].Handover = &have
		if d.problem != nil && accs[i].Withheld == nil {
			accs[i].Withheld = &accel.Withheld{
				By: accel.ByHandover, Reason: d.problem.Reason, Message: d.problem.Message,
			}
		}
	}
	return accs
}

// find returns a device with the definition of its kind. There is no definition while the device is not known, such as
// before an agent that has just started has read the host.
func (k *Keeper) find(id string) (*accel.Definition, accel.Accelerator) {
	m := k.o.Machine()
	for kind, have := range m.Have {
		i := slices.IndexFunc(have.Accelerators, func(a accel.Accelerator) bool { return a.ID == id })
		if def := m.Want.Kinds[kind]; def != nil && i >= 0 {
			return def, have.Accelerators[i]
		}
	}
	return nil, accel.Accelerator{}
}
