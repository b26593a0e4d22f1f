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

	surveyed  chan struct{}   // closed when the first answers are there
	inventory accel.Inventory // written before surveyed is closed

	mu      sync.Mutex
	network []accel.NetworkFunction
}

// burst is how long events are collected: binding a driver causes a dozen for each port.
const burst = time.Second

// surveyTime is how long the loop's first pass may wait for the inventory: twenty times what a large host needs.
const surveyTime = 2 * time.Second

// newSurroundings returns surroundings with no answers yet; survey finds the first ones.
func newSurroundings(h *host.Host, resync time.Duration, changed func(), log *slog.Logger) *surroundings {
	return &surroundings{
		host: h, resync: resync, changed: changed, log: log, look: make(chan struct{}, 1),
		surveyed: make(chan struct{}),
	}
}

// survey reads the host's inventory, and its network functions for the first time, beside the rest of the agent's
// start. The loop's first pass waits for the answers: without them it would remove the labels and attributes that the
// previous agent wrote.
func (s *surroundings) survey(ctx context.Context) {
	defer close(s.surveyed)
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	inventory, err := s.host.Inventory(ctx)
	if err != nil {
		s.log.Warn("a part of what the host is made of is not known", "error", err)
	}
	s.inventory = inventory
	pci, _ := detect.PCI(s.host)
	network := detect.Network(ctx, s.host, pci)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.network = network
}

// run reads until ctx ends.
func (s *surroundings) run(ctx context.Context) error {
	<-s.surveyed
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

// add copies the last answers into f. The first call waits for them. The answers are never modified in place.
func (s *surroundings) add(f *accel.Facts) {
	<-s.surveyed
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
