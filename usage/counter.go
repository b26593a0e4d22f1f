package usage

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

const (
	// keep is how long a user that is not seen keeps its counters: one that opens the device now and then goes on where
	// it was.
	keep = time.Hour
	// maxClients bounds how many clients are counted. Those that come after count as unread.
	maxClients = 1 << 14
)

// sample is what one look has found of one client.
type sample struct {
	client
	device string // whose node it has open
	pid    int
	user   accel.User
	key    string // of the user: the same for the same container or service
}

// counter adds up what clients have used: a client's own counters end with it, and those of its container do not. The
// zero counter has seen nothing.
type counter struct {
	last    time.Time // of the last look
	clients map[clientID]map[string]engine
	totals  map[userID]*total
	outside map[string]map[string]float64 // by device, seconds by engine
}

type (
	clientID struct{ device, id string }
	userID   struct{ device, key string }
)

// total is how long engines have worked for a user, in seconds.
type total struct {
	engines map[string]float64
	seen    time.Time
}

// tally is what one look finds of one user of a device.
type tally struct {
	accel.User
	pids    map[int]bool
	memory  uint64
	sized   bool               // the memory of some client is known
	worked  map[string]float64 // since the last look, seconds
	unknown bool               // how long some of its clients had worked before the first look is not known
}

// count takes the samples of a look, and returns what the users of each device use. Memory returns how much of a
// client's memory is in a device, if that is known.
func (c *counter) count(now time.Time, samples []sample, memory func(sample) (uint64, bool),
) map[string]*accel.UseHave {
	clients, have := map[clientID]map[string]engine{}, map[string]*accel.UseHave{}
	of := func(device string) *accel.UseHave {
		if have[device] == nil {
			have[device] = &accel.UseHave{}
		}
		return have[device]
	}
	users := map[userID]*tally{}
	for _, s := range samples {
		id, user := clientID{s.device, s.id}, userID{s.device, s.key}
		if _, counted := clients[id]; !counted && len(clients) == maxClients {
			of(s.device).Unread++
			continue
		}
		t := users[user]
		if t == nil {
			t = &tally{User: s.user, pids: map[int]bool{}, worked: map[string]float64{}}
			users[user] = t
		}
		t.pids[s.pid] = true
		if _, counted := clients[id]; counted {
			continue // another descriptor of the same open file
		}
		clients[id] = s.engines
		if n, known := memory(s); known {
			t.memory, t.sized = t.memory+n, true
		}
		c.work(t, id, s.engines, now)
	}
	for id, t := range users {
		h := of(id.device)
		h.Users = append(h.Users, c.user(id, t, now))
	}
	c.last, c.clients = now, clients
	c.forget(now)
	for device, engines := range c.outside {
		of(device).Outside = maps.Clone(engines)
	}
	for _, h := range have {
		arrange(h)
	}
	return have
}

// work adds what a client's engines have done since the last look to what its user's have.
func (c *counter) work(t *tally, id clientID, engines map[string]engine, now time.Time) {
	before, known := c.clients[id]
	t.unknown = t.unknown || !known && c.last.IsZero() // it has worked before this agent looked
	for name, e := range engines {
		was := before[name]
		again := e.busy < was.busy || e.total < was.total // another client, after its driver was loaded again
		switch {
		case e.timed && again:
			add(t.worked, name, seconds(e.busy))
		case e.timed:
			add(t.worked, name, seconds(e.busy-was.busy))
		case known && !again && e.total > was.total:
			share := float64(e.busy-was.busy) / float64(e.total-was.total)
			add(t.worked, name, min(share, 1)*now.Sub(c.last).Seconds())
		default:
			add(t.worked, name, 0)
		}
	}
}

// user completes a user of a device.
func (c *counter) user(id userID, t *tally, now time.Time) accel.User {
	if c.totals == nil {
		c.totals, c.outside = map[userID]*total{}, map[string]map[string]float64{}
	}
	sum := c.totals[id]
	if sum == nil {
		sum = &total{engines: map[string]float64{}}
		c.totals[id] = sum
	}
	sum.seen = now
	busiest := 0.0
	for name, n := range t.worked {
		add(sum.engines, name, n)
		busiest = max(busiest, n)
		if !t.InPod() {
			if c.outside[id.device] == nil {
				c.outside[id.device] = map[string]float64{}
			}
			add(c.outside[id.device], name, n)
		}
	}
	u := t.User
	if u.Processes = len(t.pids); t.sized {
		u.MemoryBytes = accel.Known(int64(min(t.memory, 1<<62)))
	}
	if u.EngineSeconds = maps.Clone(sum.engines); len(u.EngineSeconds) == 0 {
		u.EngineSeconds = nil
		return u
	}
	if took := now.Sub(c.last).Seconds(); !c.last.IsZero() && took > 0 && !t.unknown {
		u.Busy = accel.Known(min(busiest/took, 1))
	}
	return u
}

// forget leaves out users that have not been seen for long.
func (c *counter) forget(now time.Time) {
	maps.DeleteFunc(c.totals, func(_ userID, t *total) bool {
		return now.Sub(t.seen) > keep || len(c.totals) > maxClients && t.seen != now
	})
}

// add adds to one of at most [accel.MaxEngines] numbers.
func add(to map[string]float64, name string, n float64) {
	if _, known := to[name]; known || len(to) < accel.MaxEngines {
		to[name] += n
	}
}

func seconds(ns uint64) float64 { return float64(ns) / float64(time.Second) }

// arrange orders the users of a device, and leaves out those that are too many.
func arrange(h *accel.UseHave) {
	slices.SortFunc(h.Users, func(a, b accel.User) int {
		if a.InPod() != b.InPod() {
			if a.InPod() {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.Who(), b.Who()), strings.Compare(a.PodUID, b.PodUID))
	})
	if h.LeftOut = len(h.Users) - accel.MaxUsers; h.LeftOut > 0 {
		h.Users = h.Users[:accel.MaxUsers]
	}
	h.LeftOut = max(h.LeftOut, 0)
}
