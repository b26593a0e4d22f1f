package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

const (
	repairKey = accel.RepairAnnotation + kind
	permitKey = accel.AllowRepairAnnotation + kind
)

// sick is a node that waits for a slot, with so many devices of eight.
func sick(name, domain string, ill int) ward {
	return ward{
		Node: name, Kind: kind, Domain: domain, Ready: true,
		Report: accel.RepairReport{Phase: accel.RepairPhaseWaiting, Ill: ill, Devices: 8},
	}
}

func well(name, domain string) ward { return ward{Node: name, Kind: kind, Domain: domain, Ready: true} }

func inPhase(w ward, p accel.RepairPhase) ward {
	w.Report.Phase = p
	return w
}

func TestDecideRepairs(t *testing.T) {
	slot := func(name string, minutes int) Slot {
		return Slot{Node: name, Kind: kind, Repair: true, Since: morning.Add(time.Duration(minutes) * time.Minute)}
	}
	acting := accel.RepairPhaseActing
	down, other, back := sick("a", "", 1), sick("a", "", 1), sick("a", "", 1)
	down.Ready, other.Skip, back.TakenBack = false, true, morning
	roomy := RepairLimits{Nodes: 9, Breaker: 9, Timeout: time.Hour}
	with := func(change func(l *RepairLimits)) RepairLimits {
		l := roomy
		change(&l)
		return l
	}
	racks := with(func(l *RepairLimits) { l.PerDomain, l.DomainBreaker = 1, true })
	for name, c := range map[string]struct {
		limits RepairLimits
		wards  []ward
		slots  []Slot
		given  string
		kept   string
		ended  Why
		waits  string
	}{
		"all": {roomy, []ward{sick("b", "", 1), sick("a", "", 1), well("c", "")}, nil, "a b", "", "", ""},
		"one at a time": {
			with(func(l *RepairLimits) { l.Nodes = 1 }),
			[]ward{sick("a", "", 1), sick("b", "", 1)},
			nil, "a", "", "", "b MaxParallel",
		},
		"no limit set": {
			with(func(l *RepairLimits) { l.Nodes = 0 }),
			[]ward{sick("a", "", 1), sick("b", "", 1)},
			nil, "a", "", "",
			"b MaxParallel",
		},
		"the slot counts": {
			with(func(l *RepairLimits) { l.Nodes = 1 }),
			[]ward{sick("a", "", 1), inPhase(sick("b", "", 1), acting)},
			[]Slot{slot("b", 0)},
			"", "b", "", "a MaxParallel",
		},
		"devices": {
			with(func(l *RepairLimits) { l.Devices = 3 }),
			[]ward{sick("a", "", 2), sick("b", "", 2), sick("c", "", 1)},
			nil, "a c", "", "", "b MaxDevices",
		},
		"more devices than allowed, alone": {
			with(func(l *RepairLimits) { l.Devices = 1 }),
			[]ward{sick("a", "", 4), sick("b", "", 1)},
			nil, "a", "", "",
			"b MaxDevices",
		},
		"a rack": {
			racks,
			[]ward{sick("a", "r1", 1), sick("b", "r1", 1), well("c", "r1"), well("d", "r1"), sick("e", "r2", 1)},
			nil,
			"a e", "", "", "b MaxPerDomain",
		},
		"nodes without a rack": {racks, []ward{sick("a", "", 1), sick("b", "", 1)}, nil, "a b", "", "", ""},
		"a rack fails": {
			racks,
			[]ward{sick("a", "r1", 1), inPhase(sick("b", "r1", 8), accel.RepairPhaseIll), well("c", "r1"), sick("e", "r2", 1)},
			nil, "e", "", "", "a DomainBreaker",
		},
		"a rack fails, and nobody minds": {
			with(func(l *RepairLimits) { l.PerDomain = 2 }), []ward{sick("a", "r1", 1), sick("b", "r1", 1)}, nil, "a b", "", "", "",
		},
		"a rack of one": {racks, []ward{sick("a", "r1", 1), well("b", "r2")}, nil, "a", "", "", ""},
		"half a rack":   {racks, []ward{sick("a", "r1", 1), well("b", "r1")}, nil, "a", "", "", ""},
		"too many at once": {
			with(func(l *RepairLimits) { l.Breaker = 2 }),
			[]ward{sick("a", "", 1), sick("b", "", 1), inPhase(sick("c", "", 1), accel.RepairPhaseIll)},
			nil, "", "", "",
			"a Breaker b Breaker",
		},
		"not more than the breaker lets": {
			with(func(l *RepairLimits) { l.Breaker = 2 }), []ward{sick("a", "", 1), sick("b", "", 1)}, nil, "a b", "", "", "",
		},
		"the breaker takes back what has not begun": {
			with(func(l *RepairLimits) { l.Breaker = 1 }),
			[]ward{sick("a", "", 1), inPhase(sick("b", "", 1), acting)},
			[]Slot{slot("a", 0), slot("b", 0)},
			"", "b", Withdrawn,
			"a Breaker",
		},
		"paused": {
			with(func(l *RepairLimits) { l.Paused = true }),
			[]ward{sick("a", "", 1), inPhase(sick("b", "", 1), acting)},
			[]Slot{slot("b", 0)},
			"", "b", "", "a Paused",
		},
		"outside the window": {
			with(func(l *RepairLimits) { l.Windows = []Window{{From: time.Hour, To: 2 * time.Hour}} }),
			[]ward{sick("a", "", 1)},
			nil, "", "", "", "a OutsideWindow",
		},
		"down":                   {roomy, []ward{down}, nil, "", "", "", "a NotReady"},
		"another operator":       {roomy, []ward{other}, nil, "", "", "", ""},
		"waits for a pod":        {roomy, []ward{inPhase(sick("a", "", 1), accel.RepairPhaseIll)}, nil, "", "", "", ""},
		"repaired":               {roomy, []ward{well("a", "")}, []Slot{slot("a", 0)}, "", "", Done, ""},
		"nothing left to do":     {roomy, []ward{inPhase(sick("a", "", 1), accel.RepairPhaseIll)}, []Slot{slot("a", 0)}, "", "", Done, ""},
		"waits with a slot":      {roomy, []ward{sick("a", "", 1)}, []Slot{slot("a", 0)}, "", "a", "", ""},
		"repairs":                {roomy, []ward{inPhase(sick("a", "", 1), acting)}, []Slot{slot("a", 0)}, "", "a", "", ""},
		"not to be read":         {roomy, []ward{inPhase(sick("a", "", 1), accel.RepairPhaseUnclear)}, []Slot{slot("a", 0)}, "", "a", "", ""},
		"gone":                   {roomy, nil, []Slot{slot("a", 0)}, "", "", Gone, ""},
		"its end is not written": {roomy, []ward{back}, []Slot{slot("a", 0)}, "a", "", Withdrawn, ""},
		"belongs elsewhere":      {roomy, []ward{other}, []Slot{slot("a", 0)}, "", "", Gone, ""},
		"elsewhere, but acts":    {roomy, []ward{inPhase(other, acting)}, []Slot{slot("a", 0)}, "", "a", "", ""},
		"late": {
			with(func(l *RepairLimits) { l.Nodes = 1 }),
			[]ward{inPhase(sick("a", "", 1), acting), sick("b", "", 1)},
			[]Slot{slot("a", -60)},
			"b", "a", "", "",
		},
		"not late yet": {
			with(func(l *RepairLimits) { l.Nodes = 1 }),
			[]ward{inPhase(sick("a", "", 1), acting), sick("b", "", 1)},
			[]Slot{slot("a", -59)},
			"", "a", "", "b MaxParallel",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := DecideRepairs(morning, c.limits, c.wards, c.slots)
			names := func(all []Slot) string {
				var out []string
				for _, s := range all {
					out = append(out, s.Node)
				}
				return strings.Join(out, " ")
			}
			var waits []string
			for key, why := range p.Waits {
				waits = append(waits, key.Node+" "+string(why))
			}
			slices.Sort(waits)
			if diff := cmp.Diff([]string{c.given, c.kept, c.waits},
				[]string{names(p.Given), names(p.Slots), strings.Join(waits, " ")}); diff != "" {
				t.Error(diff)
			}
			for s, why := range p.Ended {
				if why != c.ended {
					t.Errorf("the slot of %s has ended: %s, want %s", s.Node, why, c.ended)
				}
			}
			if (c.ended == "") != (len(p.Ended) == 0) {
				t.Errorf("ended: %v", p.Ended)
			}
			for _, s := range p.Given {
				if !s.Repair || !s.Since.Equal(morning) || s.Kind != kind {
					t.Errorf("%+v", s)
				}
			}
			if name == "outside the window" && !p.Next.Equal(time.Date(2026, 3, 5, 1, 0, 0, 0, time.UTC)) {
				t.Errorf("looks again at %s", p.Next)
			}
		})
	}
}

