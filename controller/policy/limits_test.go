package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// otherPath is the path of the second policy.
const otherPath = kube.PoliciesPath + "/other"

// labelsOf returns the labels of a kind that serves in a version.
func labelsOf(kind, version string) object {
	return object{
		kube.Prefix + "driver-container-" + kind: "ready", kube.Prefix + kind + ".driver-version": version,
	}
}

// kindsPolicy orders version 2 of some kinds, within limits.
func kindsPolicy(upgrade object, kinds ...string) object {
	all := object{}
	for _, kind := range kinds {
		all[kind] = object{"driver": object{"version": "2"}}
	}
	return object{"spec": object{"kinds": all, "upgrade": upgrade}}
}

// upgrader is what a node's agent does about one kind: it acts when it has read one node object that has both the grant
// and its own report.
type upgrader struct {
	node, kind string
	seen       object // what it has read, which may be stale
	acts       bool
}

// hosts are well-behaved nodes with several kinds.
type hosts struct {
	t     *testing.T
	s     *server
	r     *rand.Rand
	all   []*upgrader
	limit int
	most  int // how many nodes have acted at one time
}

// step lets one kind of a node do one thing.
func (h *hosts) step(u *upgrader) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	now := h.s.objects[nodePath(u.node)]
	if u.seen == nil || h.r.IntN(3) > 0 {
		u.seen = clone(now)
	}
	report, granted := accel.ReportAnnotation+u.kind, accel.ParseGrant(annotation(u.seen, accel.GrantAnnotation+u.kind))
	said := accel.ParseUpgradeReport(annotation(u.seen, report))
	say := func(text string, labels object) {
		patch := annotate(report, text)
		part(patch, "metadata")["labels"] = labels
		h.s.editLocked(nodePath(u.node), patch)
		u.seen = clone(h.s.objects[nodePath(u.node)]) // the answer to its own write
	}
	switch {
	case u.acts && h.r.IntN(3) == 0:
		u.acts = false
		say("", labelsOf(u.kind, "2"))
	case u.acts:
		say("upgrading 2", object{kube.Prefix + "driver-container-" + u.kind: "pending"})
	case said.Phase == accel.ReportUpgrading && granted.Version == "2":
		u.acts = true
		h.check()
	case said.Phase == accel.ReportWaiting && granted.Version == "2":
		say("upgrading 2", object{})
	case !u.done(now) && said.Phase != accel.ReportWaiting:
		say("waiting 2", object{})
	}
}

// done reports whether the kind serves version 2.
func (u *upgrader) done(node object) bool {
	labels := part(part(node, "metadata"), "labels")
	return labels[kube.Prefix+u.kind+".driver-version"] == "2" &&
		labels[kube.Prefix+"driver-container-"+u.kind] == "ready"
}

// check counts the nodes that act. The server is locked.
func (h *hosts) check() {
	acting := map[string]bool{}
	for _, u := range h.all {
		if u.acts {
			acting[u.node] = true
		}
	}
	if h.most = max(h.most, len(acting)); len(acting) > h.limit {
		h.t.Errorf("%d nodes act at a time, the limit is %d: %v", len(acting), h.limit, acting)
	}
}

// behind counts the kinds that have not finished.
func (h *hosts) behind() (n int) {
	for _, u := range h.all {
		if !u.done(h.s.get(nodePath(u.node))) {
			n++
		}
	}
	return n
}

