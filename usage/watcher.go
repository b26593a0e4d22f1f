package usage

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

// Options of a [Watcher].
type Options struct {
	Log *slog.Logger
	// Host has File, where what was counted is kept for the next agent, such as "/run/acceld/usage.json"; empty to keep
	// nothing.
	Host *host.Host
	File string
	// Follow returns the last snapshot, and a channel that is closed when there is another.
	Follow func() (m accel.Machine, replaced <-chan struct{})
	// Openers finds the processes that have nodes open or mapped, and what the kernel says of their open files of the
	// nodes for which told is true.
	Openers func(ctx context.Context, nodes []accel.DeviceNode, told func(node string) bool) ([]host.Opener, error)
	// Took calls a function and returns how long a processor worked for it.
	Took func(f func()) time.Duration
	// Processes returns what the probe program of a kind reports about the processes of its devices, by device. A
	// device of which it does not report is not in it.
	Processes func(def *accel.Definition) map[string][]accel.ProbeProcess
	// Shared returns the nodes that the devices of a kind share.
	Shared func(def *accel.Definition) []accel.DeviceNode
	// Expected reports whether a process may use any device of a kind, such as a daemon of the driver.
	Expected func(def *accel.Definition, o host.Opener) bool
	// Recorded returns what is on record on this host of who was given devices of a kind. Asked returns what the
	// kubelet and the API server say about it. A problem means that there may be more grants.
	Recorded func(def *accel.Definition) ([]Grant, *accel.Problem)
	Asked    func(ctx context.Context, def *accel.Definition) ([]Grant, *accel.Problem)
	// Name returns the name of the pod with a UID; empty if it is not known.
	Name func(uid string) (namespace, pod string)
	// Container returns the name of the container with an id in its pod; empty if it is not known.
	Container func(id string) string
	// Changed notifies the loop of news.
	Changed func()
}

const (
	// every is the time between two looks. They take at most 1/share of one processor: on a host where a look takes
	// long, the next one is later.
	every = 30 * time.Second
	share = 200
	// confirm is the time after which a process is looked at again before it is named, at most at 1/soon of one
	// processor. By then the kubelet knows a pod that has just started, and the processes of one that has just ended
	// have ended.
	confirm = 10 * time.Second
	soon    = 50
	// again is how long a pod, container or service that was named must not use a device before it is named once more.
	again = 10 * time.Minute
	// late is how long after its time a look may end before its answer counts as old.
	late = 5 * time.Minute
	// maxSightings bounds what is remembered of processes. Those that come after are not counted.
	maxSightings = 1 << 14
)

// Watcher looks for processes that use devices: which nobody gave to them, and how much they use. It is safe for
// concurrent use.
type Watcher struct {
	o Options

	mu sync.Mutex
	// have is the answer of the last look, by device, and due is when the next one begins.
	have map[string]accel.UnrequestedHave
	used map[string]*accel.UseHave
	due  time.Time
	// seen is when each suspect was first seen, and named when each user was first and last named. Only Run uses them.
	seen    map[sighting]time.Time
	named   map[name]times
	counter counter
	// unkept is true while what was counted cannot be kept.
	unkept bool
}

// sighting is a process that uses a device.
type sighting struct {
	device string
	pid    int
	start  time.Duration
}

// name is a user of a device; key is that of accel.UnrequestedUser.
type name struct{ device, key string }

type times struct{ first, last time.Time }

// New returns a watcher that has not looked yet.
func New(o Options) *Watcher {
	return &Watcher{o: o, seen: map[sighting]time.Time{}, named: map[name]times{}}
}

// Enrich adds to the devices of a kind what each user uses of them, and who uses them although nobody gave them to
// them. The result is accs.
func (w *Watcher) Enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := time.Now().After(w.due.Add(late))
	const unended = "the last look at the processes of the host has not ended"
	for i, a := range accs {
		use := w.used[a.ID]
		if use != nil && old {
			use = &accel.UseHave{Unknown: unended}
		}
		accs[i].Use = use
		have, known := w.have[a.ID]
		if known && old {
			have = accel.UnrequestedHave{Unknown: unended}
		}
		if known && def.ReportsUse() != accel.ReportNone {
			accs[i].Unrequested = &have
		}
	}
	return accs
}

// Run looks until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.recall()
	wait := confirm // an agent that starts has more urgent things to do
	for pace.Sleep(ctx, wait) == nil {
		m, replaced := w.o.Follow()
		nodes, own := w.nodes(m)
		if len(nodes) == 0 {
			w.seen = map[sighting]time.Time{}
			w.keepUse(nil, nil)
			w.keep(nil, time.Time{})
			select {
			case <-ctx.Done():
				return nil
			case <-replaced:
			}
			continue
		}
		wait = w.turn(ctx, m, nodes, own)
	}
	return nil
}