// TestTwoKindsOfANode: a node that repairs devices of two kinds counts once.
func TestTwoKindsOfANode(t *testing.T) {
	one, two := sick("a", "r", 1), sick("a", "r", 1)
	two.Kind = "other"
	p := DecideRepairs(morning, RepairLimits{Nodes: 1, PerDomain: 1, Breaker: 9, Timeout: time.Hour},
		[]ward{one, two, sick("b", "r", 1), well("c", "r"), well("d", "r"), well("e", "r")}, nil)
	want := []Slot{
		{Node: "a", Kind: "other", Repair: true, Since: morning}, {Node: "a", Kind: kind, Repair: true, Since: morning},
	}
	diff := cmp.Diff(want, p.Given, cmpopts.SortSlices(func(a, b Slot) bool { return a.Kind < b.Kind }))
	if diff != "" || p.Waits[wardKey{"b", kind}] != Parallel {
		t.Errorf("%s%v", diff, p.Waits)
	}
}

// repairPolicy limits repairs.
func repairPolicy(limits object) object {
	return object{"spec": object{
		"kinds": object{kind: object{"repair": object{"reset": "evict"}}}, "repair": limits,
	}}
}

// TestRepairSlot: a node gets its slot, keeps it while it repairs devices, and loses it afterwards. Nothing of it is in
// the way of upgrades, and it leaves nothing but the time of the slot.
func TestRepairSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			s.edit(nodePath(name), aNode(nil))
		}
		s.edit(policyPath, repairPolicy(object{"maxParallel": 1}))
		_, stop := start(t, s)
		defer stop()
		says := func(is, reason, message string) {
			t.Helper()
			wait(10 * time.Second)
			i := slices.IndexFunc(status(t, s).Conditions, func(c Condition) bool { return c.Type == ConditionRepair })
			if i < 0 {
				t.Fatalf("%+v", status(t, s))
			}
			if c := status(t, s).Conditions[i]; c.Status != is || c.Reason != reason || c.Message != message {
				t.Errorf("%+v", c)
			}
		}
		says("True", "Idle", "no device needs a reset")
		s.edit(nodePath("a"), annotate(repairKey, "waiting 1/8"))
		s.edit(nodePath("b"), annotate(repairKey, "waiting 2/8"))
		says("True", "Repairing", "2 nodes have devices that need a reset; 1 may repair them, 1 wait (MaxParallel: 1)")
		got := status(t, s)
		if len(got.Slots) != 1 || !got.Slots[0].Repair || got.Slots[0].Node != "a" || got.Nodes.Upgrading != 0 ||
			!slices.Contains(got.Blocked, Blocked{"RepairMaxParallel", 1, "b: 2 of 8 qemu-edu need a reset"}) {
			t.Errorf("%+v", got)
		}
		permit := func(name string) accel.RepairPermit {
			return accel.ParseRepairPermit(annotation(s.get(nodePath(name)), permitKey))
		}
		if p := permit("a"); !p.Given || !p.Since.Equal(got.Slots[0].Since) || permit("b").Given {
			t.Errorf("%+v", p)
		}
		s.edit(nodePath("a"), annotate(repairKey, "repairing 1/8"))
		s.edit(nodePath("c"), annotate(repairKey, "ill 1/8"))
		s.edit(nodePath("d"), annotate(repairKey, "ill 8/8"))
		says("False", "Breaker", "4 nodes have devices that need a reset; 1 may repair them, 1 wait (Breaker: 1); more than 2 at once: look for what they have in common")
		if !permit("a").Given {
			t.Error("a node that has begun lost its slot")
		}
		s.edit(nodePath("d"), annotate(repairKey, ""))
		s.edit(nodePath("c"), annotate(repairKey, ""))
		s.edit(nodePath("a"), annotate(repairKey, ""))
		says("True", "Repairing", "1 nodes have devices that need a reset; 1 may repair them, 0 wait")
		if permit("a").Given || !permit("b").Given {
			t.Error("the slot was not passed on")
		}
		s.edit(policyPath, object{"spec": object{"repair": nil}})
		wait(10 * time.Second)
		if p := permit("b"); p.Given || p.Since.IsZero() || len(status(t, s).Slots) > 0 {
			t.Errorf("without limits: %+v, %+v", p, status(t, s))
		}
	})
}