// TestThreeKindsTwoPolicies: two policies order the upgrades of three kinds on the same nodes. However the requests of
// two controllers fail and whenever one is killed, no more nodes act at a time than either allows, and in the end all
// have finished.
func TestThreeKindsTwoPolicies(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			h := &hosts{t: t, s: newServer(seed), r: rand.New(rand.NewPCG(seed, 9)), limit: 1 + int(seed%2)}
			h.s.faults, h.s.late = 4, 300*time.Millisecond
			for i := range 6 {
				name, labels := fmt.Sprint("n", i), object{}
				for _, kind := range []string{"a-gpu", "b-nic", "c-npu"} {
					merge(labels, labelsOf(kind, "1"))
					h.all = append(h.all, &upgrader{node: name, kind: kind})
				}
				h.s.edit(nodePath(name), aNode(labels))
			}
			h.s.edit(policyPath, kindsPolicy(object{"maxParallel": h.limit}, "a-gpu", "c-npu"))
			h.s.edit(otherPath, kindsPolicy(object{"maxParallel": h.limit}, "b-nic"))
			h.s.check = h.check
			_, stop := start(t, h.s)
			_, stopOther := start(t, h.s)
			for round := 0; h.behind() > 0 && !t.Failed(); round++ {
				for range 3 {
					h.step(h.all[h.r.IntN(len(h.all))])
				}
				time.Sleep(time.Duration(h.r.IntN(400)) * time.Millisecond)
				if h.r.IntN(10) == 0 {
					stop()
					_, stop = start(t, h.s)
				}
				if h.r.IntN(17) == 0 {
					stopOther()
					_, stopOther = start(t, h.s)
				}
				if round > 20000 {
					t.Errorf("seed %d: %d are behind: %v, %v", seed, h.behind(), h.s.get(policyPath)["status"],
						h.s.get(otherPath)["status"])
				}
			}
			stop()
			stopOther()
			if h.most != h.limit {
				t.Errorf("seed %d: %d nodes acted at a time, the limit is %d", seed, h.most, h.limit)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// holders returns the nodes with slots, by policy.
func holders(t *testing.T, s *server) (out string) {
	t.Helper()
	for _, name := range []string{policyPath, otherPath} {
		for _, x := range list(part(s.get(name), "status")["slots"]) {
			out += fmt.Sprint(x.(object)["node"], " ")
		}
		out += "/"
	}
	return out
}

// TestLimitsOfTwoPolicies: a slot counts against the limits of each policy that governs its node, and a node counts
// once.
func TestLimitsOfTwoPolicies(t *testing.T) {
	one, two, many := object{"maxParallel": 1}, object{"maxParallel": 2}, object{"maxParallel": 9}
	without := object{"maxParallel": 9, "maxUnavailable": 1}
	for name, c := range map[string]struct {
		nodes, others  any // which nodes the first and the second policy select; nil for all
		upgrade, other object
		want           string
	}{
		"one at a time":            {nil, nil, one, one, "a /a /"},
		"two at a time":            {nil, nil, two, two, "a b /a b /"},
		"the first allows one":     {nil, nil, one, two, "a /a /"},
		"the second allows one":    {nil, nil, two, one, "a /a /"},
		"the second has two nodes": {nil, object{"pool": "y"}, one, two, "a //"},
		"no node in common":        {object{"pool": "x"}, object{"pool": "y"}, one, one, "a /b /"},
		"the first keeps the rest": {nil, nil, without, many, "a /a /"},
		"the second does":          {nil, nil, many, without, "a /a /"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(1)
				for node, pool := range map[string]string{"a": "x", "b": "y", "c": "y"} {
					labels := labelsOf("a-gpu", "1")
					merge(labels, labelsOf("b-nic", "1"))
					labels["pool"] = pool
					s.edit(nodePath(node), aNode(labels))
					s.edit(nodePath(node), annotate(accel.ReportAnnotation+"a-gpu", "waiting 2",
						accel.ReportAnnotation+"b-nic", "waiting 2"))
				}
				s.edit(policyPath, kindsPolicy(c.upgrade, "a-gpu"))
				s.edit(otherPath, kindsPolicy(c.other, "b-nic"))
				s.edit(policyPath, object{"spec": object{"nodeSelector": c.nodes}})
				s.edit(otherPath, object{"spec": object{"nodeSelector": c.others}})
				_, stop := start(t, s)
				defer stop()
				wait(time.Minute)
				if got := holders(t, s); got != c.want {
					t.Errorf("%q have slots, want %q", got, c.want)
				}
			})
		})
	}
}

