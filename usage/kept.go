package usage

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// What was counted is kept below /run for the next agent: otherwise the engine time of a container would fall to what
// the files use that it has open now. A reboot empties it, and ends every container.

// kept is the file's content.
type kept struct {
	// Last is when the last look was.
	Last    time.Time                     `json:"last"`
	Clients []keptClient                  `json:"clients,omitempty"`
	Totals  []keptTotal                   `json:"totals,omitempty"`
	Outside map[string]map[string]float64 `json:"outside,omitempty"`
}

type keptClient struct {
	Device  string                `json:"device"`
	ID      string                `json:"id"`
	Engines map[string]keptEngine `json:"engines,omitempty"`
}

type keptEngine struct {
	Busy  uint64 `json:"busy"`
	Total uint64 `json:"total,omitempty"`
}

type keptTotal struct {
	Device string `json:"device"`
	// Key is that of the user.
	Key     string             `json:"key"`
	Engines map[string]float64 `json:"engines"`
	Seen    time.Time          `json:"seen"`
}

// kept returns what has to be kept, always in the same order.
func (c *counter) kept() kept {
	k := kept{Last: c.last, Outside: c.outside}
	for id, engines := range c.clients {
		x := keptClient{Device: id.device, ID: id.id, Engines: map[string]keptEngine{}}
		for name, e := range engines {
			x.Engines[name] = keptEngine{e.busy, e.total}
		}
		k.Clients = append(k.Clients, x)
	}
	for id, t := range c.totals {
		k.Totals = append(k.Totals, keptTotal{id.device, id.key, t.engines, t.seen})
	}
	slices.SortFunc(k.Clients, func(a, b keptClient) int { return strings.Compare(a.Device+" "+a.ID, b.Device+" "+b.ID) })
	slices.SortFunc(k.Totals, func(a, b keptTotal) int { return strings.Compare(a.Device+" "+a.Key, b.Device+" "+b.Key) })
	return k
}

// errKept says that a file is not what an agent has kept.
var errKept = errors.New("it holds what cannot have been counted")

// restored returns a counter that goes on where k was kept.
func restored(k kept, now time.Time) (counter, error) {
	c := counter{
		last: k.Last, clients: map[clientID]map[string]engine{}, totals: map[userID]*total{},
		outside: map[string]map[string]float64{},
	}
	if c.last.After(now) { // the clock was set back
		c.last = now
	}
	for _, x := range k.Clients {
		engines := map[string]engine{}
		for name, e := range x.Engines {
			engines[name] = engine{busy: e.Busy, total: e.Total}
		}
		c.clients[clientID{x.Device, x.ID}] = engines
	}
	for _, t := range k.Totals {
		if !counted(t.Engines) {
			return counter{}, errKept
		}
		c.totals[userID{t.Device, t.Key}] = &total{engines: t.Engines, seen: t.Seen}
	}
	for device, engines := range k.Outside {
		if !counted(engines) {
			return counter{}, errKept
		}
		c.outside[device] = maps.Clone(engines)
	}
	return c, nil
}

// counted reports whether these can be the times of engines.
func counted(engines map[string]float64) bool {
	for name, n := range engines {
		if !accel.UsageWord(name) || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
			return false
		}
	}
	return engines != nil && len(engines) <= accel.MaxEngines
}

// recall goes on where an earlier agent was. What cannot be read is as if there had been none.
func (w *Watcher) recall() {
	if w.o.File == "" {
		return
	}
	data, err := w.o.Host.ReadFile(w.o.File)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	var c counter
	if err == nil {
		c, err = restored(k, time.Now())
	}
	if err != nil {
		w.o.Log.Warn("what containers have used before cannot be read", "path", w.o.File, "error", err)
		return
	}
	w.counter = c
}

// store keeps what was counted. It says once that this does not succeed.
func (w *Watcher) store() {
	if w.o.File == "" || len(w.counter.totals) == 0 {
		return
	}
	data, err := json.Marshal(w.counter.kept())
	if err == nil {
		err = w.o.Host.MkdirAll(path.Dir(w.o.File), 0o755)
	}
	if err == nil {
		err = w.o.Host.WriteFile(w.o.File, data, 0o600)
	}
	if err != nil && !w.unkept {
		w.o.Log.Warn("what containers have used cannot be kept", "path", w.o.File, "error", err)
	}
	w.unkept = err != nil
}