// repairing is a node of a storm of faults.
type repairing struct {
	name, rack string
	seen       object // what it has read, which may be stale
	ill        int
	acts       bool
	// grown is how many of its devices became ill while it had a slot. They are repaired with the others.
	grown int
}

// infirmary is nodes whose devices become ill, an unreliable server, and controllers that are killed.
type infirmary struct {
	t     *testing.T
	s     *server
	r     *rand.Rand
	nodes []*repairing
	most  struct{ nodes, devices, rack int }
	done  int
}

// step lets a node do one thing, as the agent does it: its report follows what it has read, and it begins once it has
// read its own report and the permission in one version of its node object.
func (f *infirmary) step(a *repairing) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	now := f.s.objects[nodePath(a.name)]
	if a.seen == nil || f.r.IntN(3) > 0 {
		a.seen = clone(now)
	}
	report := accel.ParseRepairReport(annotation(a.seen, repairKey))
	permit := accel.ParseRepairPermit(annotation(a.seen, permitKey))
	want := accel.RepairReport{}
	if a.ill > 0 {
		want = accel.RepairReport{Phase: accel.RepairPhaseWaiting, Ill: a.ill, Devices: 8}
		if permit.Given {
			want.Phase = accel.RepairPhaseActing
		}
	}
	switch {
	case a.acts && f.r.IntN(3) == 0: // one device is repaired
		a.ill, a.acts = a.ill-1, false
		a.grown = min(a.grown, a.ill)
		f.done++
	case a.acts:
	case report != want:
		f.s.editLocked(nodePath(a.name), annotate(repairKey, want.String()))
		a.seen = clone(f.s.objects[nodePath(a.name)])
	case want.Phase == accel.RepairPhaseActing:
		a.acts = true
		f.check()
	}
}