// TestOneTooMany: two controllers have given slots of two policies to two nodes at the same moment. Neither node gets a
// slot for another kind on top, and the slot that its node does not know of is withdrawn.
func TestOneTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, node := range []string{"a", "b"} {
			labels := labelsOf("a-gpu", "1")
			merge(labels, labelsOf("b-nic", "1"))
			s.edit(nodePath(node), aNode(labels))
		}
		const since = "2026-03-04T12:00:00Z"
		s.edit(nodePath("a"), annotate(accel.ReportAnnotation+"a-gpu", "waiting 2", accel.ReportAnnotation+"b-nic", "waiting 2"))
		s.edit(nodePath("b"), annotate(accel.ReportAnnotation+"a-gpu", "upgrading 2", accel.GrantAnnotation+"a-gpu", "2 "+since))
		s.edit(policyPath, kindsPolicy(object{}, "a-gpu"))
		s.edit(otherPath, kindsPolicy(object{}, "b-nic"))
		slot := func(node, kind string) object {
			return object{"status": object{"slots": []any{object{"node": node, "kind": kind, "version": "2", "since": since}}}}
		}
		s.edit(policyPath, slot("b", "a-gpu"))
		s.edit(otherPath, slot("a", "b-nic"))
		s.check = func() {
			for _, kind := range []string{"a-gpu", "b-nic"} {
				if g := accel.ParseGrant(annotation(s.objects[nodePath("a")], accel.GrantAnnotation+kind)); g.Version != "" {
					t.Errorf("a is told of a slot for %s while b acts", kind)
				}
			}
		}
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		if got := holders(t, s); got != "b //" {
			t.Errorf("%q have slots", got)
		}
	})
}

// TestSlotNobodyKnows: if two controllers give slots of two policies at the same moment, no node is told before one of
// the slots has been withdrawn.
func TestSlotNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, node := range []string{"a", "b"} {
			labels := labelsOf("a-gpu", "1")
			merge(labels, labelsOf("b-nic", "1"))
			s.edit(nodePath(node), aNode(labels))
		}
		s.edit(nodePath("a"), annotate(accel.ReportAnnotation+"a-gpu", "waiting 2"))
		s.edit(nodePath("b"), annotate(accel.ReportAnnotation+"b-nic", "waiting 2"))
		s.edit(policyPath, kindsPolicy(object{}, "a-gpu"))
		s.edit(otherPath, kindsPolicy(object{}, "b-nic"))
		granted := func() (n int) {
			for node, kind := range map[string]string{"a": "a-gpu", "b": "b-nic"} {
				if accel.ParseGrant(annotation(s.objects[nodePath(node)], accel.GrantAnnotation+kind)).Version != "" {
					n++
				}
			}
			return n
		}
		s.check = func() {
			if granted() > 1 {
				t.Error("two nodes are told of slots at a time")
			}
			both := true
			for _, name := range []string{policyPath, otherPath} {
				both = both && s.objects[name] != nil && len(list(part(s.objects[name], "status")["slots"])) > 0
			}
			if both && granted() > 0 {
				t.Error("a node is told of its slot while there is one too many")
			}
		}
		s.refuse = func(method, path string, _ object) error {
			if method == "PATCH" && path == policyPath+"/status" && s.objects[otherPath]["status"] == nil {
				// Another controller that has not seen that a waits gives the slot of the other policy now.
				s.editLocked(otherPath, object{"status": object{"slots": []any{object{
					"node": "b", "kind": "b-nic", "version": "2", "since": "2026-03-04T12:00:00Z",
				}}}})
			}
			return nil
		}
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if granted() != 1 {
			t.Errorf("%d nodes are told of a slot", granted())
		}
	})
}

// TestUnclearReport: a node whose report cannot be read keeps its slot, and no other node gets one in its place.
func TestUnclearReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b"} {
			s.edit(nodePath(name), aNode(nil))
			s.edit(nodePath(name), annotate(wordKey, "waiting 2"))
		}
		s.edit(policyPath, fleetPolicy("2", object{}, nil))
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
		wait(time.Minute)
		for _, text := range []string{"upgrading\u202e 2", "done 2", "upgrading 2 x y z"} {
			s.edit(nodePath("a"), object{"metadata": object{
				"labels": object{versionKey: "2"}, "annotations": object{wordKey: text},
			}})
			wait(time.Minute)
			if got := status(t, s).Slots; len(got) != 1 || got[0].Node != "a" {
				t.Errorf("%q: %+v", text, got)
			}
		}
	})
}

