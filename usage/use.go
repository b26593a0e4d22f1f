package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// shortID is how many digits of a container's id are shown, as container runtimes do.
const shortID = 12

// told returns the nodes of which the driver says what each open file uses, with what begins its keys.
func told(m accel.Machine, own map[string]string) map[string]string {
	of := map[string]*accel.Definition{} // by device
	for kind, have := range m.Have {
		for _, a := range have.Accelerators {
			of[a.ID] = m.Want.Kinds[kind]
		}
	}
	prefixes := map[string]string{}
	for node, id := range own {
		if def := of[id]; def != nil {
			if prefix := def.UsagePrefix(node); prefix != "" {
				prefixes[node] = prefix
			}
		}
	}
	return prefixes
}

// use counts what the users of all devices use, and returns it by device.
func (w *Watcher) use(m accel.Machine, own, prefixes map[string]string, openers []host.Opener,
) map[string]*accel.UseHave {
	var samples []sample
	unread := map[string]int{}
	regions := map[string][]string{} // those that count, by device
	names := w.namer()
	for kind, have := range m.Have {
		def := m.Want.Kinds[kind]
		if def == nil {
			continue
		}
		processes := w.o.Processes(def)
		for _, a := range have.Accelerators {
			if def.Usage != nil {
				regions[a.ID] = def.Usage.Memory
			}
			if all, by := processes[a.ID]; by {
				samples = append(samples, ofProgram(a.ID, all, own, openers, names)...)
				continue
			}
			some, bad := ofFiles(a, own, prefixes, openers, names)
			samples, unread[a.ID] = append(samples, some...), bad
		}
	}
	have := w.counter.count(time.Now(), samples, func(s sample) (uint64, bool) {
		return inDevice(s.memory, regions[s.device]), len(s.memory) > 0
	})
	for id, n := range unread {
		if have[id] == nil && n > 0 {
			have[id] = &accel.UseHave{}
		}
		if n > 0 {
			have[id].Unread += n
		}
	}
	return have
}

// ofFiles returns what the driver of a device says about open files of its nodes.
func ofFiles(a accel.Accelerator, own, prefixes map[string]string, openers []host.Opener,
	names func(host.Opener) (accel.User, string),
) (all []sample, unread int) {
	for _, o := range openers {
		for _, f := range o.Files {
			if own[f.Node] != a.ID {
				continue
			}
			c, told, err := parse(f.Info, prefixes[f.Node])
			if f.Err != nil || err != nil {
				unread++
				continue
			}
			// A descriptor may have become another one between two looks at it. A part may be a function of its own.
			if !told || has(a, f.Node) && c.device != "" && c.device != a.ID {
				continue
			}
			s := sample{client: c, device: a.ID, pid: o.PID}
			s.user, s.key = names(o)
			all = append(all, s)
		}
	}
	return all, unread
}

// ofProgram returns what the probe program says about processes. Only those count that have a node of the device open:
// the program may be wrong about a process, or the process has ended.
func ofProgram(device string, processes []accel.ProbeProcess, own map[string]string, openers []host.Opener,
	names func(host.Opener) (accel.User, string),
) (all []sample) {
	by := map[int]accel.ProbeProcess{}
	for _, p := range processes {
		by[p.PID] = p
	}
	for _, o := range openers {
		p, known := by[o.PID]
		if !known || !slices.ContainsFunc(o.Nodes, func(node string) bool { return own[node] == device }) {
			continue
		}
		s := sample{device: device, pid: o.PID}
		s.user, s.key = names(o)
		s.client = client{id: fmt.Sprintf("%d since %d", o.PID, o.Start), engines: map[string]engine{}}
		for name, n := range p.EngineSeconds {
			s.engines[name] = engine{busy: uint64(n * float64(time.Second)), timed: true}
		}
		if p.MemoryBytes.Known {
			s.memory = map[string]uint64{"": uint64(p.MemoryBytes.Value)}
		}
		all = append(all, s)
	}
	return all
}

// inDevice adds up the regions that count; all of them if it has none of these.
func inDevice(memory map[string]uint64, regions []string) (sum uint64) {
	some := false
	for _, r := range regions {
		n, known := memory[r]
		some, sum = some || known, sum+n
	}
	if some {
		return sum
	}
	for _, n := range memory {
		sum += n
	}
	return sum
}

// namer returns what names the user that a process belongs to, with a key that is the same for the same user.
func (w *Watcher) namer() func(o host.Opener) (accel.User, string) {
	pods, containers := remembered(w.o.Name), map[string]string{}
	return func(o host.Opener) (u accel.User, key string) {
		switch {
		case o.Pod != "":
			name, asked := containers[o.Container]
			if !asked && o.Container != "" {
				name = w.o.Container(o.Container)
				containers[o.Container] = name
			}
			u.PodUID, u.NamedContainer = o.Pod, name != ""
			u.Namespace, u.Pod = pods(o.Pod)
			u.Container = cmp.Or(name, o.Container[:min(len(o.Container), shortID)])
			return u, "pod " + o.Pod + " " + o.Container
		case o.Container != "":
			u.Container = o.Container[:min(len(o.Container), shortID)]
			return u, "container " + o.Container
		}
		u.Unit = o.Unit
		return u, "host " + o.Unit
	}
}

// keepUse publishes what is used. Only another user is news: the numbers are in the next sample anyway.
func (w *Watcher) keepUse(use map[string]*accel.UseHave, unread error) {
	w.mu.Lock()
	if unread != nil {
		use = map[string]*accel.UseHave{}
		for id := range w.used {
			use[id] = &accel.UseHave{Unknown: unread.Error()}
		}
	}
	news := whoUses(w.used) != whoUses(use)
	w.used = use
	w.mu.Unlock()
	if news {
		w.o.Changed()
	}
}

// whoUses is the same text for the same users.
func whoUses(use map[string]*accel.UseHave) string {
	var all []string
	for id, h := range use {
		for _, u := range h.Users {
			all = append(all, id+" "+u.PodUID+" "+u.Who())
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