// slotHolders returns the nodes that have slots.
func slotHolders(policy object) map[string]bool {
	held := map[string]bool{}
	for _, x := range list(part(policy, "status")["slots"]) {
		held[fmt.Sprint(x.(object)["node"])] = true
	}
	return held
}

// fail makes devices of a node ill.
func (f *infirmary) fail(a *repairing, devices int) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	a.ill = devices
	if p := f.s.objects[policyPath]; p != nil && slotHolders(p)[a.name] {
		a.grown = devices
	}
}

// check checks every write against the limits. The server is locked.
func (f *infirmary) check() {
	p := f.s.objects[policyPath]
	if p == nil {
		return
	}
	held, perRack, devices := slotHolders(p), map[string]int{}, 0
	for _, a := range f.nodes {
		if a.acts && !held[a.name] {
			f.t.Errorf("%s acts without a slot: %v", a.name, p["status"])
		}
		if a.acts {
			perRack[a.rack]++
			devices += a.ill - a.grown
		}
	}
	busy := 0
	for rack, n := range perRack {
		busy += n
		if n > f.most.rack {
			f.t.Errorf("%d nodes of rack %s repair devices", n, rack)
		}
	}
	if busy > f.most.nodes || len(held) > f.most.nodes || busy > 1 && devices > f.most.devices {
		f.t.Errorf("%d slots, %d nodes repair %d devices; limits %+v", len(held), busy, devices, f.most)
	}
}