// turn looks once, and returns after which time to look again.
func (w *Watcher) turn(ctx context.Context, m accel.Machine, nodes []accel.DeviceNode, own map[string]string,
) (wait time.Duration) {
	var openers []host.Opener
	var err error
	prefixes := told(m, own)
	took := w.o.Took(func() {
		openers, err = w.o.Openers(ctx, nodes, func(node string) bool { return prefixes[node] != "" })
	})
	wait = max(every, share*took)
	if ctx.Err() != nil { // a part of the processes
		return wait
	}
	have, unconfirmed := w.look(ctx, m, own, openers, err)
	if unconfirmed {
		wait = max(confirm, soon*took)
	}
	var use map[string]*accel.UseHave
	if err == nil {
		use = w.use(m, own, prefixes, openers)
	}
	w.keep(have, time.Now().Add(wait))
	w.keepUse(use, err)
	w.store()
	return wait
}

// nodes returns the nodes that are looked for, and the device of each; none if nobody is reported, and nothing tells
// who uses how much.
func (w *Watcher) nodes(m accel.Machine) (nodes []accel.DeviceNode, own map[string]string) {
	if m.Taken.IsZero() {
		return nil, nil
	}
	var shared []accel.DeviceNode
	wanted := false
	for kind, def := range m.Want.Kinds {
		if len(m.Have[kind].Accelerators) > 0 {
			shared = append(shared, w.o.Shared(def)...)
			wanted = wanted || reported(m, def) || tells(m, def) || len(w.o.Processes(def)) > 0
		}
	}
	if !wanted {
		return nil, nil
	}
	return Own(m, shared)
}

// tells reports whether a driver may say what each open file of a kind's devices uses.
func tells(m accel.Machine, def *accel.Definition) bool {
	return slices.ContainsFunc(accel.Flat(m.Have[def.Kind].Accelerators), func(a accel.Accelerator) bool {
		return slices.ContainsFunc(a.Nodes, func(n accel.DeviceNode) bool { return def.UsagePrefix(n.Path) != "" })
	})
}

// reported reports whether those are named who use devices of a kind although nobody gave them to them. Without a
// kubelet nobody is given a device.
func reported(m accel.Machine, def *accel.Definition) bool {
	return m.Want.Kubernetes && def.ReportsUse() != accel.ReportNone
}

// verdict is who uses the devices of a kind although nobody gave them to them.
type verdict struct {
	devices  []string // those that have nodes of their own
	suspects []Suspect
	unknown  string
}

// judge decides about the devices of a kind.
func (w *Watcher) judge(ctx context.Context, def *accel.Definition, devices []accel.Accelerator, own map[string]string,
	openers []host.Opener, unread error,
) (v verdict) {
	having := map[string]bool{}
	for _, id := range own {
		having[id] = true
	}
	for _, a := range devices {
		if having[a.ID] {
			v.devices = append(v.devices, a.ID)
		}
	}
	if unread != nil {
		v.unknown = unread.Error()
		return v
	}
	c := Case{
		Def: def, Devices: devices, Own: own, Openers: openers, Name: remembered(w.o.Name),
		Expected: func(o host.Opener) bool { return w.o.Expected(def, o) },
	}
	for _, source := range []func() ([]Grant, *accel.Problem){
		func() ([]Grant, *accel.Problem) { return nil, nil }, // nobody has a device open, as on an idle host
		func() ([]Grant, *accel.Problem) { return w.o.Recorded(def) },
		func() ([]Grant, *accel.Problem) { return w.o.Asked(ctx, def) },
	} {
		grants, problem := source()
		if problem != nil {
			v.suspects, v.unknown = nil, problem.Message
			return v
		}
		c.Grants = append(c.Grants, grants...)
		if v.suspects = Decide(c); len(v.suspects) == 0 {
			return v
		}
	}
	return v
}

// remembered asks for the name of each pod once.
func remembered(ask func(uid string) (namespace, pod string)) func(uid string) (namespace, pod string) {
	names := map[string][2]string{}
	return func(uid string) (namespace, pod string) {
		if _, asked := names[uid]; !asked {
			namespace, pod = ask(uid)
			names[uid] = [2]string{namespace, pod}
		}
		return names[uid][0], names[uid][1]
	}
}