// TestCordons: acceld ends only the cordon that it has set itself, whatever happens to the node in its slot.
func TestCordons(t *testing.T) {
	cordon := func(on any) object { return object{"spec": object{"unschedulable": on}} }
	for name, c := range map[string]struct {
		during   func(t *testing.T, s *server) // what others do while the node has its slot
		restart  bool
		cordoned bool // when the slot is over
	}{
		"nothing":   {func(*testing.T, *server) {}, false, false},
		"a restart": {func(*testing.T, *server) {}, true, false},
		"it is uncordoned": {func(t *testing.T, s *server) {
			s.edit(nodePath("a"), cordon(nil))
			wait(time.Minute)
			if part(s.get(nodePath("a")), "spec")["unschedulable"] != nil {
				t.Error("it is cordoned again")
			}
		}, false, false},
		"it is uncordoned and cordoned": {func(_ *testing.T, s *server) {
			s.edit(nodePath("a"), cordon(nil))
			wait(time.Minute)
			s.edit(nodePath("a"), cordon(true))
		}, false, true},
		"so before and after a restart": {func(_ *testing.T, s *server) {
			s.edit(nodePath("a"), cordon(nil))
			wait(time.Minute)
			s.edit(nodePath("a"), cordon(true))
		}, true, true},
		"so within one moment": {func(_ *testing.T, s *server) {
			s.edit(nodePath("a"), cordon(nil))
			s.edit(nodePath("a"), cordon(true))
			s.edit(nodePath("a"), object{"metadata": object{"managedFields": []any{object{
				"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1",
				"fieldsV1": object{"f:spec": object{"f:unschedulable": object{}}},
			}}}})
		}, false, true},
		"its mark is removed": {func(_ *testing.T, s *server) {
			s.edit(nodePath("a"), annotate(cordonAnnotation, ""))
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(1)
				s.edit(nodePath("a"), aNode(nil))
				s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
				s.edit(nodePath("a"), object{"metadata": object{"managedFields": []any{object{
					"manager": fieldManager, "operation": "Update", "fieldsType": "FieldsV1",
					"fieldsV1": object{"f:spec": object{"f:unschedulable": object{}}},
				}}}})
				s.edit(policyPath, fleetPolicy("2", object{"cordon": true}, nil))
				_, stop := start(t, s)
				defer func() { stop() }()
				wait(time.Minute)
				n := s.get(nodePath("a"))
				if part(n, "spec")["unschedulable"] != true || annotation(n, grantKey) == "" {
					t.Fatalf("%v", n)
				}
				s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
				c.during(t, s)
				if c.restart {
					stop()
					_, stop = start(t, s)
				}
				wait(time.Minute)
				s.edit(nodePath("a"), object{"metadata": object{
					"labels": object{versionKey: "2"}, "annotations": object{wordKey: nil},
				}})
				wait(time.Minute)
				n = s.get(nodePath("a"))
				_, marked := part(part(n, "metadata"), "annotations")[cordonAnnotation]
				if got := part(n, "spec")["unschedulable"] == true; got != c.cordoned || marked || len(status(t, s).Slots) > 0 {
					t.Errorf("cordoned: %v, marked: %v", got, marked)
				}
				writes := len(s.written())
				wait(time.Hour)
				if len(s.written()) != writes {
					t.Errorf("writes while nothing happens: %v", s.written()[writes:])
				}
			})
		})
	}
}

// TestCordonedBefore: a node that somebody else has cordoned gets no slot, and stays cordoned when it would be its
// turn.
func TestCordonedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b"} {
			s.edit(nodePath(name), aNode(nil))
			s.edit(nodePath(name), annotate(wordKey, "waiting 2"))
		}
		s.edit(nodePath("a"), object{"spec": object{"unschedulable": true}})
		s.edit(policyPath, fleetPolicy("2", object{"cordon": true}, nil))
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		if got := status(t, s).Slots; len(got) != 1 || got[0].Node != "b" {
			t.Errorf("%+v", got)
		}
		s.edit(nodePath("b"), object{"metadata": object{
			"labels": object{versionKey: "2"}, "annotations": object{wordKey: nil},
		}})
		wait(time.Minute)
		if part(s.get(nodePath("a")), "spec")["unschedulable"] != true ||
			part(s.get(nodePath("b")), "spec")["unschedulable"] != nil || len(status(t, s).Slots) > 0 {
			t.Errorf("%v, %v", s.get(nodePath("a")), s.get(nodePath("b")))
		}
	})
}