// TestRepairsNeverTooMany: requests fail before or after they were carried out, controllers are killed at any moment
// and two run at a time. No node ever repairs devices without a slot, no limit is exceeded, and in the end no device is
// ill.
func TestRepairsNeverTooMany(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			f := &infirmary{t: t, s: newServer(seed), r: rand.New(rand.NewPCG(seed, 9))}
			f.s.faults, f.s.late = 4, 300*time.Millisecond
			f.most.nodes, f.most.devices, f.most.rack = 2+f.r.IntN(3), 3+f.r.IntN(3), 1+f.r.IntN(2)
			for i := range 20 {
				a := &repairing{name: fmt.Sprintf("n%02d", i), rack: fmt.Sprintf("r%d", i/5)}
				f.s.edit(nodePath(a.name), aNode(object{"rack": a.rack, kube.Prefix + kind + ".count": "8"}))
				f.nodes = append(f.nodes, a)
			}
			f.s.edit(policyPath, repairPolicy(object{
				"maxParallel": f.most.nodes, "maxDevices": f.most.devices, "domain": "rack", "maxPerDomain": f.most.rack,
				"breaker": "100%",
			}))
			f.s.check = f.check
			_, stop := start(t, f.s)
			_, stopOther := start(t, f.s)
			for round := 0; ; round++ {
				for range 5 {
					a := f.nodes[f.r.IntN(len(f.nodes))]
					if round < 300 && a.ill == 0 && f.r.IntN(25) == 0 {
						f.fail(a, 1+f.r.IntN(2))
					}
					f.step(a)
				}
				time.Sleep(time.Duration(f.r.IntN(400)) * time.Millisecond)
				if f.r.IntN(10) == 0 {
					stop()
					_, stop = start(t, f.s)
				}
				if f.r.IntN(17) == 0 {
					stopOther()
					_, stopOther = start(t, f.s)
				}
				left := slices.ContainsFunc(f.nodes, func(a *repairing) bool { return a.ill > 0 })
				if t.Failed() || round > 300 && !left {
					break
				}
				if round > 20000 {
					t.Errorf("seed %d: devices are ill: %v", seed, f.s.get(policyPath)["status"])
					break
				}
			}
			stop()
			stopOther()
			t.Logf("%d devices repaired", f.done)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestRepairLimits: shares are of the nodes and devices that the policy governs.
func TestRepairLimits(t *testing.T) {
	v := view{nodes: map[string]*Node{}}
	d := &verdict{policy: &Policy{}, members: map[string][]string{}}
	for i := range 40 {
		n := &Node{}
		n.Name = fmt.Sprintf("n%02d", i)
		n.Labels = packed(n.Name, map[string]string{
			kube.Prefix + kind + ".count": map[bool]string{true: "4000000000", false: "8"}[i == 0],
		})
		v.nodes[n.Name] = n
		d.members[n.Name] = []string{kind}
	}
	b := &accel.RepairBudget{MaxParallel: "10%", MaxDevices: "5%", Domain: "rack", Paused: true}
	d.policy.Spec.Repair = b
	want := RepairLimits{
		Nodes: 4, Devices: (39*8 + 64) / 20, PerDomain: 1, DomainBreaker: true, Breaker: 4, Timeout: time.Hour,
		Paused: true,
	}
	if diff := cmp.Diff(want, v.repairLimits(d)); diff != "" {
		t.Error(diff)
	}
	*b = accel.RepairBudget{Timeout: "5m", MaxPerDomain: 3, Domain: "rack", Breaker: "7"}
	want = RepairLimits{Nodes: 1, PerDomain: 3, DomainBreaker: true, Breaker: 7, Timeout: 5 * time.Minute}
	if diff := cmp.Diff(want, v.repairLimits(d)); diff != "" {
		t.Error(diff)
	}
	d.members = map[string][]string{}
	maps.Copy(d.members, map[string][]string{"n01": {kind}})
	*b = accel.RepairBudget{}
	if got := v.repairLimits(d).Breaker; got != 2 {
		t.Errorf("of one node: %d", got)
	}
}