// look judges all kinds, and returns the answers by device, and whether some suspects have to be seen again.
func (w *Watcher) look(ctx context.Context, m accel.Machine, own map[string]string, openers []host.Opener, unread error,
) (have map[string]accel.UnrequestedHave, unconfirmed bool) {
	now := time.Now()
	have, seen := map[string]accel.UnrequestedHave{}, map[sighting]time.Time{}
	for _, kind := range slices.Sorted(maps.Keys(m.Want.Kinds)) {
		def, devices := m.Want.Kinds[kind], m.Have[kind].Accelerators
		if !reported(m, def) || len(devices) == 0 {
			continue
		}
		v := w.judge(ctx, def, devices, own, openers, unread)
		for _, id := range v.devices {
			have[id] = accel.UnrequestedHave{Unknown: v.unknown}
		}
		if v.unknown != "" {
			w.keepSeen(seen, v.devices, now)
			continue
		}
		by := map[string][]Suspect{}
		for _, s := range v.suspects {
			at := sighting{s.Device, s.PID, s.Start}
			first, known := w.seen[at]
			if !known {
				first = now
			}
			if known || len(seen) < maxSightings {
				seen[at] = first
			}
			if now.Sub(first) >= confirm {
				by[s.Device] = append(by[s.Device], s)
			} else {
				unconfirmed = true
			}
		}
		for id, suspects := range by {
			have[id] = accel.UnrequestedHave{Users: users(suspects)}
		}
	}
	w.seen = seen
	return have, unconfirmed
}

// keepSeen remembers what was seen on devices while it is not known who was given them: whoever uses them still is no
// news afterwards.
func (w *Watcher) keepSeen(seen map[sighting]time.Time, devices []string, now time.Time) {
	for at, first := range w.seen {
		if slices.Contains(devices, at.device) {
			seen[at] = first
		}
	}
	for n, t := range w.named {
		if slices.Contains(devices, n.device) {
			w.named[n] = times{t.first, now}
		}
	}
}

// users groups the suspects of one device.
func users(suspects []Suspect) (all []accel.UnrequestedUser) {
	at := map[string]int{}
	for _, s := range suspects {
		u := accel.UnrequestedUser{
			Holder: accel.Holder{
				PID: s.PID, Comm: s.Comm, PodUID: s.Opener.Pod, Namespace: s.Namespace, Pod: s.Pod, Device: s.Node,
			},
			Given: s.Given,
		}
		if s.Opener.Pod == "" {
			u.Container = s.Container[:min(len(s.Container), shortID)]
			if u.Container == "" {
				u.Unit = s.Unit
			}
		}
		i, known := at[u.Key()]
		if !known {
			i = len(all)
			at[u.Key()] = i
			all = append(all, u)
		}
		all[i].Processes++
	}
	slices.SortFunc(all, func(a, b accel.UnrequestedUser) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// keep publishes the answers of a look, and says who is named for the first time. Due is when the next look begins.
func (w *Watcher) keep(have map[string]accel.UnrequestedHave, due time.Time) {
	before, news := w.publish(have, due)
	for _, c := range news {
		w.o.Log.Warn("device used without a request", "device", c.Device, "users", c.String())
	}
	for _, id := range slices.Sorted(maps.Keys(have)) {
		if h := have[id]; h.Unknown == "" && h.Count == 0 && before[id].Count > 0 {
			w.o.Log.Info("device not used without a request any more", "device", id)
		}
	}
	if !reflect.DeepEqual(before, have) {
		w.o.Changed()
	}
}

// publish completes the answers and makes them those of [Watcher.Enrich]. When a user was first named is decided under
// the lock: a snapshot that was taken later has it, which accel.Diff relies on. It returns the previous answers, and
// who is named for the first time.
func (w *Watcher) publish(have map[string]accel.UnrequestedHave, due time.Time) (
	before map[string]accel.UnrequestedHave, news []accel.UnrequestedChange,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(have)) {
		h, c := have[id], accel.UnrequestedChange{Device: id}
		h.Count = len(h.Users)
		h.Users = h.Users[:min(len(h.Users), accel.MaxUnrequested)]
		for i := range h.Users {
			n := name{id, h.Users[i].Key()}
			t, known := w.named[n]
			if !known {
				t.first = now
			}
			w.named[n] = times{t.first, now}
			h.Users[i].Since = t.first
			if !known {
				c.Users = append(c.Users, h.Users[i])
			}
		}
		if have[id] = h; len(c.Users) > 0 {
			news = append(news, c)
		}
	}
	maps.DeleteFunc(w.named, func(_ name, t times) bool { return now.Sub(t.last) > again })
	before, w.have, w.due = w.have, have, due
	return before, news
}
