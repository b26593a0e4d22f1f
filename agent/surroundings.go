package agent

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
	"github.com/acceld/acceld/pace"
)

// surroundings reads what no pass of the loop may wait for. It reads the host's hardware inventory once, and its
// network functions when the agent starts, at their events and at each resync. Firmware that never answers blocks only
// this task, which then keeps its last answer.
type surroundings struct {
	host    *host.Host
	resync  time.Duration
	changed func() // called after each change of the answer
	log     *slog.Logger

	look chan struct{}

	inventory accel.Inventory // written by survey, before anything reads it

	mu      sync.Mutex
	network []accel.NetworkFunction
}

// burst is how long events are collected: binding a driver causes a dozen for each port.
const burst = time.Second

// surveyTime is how long the agent's start may wait for the inventory: twenty times what a large host needs.
const surveyTime = 2 * time.Second

// newSurroundings returns surroundings with no answers yet.
func newSurroundings(h *host.Host, resync time.Duration, changed func(), log *slog.Logger) *surroundings {
	return &surroundings{
		host: h, resync: resync, changed: changed, log: log, look: make(chan struct{}, 1),
	}
}

// survey reads the host's inventory, and its network functions for the first time. Without them, the loop's first pass
// would remove the labels and attributes that the previous agent wrote.
func (s *surroundings) survey(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	inventory, err := s.host.Inventory(ctx)
	if err != nil {
		s.log.Warn("a part of what the host is made of is not known", "error", err)
	}
	s.inventory = inventory
	pci, _ := detect.PCI(s.host)
	s.network = detect.Network(ctx, s.host, pci)
}

// run reads until ctx ends.
func (s *surroundings) run(ctx context.Context) error {
	ticker := time.NewTicker(s.resync)
	defer ticker.Stop()
	for {
		pci, _ := detect.PCI(s.host) // the loop reads this too and reports the problems
		network := detect.Network(ctx, s.host, pci)
		if ctx.Err() != nil {
			return nil
		}
		s.keep(network)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-s.look:
			if pace.Sleep(ctx, burst) != nil {
				return nil
			}
		}
	}
}

func (s *surroundings) keep(network []accel.NetworkFunction) {
	s.mu.Lock()
	same := reflect.DeepEqual(s.network, network)
	s.network = network
	s.mu.Unlock()
	if !same {
		s.changed()
	}
}

// add copies the last answers into f. The answers are never modified in place.
func (s *surroundings) add(f *accel.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Inventory, f.Network = s.inventory, s.network
}

// see triggers another reading of the network functions if an event is about one.
func (s *surroundings) see(e host.Uevent) {
	about := e.Subsystem == "net" || e.Subsystem == "infiniband" || e.Subsystem == "pci"
	if e.Action != host.UeventOverflow && (!about || !strings.HasPrefix(e.DevPath, "/devices/pci")) {
		return
	}
	select {
	case s.look <- struct{}{}:
	default: // a reading is pending already
	}
}