// TestCanaryOfParameters: when only the parameters of a driver change, no node begins before the canary node has them,
// even if another node has read the policy first.
func TestCanaryOfParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for name, labels := range map[string]object{"a": {}, "z": {"canary": "true"}} {
			s.edit(nodePath(name), aNode(labels))
			s.edit(nodePath(name), object{"metadata": object{"labels": object{versionKey: "2"}}})
			s.edit(nodePath(name), annotate(accel.ServedAnnotation+kind, digestOf(driverOf("2", ""))))
		}
		s.edit(policyPath, fleetPolicy("2", object{"canary": object{"nodeSelector": object{"canary": "true"}}}, nil))
		_, stop := start(t, s)
		defer stop()
		holds := func(when, want string) {
			t.Helper()
			wait(time.Minute)
			got := ""
			for _, x := range status(t, s).Slots {
				got += x.Node
			}
			if got != want {
				t.Errorf("%s: %q has a slot, want %q: %+v", when, got, want, status(t, s).Blocked)
			}
		}
		holds("all are as asked", "")
		if got := status(t, s); got.Nodes.Ready != 2 {
			t.Errorf("%+v", got)
		}
		s.edit(policyPath, object{"spec": object{"kinds": object{kind: object{"driver": object{
			"parameters": object{"edu": object{"speed": "9"}},
		}}}}})
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		holds("the canary node has not read the policy", "")
		s.edit(nodePath("z"), annotate(wordKey, "waiting 2"))
		holds("both have", "z")
		s.edit(nodePath("z"), annotate(wordKey, "", accel.ServedAnnotation+kind, digestOf(driverOf("2", "9"))))
		holds("the canary node is done", "a")
	})
}

// TestNodeIsBounded: what is kept of a node is small and has a form, whatever its agent writes. Of marks that cannot be
// read there are none.
func TestNodeIsBounded(t *testing.T) {
	s := newServer(1)
	long := strings.Repeat("x", 1<<20)
	s.edit(nodePath("a"), aNode(nil))
	s.edit(nodePath("a"), annotate(accel.CardsAnnotation, "[]", accel.RoomAnnotation, "",
		taintsAnnotation, "["+strings.Repeat(" ", maxMarks)+"]",
		validationAnnotation+kind, `{"outcome":"passed"}`+strings.Repeat(" ", maxMarks)))
	s.edit(nodePath("a"), object{"status": object{"conditions": []any{
		object{"type": kube.ConditionType, "status": "False", "reason": "x\n" + long, "message": long},
	}}})
	n := &Node{}
	if err := s.Do(t.Context(), "GET", nodePath("a"), nil, nil, n); err != nil {
		t.Fatal(err)
	}
	c := n.condition(kube.ConditionType)
	_, kept := n.Annotations.find(accel.CardsAnnotation)
	_, room := n.Annotations.find(accel.RoomAnnotation)
	if kept || room || c.Reason != "Unclear" || len(c.Message) > maxText+len("…") {
		t.Errorf("cards or room kept: %v, reason %.80q, %d bytes of message", kept || room, c.Reason, len(c.Message))
	}
	if got := n.added(); got != nil {
		t.Errorf("%d taints are acceld's", len(got))
	}
	if got := n.validated(kind); got != (validated{}) {
		t.Errorf("%+v", got)
	}
}

// TestNotCordonedAgain: a node that somebody uncordons while it is drained is not cordoned again.
func TestNotCordonedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		s.edit("/api/v1/namespaces/team/pods/web", object{
			"metadata": object{"namespace": "team"},
			"spec":     object{"nodeName": "a"}, "status": object{"phase": "Running"},
		})
		s.edit(policyPath, fleetPolicy("2", object{"drain": object{}}, nil))
		s.refuse = func(_, path string, _ object) error {
			if strings.HasSuffix(path, "/eviction") {
				return fmt.Errorf("the budget forbids it")
			}
			return nil
		}
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		if part(s.get(nodePath("a")), "spec")["unschedulable"] != true {
			t.Fatalf("%v", s.get(nodePath("a")))
		}
		s.edit(nodePath("a"), object{"spec": object{"unschedulable": nil}})
		wait(10 * time.Minute)
		if n := s.get(nodePath("a")); part(n, "spec")["unschedulable"] != nil || annotation(n, grantKey) != "" {
			t.Errorf("%v", n)
		}
	})
}
