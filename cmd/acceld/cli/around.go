package cli

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host"
)

// around is the task that reads what no pass of the loop may wait for: what the host is made of, once, and its network
// functions, at their events and at each resync. Firmware that never answers holds it alone; what it knew then stays.
type around struct {
	host    *host.Host
	resync  time.Duration
	changed func() // called after each change of the answer
	log     *slog.Logger

	look  chan struct{}
	ready chan struct{}

	inventory accel.Inventory // survey's, before anybody asks

	mu      sync.Mutex
	network []accel.NetworkFunction
}

// burst is how long events are gathered: a driver that is bound makes a dozen for each port.
const burst = time.Second

// surveyTime is how long the agent's start may wait for what the host is made of: twenty times what a large one takes.
const surveyTime = 2 * time.Second

// wire makes a a task. Before that it knows nothing and wants no events.
func (a *around) wire(h *host.Host, resync time.Duration, changed func(), log *slog.Logger) {
	a.host, a.resync, a.changed, a.log = h, resync, changed, log
	a.look, a.ready = make(chan struct{}, 1), make(chan struct{})
}

// survey reads what the host is made of. Without it, the loop's first pass would take back the labels that the agent before
// this one wrote.
func (a *around) survey(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	inventory, err := a.host.Inventory(ctx)
	if err != nil {
		a.log.Warn("a part of what the host is made of is not known", "error", err)
	}
	a.inventory = inventory
}

// Ready is closed at once: nothing waits for this.
func (a *around) Ready() <-chan struct{} { return a.ready }

func (a *around) String() string { return "surroundings" }

// Run reads until ctx ends.
func (a *around) Run(ctx context.Context) error {
	close(a.ready)
	ticker := time.NewTicker(a.resync)
	defer ticker.Stop()
	for {
		pci, _ := detect.PCI(a.host) // the loop's own reading tells its problems
		network := detect.Network(ctx, a.host, pci)
		if ctx.Err() != nil {
			return nil
		}
		a.keep(network)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.look:
			timer := time.NewTimer(burst)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

func (a *around) keep(network []accel.NetworkFunction) {
	a.mu.Lock()
	same := reflect.DeepEqual(a.network, network)
	a.network = network
	a.mu.Unlock()
	if !same {
		a.changed()
	}
}

// add puts the last answers into f. They are never changed.
func (a *around) add(f *accel.Facts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f.Inventory, f.Network = a.inventory, a.network
}

// see has the network functions read again when an event is about one.
func (a *around) see(e host.Uevent) {
	about := e.Subsystem == "net" || e.Subsystem == "infiniband" || e.Subsystem == "pci"
	if e.Action != host.UeventOverflow && (!about || !strings.HasPrefix(e.DevPath, "/devices/pci")) {
		return
	}
	select {
	case a.look <- struct{}{}:
	default: // it is to look already
	}
}
