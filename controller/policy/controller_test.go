package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

const (
	kind       = "qemu-edu"
	policyPath = kube.PoliciesPath + "/fleet"
	servesKey  = kube.Prefix + "driver-container-" + kind
	versionKey = kube.Prefix + kind + ".driver-version"
	wordKey    = accel.ReportAnnotation + kind
	grantKey   = accel.GrantAnnotation + kind
)

// aNode is a node with one kind, ready in version 1.
func aNode(labels object) object {
	all := object{servesKey: "ready", kube.Prefix + kind + ".count": "1", versionKey: "1"}
	merge(all, labels)
	return object{"metadata": object{"labels": all}, "status": object{"conditions": []any{
		object{"type": "Ready", "status": "True"}, object{
			"type": "AcceleratorsReady", "status": "True",
			"reason": "Ready", "message": "fine",
		},
	}}}
}

func nodePath(name string) string { return nodesPath + "/" + name }

// fleetPolicy asks for a version, with limits.
func fleetPolicy(version string, upgrade, more object) object {
	spec := object{"kinds": object{kind: object{"driver": object{"version": version}}}}
	if upgrade != nil {
		spec["upgrade"] = upgrade
	}
	merge(spec, more)
	return object{"spec": spec}
}

// start runs a controller until stop is called.
func start(t *testing.T, s *server) (c *Controller, stop func()) {
	t.Helper()
	c = stopped(t, s)
	return c, runs(t, c)
}

// runs runs a controller until it is stopped.
func runs(t *testing.T, c *Controller) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// stopped returns a controller that does not run.
func stopped(t *testing.T, s *server) *Controller {
	t.Helper()
	c, err := New(Options{
		API: s, Namespace: "acceld-system", Log: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gauges returns the metrics whose value is not zero, in Prometheus' text format.
func gauges(t *testing.T, c *Controller, names ...string) string {
	t.Helper()
	families, err := c.o.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if !slices.Contains(names, f.GetName()) || value == 0 {
				continue
			}
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			lines = append(lines, fmt.Sprint(line, " ", value))
		}
	}
	return strings.Join(lines, "\n")
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func status(t *testing.T, s *server) Status {
	t.Helper()
	var p Policy
	b, err := json.Marshal(s.get(policyPath))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Status
}

func annotation(o object, key string) string {
	text, _ := part(part(o, "metadata"), "annotations")[key].(string)
	return text
}

func annotate(pairs ...string) object {
	a := object{}
	for i := 0; i < len(pairs); i += 2 {
		a[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "" {
			a[pairs[i]] = nil
		}
	}
	return object{"metadata": object{"annotations": a}}
}

// Nodes are granted one after the other, each when the previous one serves. Nothing is written while nothing happens.
func TestOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b"} {
			s.edit(nodePath(name), aNode(nil))
		}
		s.edit(nodePath("cpu"), object{"metadata": object{"labels": object{"x": "y"}}})
		s.edit(policyPath, fleetPolicy("2", object{}, nil))
		c, stop := start(t, s)
		defer stop()
		lastWritten := func(want string) {
			t.Helper()
			if got := gauges(t, c, "acceld_controller_policies_ready", "acceld_policy_problem"); got != want {
				t.Errorf("the metrics say %q, want %q", got, want)
			}
		}
		lastWritten("")
		wait(10 * time.Second)
		lastWritten("acceld_controller_policies_ready 1")
		if got := status(t, s); got.Nodes != (Nodes{Matched: 2, Waiting: 2}) || len(got.Slots) != 0 ||
			got.Blocked[0] != (Blocked{"NotReported", 2, "a: qemu-edu"}) {
			t.Errorf("before the nodes have it ready: %+v", got)
		}
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		s.edit(nodePath("b"), annotate(wordKey, "waiting 2"))
		wait(10 * time.Second)
		got := status(t, s)
		if len(got.Slots) != 1 || got.Slots[0].Node != "a" ||
			got.Nodes != (Nodes{Matched: 2, Upgrading: 1, Waiting: 1}) {
			t.Errorf("%+v", got)
		}
		if g := accel.ParseGrant(annotation(s.get(nodePath("a")), grantKey)); g.Version != "2" ||
			!g.Since.Equal(got.Slots[0].Since) || annotation(s.get(nodePath("b")), grantKey) != "" {
			t.Errorf("a has %+v", g)
		}
		s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
		wait(time.Minute)
		writes := len(s.written())
		wait(time.Hour)
		if len(s.written()) != writes {
			t.Errorf("writes while nothing happens: %v", s.written()[writes:])
		}
		s.edit(nodePath("a"), object{"metadata": object{
			"labels":      object{versionKey: "2"},
			"annotations": object{wordKey: nil},
		}})
		wait(10 * time.Second)
		if g := annotation(s.get(nodePath("a")), grantKey); !strings.HasPrefix(g, "- ") {
			t.Errorf("a keeps its grant: %q", g)
		}
		if got := status(t, s); len(got.Slots) != 1 || got.Slots[0].Node != "b" || got.Nodes.Ready != 1 {
			t.Errorf("%+v", got)
		}
		s.edit(nodePath("b"), annotate(wordKey, "failed 2 RolledBack"))
		wait(10 * time.Second)
		got = status(t, s)
		if got.Conditions[1].Reason != "Stopped" || got.Nodes != (Nodes{Matched: 2, Ready: 1, Failed: 1}) ||
			got.Blocked[0].Reason != "RolledBack" || len(got.Slots) != 0 {
			t.Errorf("%+v", got)
		}
		lastWritten("acceld_controller_policies_ready 1\nacceld_policy_problem Ready fleet Stopped 1")
	})
}

// TestOneAfterTheOtherOfTwoKinds: the limits hold for all kinds of a policy together.
func TestOneAfterTheOtherOfTwoKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const other = "other-gpu" // it is decided before kind
		s := newServer(1)
		waiting := func(name, kind string) {
			s.edit(nodePath(name), object{
				"metadata": object{
					"labels": object{
						kube.Prefix + "driver-container-" + kind: "ready",
						kube.Prefix + kind + ".driver-version":   "1",
					},
					"annotations": object{accel.ReportAnnotation + kind: "waiting 2"},
				},
				"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}},
			})
		}
		done := func(name, kind string) {
			s.edit(nodePath(name), object{"metadata": object{
				"labels":      object{kube.Prefix + kind + ".driver-version": "2"},
				"annotations": object{accel.ReportAnnotation + kind: nil},
			}})
		}
		holds := func(want string) {
			t.Helper()
			wait(10 * time.Second)
			got := ""
			for _, x := range status(t, s).Slots {
				got += x.Node
			}
			if got != want {
				t.Errorf("%q have slots, want %q: %+v", got, want, status(t, s))
			}
		}
		waiting("a", kind)
		waiting("b", other)
		s.edit(policyPath, fleetPolicy("2", object{"maxParallel": 1},
			object{"kinds": object{other: object{"driver": object{"version": "2"}}}}))
		_, stop := start(t, s)
		defer stop()
		holds("b")
		done("b", other)
		holds("a")
		waiting("c", other)
		holds("a")
		done("a", kind)
		holds("c")
		done("c", other)
		holds("")
		waiting("d", kind)
		holds("d")
		s.edit(nodePath("d"), annotate(wordKey, "failed 2 RolledBack"))
		waiting("e", other)
		holds("")
		if got := status(t, s); got.Conditions[1].Reason != "Stopped" {
			t.Errorf("a node has failed: %+v", got)
		}
	})
}

// TestChangedWhileActing: whatever happens to the policy, a node that replaces its driver keeps its slot until it has
// finished, so that the limits are kept when the policy is reverted.
func TestChangedWhileActing(t *testing.T) {
	for name, c := range map[string]struct{ change, back object }{
		"dry run": {object{"dryRun": true}, object{"dryRun": false}},
		"another kind": {
			object{"kinds": object{kind: nil, "other-gpu": object{}}},
			object{"kinds": object{kind: object{"driver": object{"version": "2"}}, "other-gpu": nil}},
		},
		"no upgrades":    {object{"upgrade": nil}, object{"upgrade": object{"maxParallel": 1}}},
		"of other nodes": {object{"nodeSelector": object{"pool": "other"}}, object{"nodeSelector": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(1)
				for _, name := range []string{"a", "b"} {
					s.edit(nodePath(name), aNode(nil))
					s.edit(nodePath(name), annotate(wordKey, "waiting 2"))
				}
				s.edit(policyPath, fleetPolicy("2", object{"maxParallel": 1}, nil))
				_, stop := start(t, s)
				defer stop()
				granted := func() (names string) {
					for _, name := range []string{"a", "b"} {
						if accel.ParseGrant(annotation(s.get(nodePath(name)), grantKey)).Version == "2" {
							names += name
						}
					}
					return names
				}
				wait(time.Minute)
				s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
				wait(time.Minute)
				for _, change := range []object{c.change, c.back} {
					s.edit(policyPath, object{"spec": change})
					wait(time.Minute)
					if got := status(t, s).Slots; len(got) != 1 || got[0].Node != "a" || granted() != "a" {
						t.Errorf("after %v: %s may act, slots %+v", change, granted(), got)
					}
				}
				s.edit(nodePath("a"), object{"metadata": object{
					"labels":      object{versionKey: "2"},
					"annotations": object{wordKey: nil},
				}})
				wait(time.Minute)
				if granted() != "b" {
					t.Errorf("when a serves: %q may act", granted())
				}
			})
		})
	}
}

// TestDeletedWhileActing: a node that is replacing its driver when its policy is deleted counts for the next policy.
func TestDeletedWhileActing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b"} {
			s.edit(nodePath(name), aNode(nil))
			s.edit(nodePath(name), annotate(wordKey, "waiting 2"))
		}
		before := kube.PoliciesPath + "/before"
		s.edit(before, fleetPolicy("2", object{"maxParallel": 1}, object{"priority": 5}))
		s.edit(policyPath, fleetPolicy("2", object{"maxParallel": 1}, nil))
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		if g := accel.ParseGrant(annotation(s.get(nodePath("a")), grantKey)); g.Version != "2" {
			t.Fatalf("a has %+v", g)
		}
		s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
		s.edit(before, object{"metadata": object{"deletionTimestamp": "2026-03-04T13:00:00Z"}})
		wait(time.Minute)
		if got := status(t, s); s.get(before) != nil || len(got.Slots) != 0 || got.Nodes.Matched != 2 {
			t.Errorf("while a is acting: %+v, policy %v", got, s.get(before))
		}
		s.edit(nodePath("a"), object{"metadata": object{
			"labels":      object{versionKey: "2"},
			"annotations": object{wordKey: nil},
		}})
		wait(time.Minute)
		if got := status(t, s).Slots; len(got) != 1 || got[0].Node != "b" {
			t.Errorf("when a serves: %+v", got)
		}
	})
}

// simulated is a node's agent. It acts when it has read one node object that has both the grant and its own report.
type simulated struct {
	name   string
	acting string // the version that it upgrades to
	seen   object // what it has read, which may be stale
}

// fleet is well-behaved nodes, an unreliable server, and controllers that are killed.
type fleet struct {
	t         *testing.T
	s         *server
	r         *rand.Rand
	agents    []*simulated
	want, bad string
	limits    struct{ parallel, unavailable, stop int }
}

// driverOf is what a policy asks of a driver.
func driverOf(version, speed string) accel.KindDriverOverride {
	d := accel.KindDriverOverride{Version: version}
	if speed != "" {
		d.Parameters = map[string]map[string]string{"edu": {"speed": speed}}
	}
	return d
}

// digestOf is how an agent says that a driver is as the policy asks.
func digestOf(d accel.KindDriverOverride) string {
	var p accel.Policy
	p.Spec.Kinds = map[string]accel.KindConfig{kind: {Driver: d}}
	return p.DriverDigest(kind)
}

// step lets an agent do one thing.
func (f *fleet) step(a *simulated) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	now := f.s.objects[nodePath(a.name)]
	if a.seen == nil || f.r.IntN(3) > 0 {
		a.seen = clone(now)
	}
	upgradeReport, grant := accel.ParseUpgradeReport(annotation(a.seen, wordKey)),
		accel.ParseGrant(annotation(a.seen, grantKey))
	version := part(part(now, "metadata"), "labels")[versionKey]
	say := func(text string, labels object) {
		patch := annotate(wordKey, text)
		if labels != nil {
			part(patch, "metadata")["labels"] = labels
		}
		f.s.editLocked(nodePath(a.name), patch)
		a.seen = clone(f.s.objects[nodePath(a.name)]) // the answer to its own write
	}
	switch {
	case a.acting != "" && f.r.IntN(4) == 0:
		v := a.acting
		a.acting = ""
		if v == f.bad {
			say("failed "+v+" RolledBack", object{servesKey: "ready"})
		} else {
			say("", object{servesKey: "ready", versionKey: v})
			f.s.editLocked(nodePath(a.name), annotate(accel.ServedAnnotation+kind, digestOf(driverOf(v, ""))))
		}
	case a.acting != "":
		if part(part(now, "metadata"), "labels")[servesKey] == "ready" {
			say("upgrading "+a.acting, object{servesKey: "pending"})
		}
	case upgradeReport.Phase == accel.ReportUpgrading && grant.Version == upgradeReport.Version &&
		upgradeReport.Version == f.want:
		a.acting = upgradeReport.Version
		f.check()
	case upgradeReport.Phase == accel.ReportWaiting && grant.Version == upgradeReport.Version &&
		upgradeReport.Version == f.want:
		say("upgrading "+f.want, nil)
	case version == f.want && upgradeReport != accel.UpgradeReport{}:
		say("", nil)
	case version != f.want && upgradeReport.Version != f.want, upgradeReport.Phase == accel.ReportUpgrading:
		say("waiting "+f.want, nil)
	}
}

// check checks every write against the limits. The server is locked.
func (f *fleet) check() {
	p := f.s.objects[policyPath]
	if p == nil {
		return
	}
	held := map[string]bool{}
	for _, x := range list(part(p, "status")["slots"]) {
		held[fmt.Sprint(x.(object)["node"])] = true
	}
	acting, without, failed := 0, 0, 0
	for _, a := range f.agents {
		labels := part(part(f.s.objects[nodePath(a.name)], "metadata"), "labels")
		if a.acting != "" {
			acting++
			if !held[a.name] {
				f.t.Errorf("%s acts without a slot: %v", a.name, p["status"])
			}
		}
		if labels[servesKey] != "ready" {
			without++
		}
		if w := accel.ParseUpgradeReport(annotation(f.s.objects[nodePath(a.name)],
			wordKey)); w.Phase == accel.ReportFailed &&
			w.Version == f.bad {
			failed++
		}
	}
	l := f.limits
	if len(held) > l.parallel || acting > l.parallel || without > l.unavailable || failed > l.stop+l.parallel-1 {
		f.t.Errorf("%d slots, %d act, %d without, %d failed; limits %+v", len(held), acting, without, failed, l)
	}
}

func (f *fleet) behind() int {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	n := 0
	for _, a := range f.agents {
		if part(part(f.s.objects[nodePath(a.name)], "metadata"), "labels")[versionKey] != f.want {
			n++
		}
	}
	return n
}

// TestNeverTooMany: requests fail before or after they were carried out, watches have gaps, controllers are killed at
// any moment and two run at a time. In the order of the writes, no node ever acts without a slot and no limit is
// exceeded, and in the end every node has the wanted version.
func TestNeverTooMany(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{t: t, s: newServer(seed), r: rand.New(rand.NewPCG(seed, 7)), want: "2", bad: "3"}
			f.s.faults, f.s.late = 4, 300*time.Millisecond
			f.limits.parallel, f.limits.unavailable, f.limits.stop = 1+f.r.IntN(4), 1+f.r.IntN(4), 1+f.r.IntN(2)
			for i := range 20 {
				a := &simulated{name: fmt.Sprintf("n%02d", i)}
				labels := object{}
				if i == 11 {
					labels["canary"] = "true"
				}
				f.s.edit(nodePath(a.name), aNode(labels))
				f.agents = append(f.agents, a)
			}
			f.s.edit(policyPath, fleetPolicy("2", object{
				"maxParallel": f.limits.parallel, "maxUnavailable": f.limits.unavailable, "stopAfter": f.limits.stop,
				"canary": object{"nodeSelector": object{"canary": "true"}},
			}, nil))
			f.s.check = f.check
			_, stop := start(t, f.s)
			_, stopOther := start(t, f.s)
			for round := 0; ; round++ {
				for range 5 {
					f.step(f.agents[f.r.IntN(len(f.agents))])
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
				version := ""
				switch { // while nodes hold slots of another version, and to one that no node can load
				case round < 400 && f.r.IntN(15) == 0:
					version = []string{"2", "3", "5"}[f.r.IntN(3)]
				case round == 500:
					version = "4"
				}
				if version != "" {
					f.s.mu.Lock()
					f.want = version
					f.s.mu.Unlock()
					f.s.edit(policyPath, fleetPolicy(version, nil, nil))
				}
				if t.Failed() || round > 500 && f.behind() == 0 {
					break
				}
				if round > 20000 {
					t.Errorf("seed %d: %d nodes are behind: %v", seed, f.behind(), f.s.get(policyPath)["status"])
					break
				}
			}
			stop()
			stopOther()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A controller with a stale read withdraws nothing and grants nothing.
func TestOldReading(t *testing.T) {
	s := newServer(1)
	s.edit(nodePath("a"), aNode(nil))
	s.edit(policyPath, fleetPolicy("2", object{}, nil))
	c, err := New(Options{API: s, Namespace: "acceld-system", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	read := func() *Node {
		n := &Node{}
		if err := s.Do(t.Context(), "GET", nodePath("a"), nil, nil, n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	p := &Policy{}
	if err := s.Do(t.Context(), "GET", policyPath, nil, nil, p); err != nil {
		t.Fatal(err)
	}
	slot := Slot{Node: "a", Kind: kind, Version: "2", Since: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	old := read()
	c.grant(t.Context(), old, slot, p)
	granted := read()
	if !granted.granted(kind).Since.Equal(slot.Since) {
		t.Fatalf("not granted: %v", granted.Annotations)
	}
	s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
	if c.takeBack(t.Context(), granted, slot, p) || annotation(s.get(nodePath("a")), grantKey) == "" {
		t.Error("taken from a node that acts, seen when it did not")
	}
	s.edit(nodePath("a"), annotate(wordKey, ""))
	if !c.takeBack(t.Context(), read(), slot, p) {
		t.Error("not taken back")
	}
	c.grant(t.Context(), read(), slot, p) // another controller has read the node, but not yet that the slot is over
	if g := read().granted(kind); g.Version != "" {
		t.Errorf("granted for a slot that is over: %+v", g)
	}
	never := Slot{Node: "a", Kind: kind, Version: "2", Since: slot.Since.Add(time.Second)}
	seen := read()
	if !c.takeBack(t.Context(), seen, never, p) {
		t.Error("a slot that its node never heard of is not freed")
	}
	c.grant(t.Context(), seen, never, p)
	c.grant(t.Context(), read(), never, p)
	if g := read().granted(kind); g.Version != "" {
		t.Errorf("granted for a slot that was freed before the node heard of it: %+v", g)
	}
}

// A node is cordoned and drained before its grant, pods that may end by themselves are waited for, and acceld's
// cordon ends with the slot.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		podPath := func(name string) string { return "/api/v1/namespaces/team/pods/" + name }
		on := func(labels object, owner string) object {
			m := object{"namespace": "team", "labels": labels}
			if owner != "" {
				m["ownerReferences"] = []any{object{"kind": owner, "controller": true}}
			}
			return object{"metadata": m, "spec": object{"nodeName": "a"}, "status": object{"phase": "Running"}}
		}
		s.edit(podPath("web"), on(object{"app": "web"}, "ReplicaSet"))
		s.edit(podPath("job"), on(object{"job": "true"}, "Job"))
		s.edit(podPath("agent"), on(object{}, "DaemonSet"))
		s.edit(policyPath, fleetPolicy("2",
			object{"drain": object{"waitFor": object{"job": "true"}, "waitTimeout": "12h"}}, nil))
		budget := true
		s.refuse = func(_, path string, _ object) error {
			if budget && strings.HasSuffix(path, "/web/eviction") {
				return fmt.Errorf("the budget forbids it")
			}
			return nil
		}
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		got := status(t, s)
		if part(s.get(nodePath("a")), "spec")["unschedulable"] != true ||
			annotation(s.get(nodePath("a")), grantKey) != "" || len(got.Slots) != 1 {
			t.Fatalf("%v", s.get(nodePath("a")))
		}
		if i := slices.IndexFunc(got.Blocked, func(b Blocked) bool {
			return b.Reason == "Draining"
		}); i < 0 || !strings.Contains(got.Blocked[i].Example,
			"team/job is waited for; team/web: the budget forbids it") {
			t.Errorf("%+v", got.Blocked)
		}
		s.mu.Lock()
		budget = false
		s.mu.Unlock()
		wait(time.Minute)
		if s.get(podPath("web")) != nil || s.get(podPath("job")) == nil {
			t.Error("web stays, or the job was evicted")
		}
		wait(13 * time.Hour)
		if s.get(podPath("job")) != nil || s.get(podPath("agent")) == nil ||
			annotation(s.get(nodePath("a")), grantKey) == "" {
			t.Errorf("not drained in its time: %v", s.get(nodePath("a")))
		}
		s.edit(nodePath("a"), object{"metadata": object{
			"labels":      object{versionKey: "2"},
			"annotations": object{wordKey: nil},
		}})
		wait(time.Minute)
		if n := s.get(nodePath("a")); part(n, "spec")["unschedulable"] != nil || annotation(n, cordonAnnotation) != "" {
			t.Errorf("it stays cordoned: %v", n)
		}
	})
}

// TestDrainFollowsPolicy: a drain ends when its policy asks for none any more, and goes on under the policy's new rules
// when they change.
func TestDrainFollowsPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		drain   any // the drain that the policy asks for later
		evicts  bool
		granted bool
	}{
		"no drain":   {nil, false, true},
		"other pods": {object{"podSelector": object{"app": "batch"}}, false, true},
		"it waits":   {object{"waitFor": object{"app": "web"}}, false, false},
		"for a time": {object{"waitFor": object{"app": "web"}, "waitTimeout": "5m"}, true, false},
		"the same":   {object{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(1)
				s.edit(nodePath("a"), aNode(nil))
				s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
				s.edit("/api/v1/namespaces/team/pods/web", object{
					"metadata": object{"namespace": "team", "labels": object{"app": "web"}},
					"spec":     object{"nodeName": "a"}, "status": object{"phase": "Running"},
				})
				s.edit(policyPath, fleetPolicy("2", object{"drain": object{}}, nil))
				asked := 0
				s.refuse = func(_, path string, _ object) error {
					if strings.HasSuffix(path, "/eviction") {
						asked++
						return fmt.Errorf("the budget forbids it")
					}
					return nil
				}
				count := func() int {
					s.mu.Lock()
					defer s.mu.Unlock()
					return asked
				}
				_, stop := start(t, s)
				defer stop()
				wait(4*time.Minute - refusedAgain/2) // between two rounds
				before := count()
				s.edit(policyPath, object{"spec": object{"upgrade": object{"drain": c.drain}}})
				wait(3 * time.Minute) // longer than what is left of the five
				if n := count(); before == 0 || (n > before) != c.evicts {
					t.Errorf("asked %d times, then %d times", before, n-before)
				}
				if got := annotation(s.get(nodePath("a")), grantKey) != ""; got != c.granted {
					t.Errorf("granted: %v", got)
				}
			})
		})
	}
}

// Taints and classes come and go with a policy; those of others stay.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		theirs := object{"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-03-04T12:00:00Z"}
		s.edit(nodePath("a"), object{"spec": object{"taints": []any{theirs, object{
			"key": "also", "value": "theirs",
			"effect": "NoSchedule",
		}}}})
		s.edit(nodePath("cpu"), object{})
		s.edit(classesPath+"/taken", object{"value": 1})
		partition := object{
			"taints": []any{
				object{"key": "edu", "value": "only", "effect": "NoSchedule"},
				object{"key": "also", "value": "theirs", "effect": "NoSchedule"},
			},
			"priorityClasses": object{
				"high": object{"name": "edu-high", "value": 1000},
				"low":  object{"name": "taken", "value": -10},
			},
		}
		s.edit(policyPath, fleetPolicy("1", nil, object{"partition": partition}))
		before := s.get(nodePath("a"))["spec"]
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		taints := list(part(s.get(nodePath("a")), "spec")["taints"])
		if len(taints) != 3 || !cmp.Equal(taints[0], any(theirs)) || taints[2].(object)["key"] != "edu" ||
			s.get(nodePath("cpu"))["spec"] != nil {
			t.Errorf("%v", taints)
		}
		if s.get(classesPath + "/edu-high")["value"] != float64(1000) ||
			s.get(classesPath + "/taken")["value"] != float64(1) {
			t.Error("classes")
		}
		if got := status(t, s); !slices.ContainsFunc(got.Blocked, func(b Blocked) bool {
			return b.Reason == "PriorityClassTaken"
		}) {
			t.Errorf("%+v", got)
		}
		s.edit(policyPath, object{"metadata": object{"deletionTimestamp": "2026-03-04T13:00:00Z"}})
		wait(time.Minute)
		if diff := cmp.Diff(before, s.get(nodePath("a"))["spec"]); diff != "" ||
			annotation(s.get(nodePath("a")), taintsAnnotation) != "" {
			t.Errorf("left behind: %s", diff)
		}
		if s.get(classesPath+"/edu-high") != nil || s.get(classesPath+"/taken") == nil || s.get(policyPath) != nil {
			t.Errorf("class %v, policy %v", s.get(classesPath+"/edu-high"), s.get(policyPath))
		}
	})
}

// TestRefusedWrites: a write that the API server refuses is repeated less and less often. It keeps a deleted policy
// whose taint is on the node, and no other one.
func TestRefusedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		other := kube.PoliciesPath + "/other"
		tainting := func(key string) object {
			return object{"partition": object{"taints": []any{object{"key": key, "effect": "NoSchedule"}}}}
		}
		s.edit(policyPath, fleetPolicy("1", nil, tainting("edu")))
		s.edit(other, fleetPolicy("1", nil, tainting("lab")))
		s.edit(other, object{"spec": object{"nodeSelector": object{"pool": "lab"}}})
		refusing, refused := false, 0
		s.refuse = func(method, path string, _ object) error {
			if refusing && method == "PATCH" && path == nodePath("a") {
				refused++
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "a", nil)
			}
			return nil
		}
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		s.mu.Lock()
		refusing = true
		s.mu.Unlock()
		for _, name := range []string{policyPath, other} {
			s.edit(name, object{"metadata": object{"deletionTimestamp": "2026-03-04T13:00:00Z"}})
		}
		wait(10 * time.Minute)
		s.mu.Lock()
		if refused < 10 || refused >= 50 {
			t.Errorf("%d writes in ten minutes", refused)
		}
		refusing = false
		s.mu.Unlock()
		if s.get(policyPath) == nil || s.get(other) != nil {
			t.Errorf("the policy with a taint on the node: %v; the other: %v", s.get(policyPath), s.get(other))
		}
		wait(2 * time.Minute)
		if s.get(policyPath) != nil || len(list(part(s.get(nodePath("a")), "spec")["taints"])) > 0 {
			t.Errorf("policy %v, node %v", s.get(policyPath), s.get(nodePath("a")))
		}
	})
}

// TestMistakeElsewhere: a mistake in one section of a policy takes away nothing of another section.
func TestMistakeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), offering("1"))
		more := validating(false, nil)["spec"].(object)
		more["partition"] = object{
			"taints": []any{object{"key": "edu", "effect": "NoSchedule"}},
			"priorityClasses": object{
				"high":   object{"name": "edu-high", "value": 1000},
				"low":    object{"name": "edu-low", "value": -10},
				"others": []any{object{"name": "edu-mid", "value": 10}},
			},
		}
		window := func(zone string) object {
			return object{"windows": []any{object{"from": "22:00", "to": "04:00", "timeZone": zone}}}
		}
		s.edit(policyPath, fleetPolicy("1", window("UTC"), more))
		_, stop := start(t, s)
		defer stop()
		wait(10 * time.Second)
		s.edit(trialsOf(s)[0], phase("Succeeded", ""))
		wait(time.Minute)
		check := func(when string, there bool) {
			t.Helper()
			if taints := list(part(s.get(nodePath("a")), "spec")["taints"]); (len(taints) == 1) != there {
				t.Errorf("%s: taints %v", when, taints)
			}
			for _, name := range []string{"edu-high", "edu-mid"} {
				if class := s.get(classesPath + "/" + name); (class != nil) != there {
					t.Errorf("%s: class %v", when, class)
				}
			}
		}
		check("valid", true)
		s.edit(policyPath, object{"spec": object{"upgrade": window("Middle/Earth")}})
		wait(time.Minute)
		check("with a bad time zone", true)
		if got := status(t, s).Conditions[0]; got.Status != "False" {
			t.Errorf("the policy is accepted: %+v", got)
		}
		if got := outcomeOf(t, s); got.Outcome != validationPassed {
			t.Errorf("the validation is forgotten: %+v", got)
		}
		s.edit(policyPath, object{"spec": object{"partition": object{
			"priorityClasses": object{"high": object{"value": -20}},
		}}})
		wait(time.Minute)
		check("with a mistake of its own", false)
	})
}

// TestPoliciesThatMayNotBeRead: a controller that starts without the right to read policies undoes nothing.
func TestPoliciesThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(policyPath, fleetPolicy("1", nil, object{"partition": object{
			"taints": []any{object{"key": "edu", "effect": "NoSchedule"}},
			"priorityClasses": object{
				"high": object{"name": "edu-high", "value": 1000},
				"low":  object{"name": "edu-low", "value": -10},
			},
		}}))
		_, stop := start(t, s)
		wait(time.Minute)
		stop()
		s.refuse = func(_, path string, _ object) error {
			if path == kube.PoliciesPath {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "acceleratorpolicies"}, "", nil)
			}
			return nil
		}
		c, stop := start(t, s)
		defer stop()
		wait(10 * time.Minute)
		select {
		case <-c.Ready():
		default:
			t.Error("the controller is not ready")
		}
		if len(list(part(s.get(nodePath("a")), "spec")["taints"])) != 1 || s.get(classesPath+"/edu-high") == nil {
			t.Errorf("undone: node %v, class %v", s.get(nodePath("a")), s.get(classesPath+"/edu-high"))
		}
	})
}

// If somebody changes the value of a policy's taint, the taint is theirs: it stays as it is, also when the policy
// goes.
func TestChangedTaint(t *testing.T) {
	for name, goes := range map[string]object{
		"the policy is deleted": {"metadata": object{"deletionTimestamp": "2026-03-04T13:00:00Z"}},
		"it has no partition":   {"spec": object{"partition": nil}},
		"it is for other nodes": {"spec": object{"nodeSelector": object{"pool": "other"}}},
		"it asks for another taint": {
			"spec": object{"partition": object{"taints": []any{object{
				"key": "other", "value": "x",
				"effect": "NoSchedule",
			}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(1)
				s.edit(nodePath("a"), aNode(nil))
				ours := func(key string) object { return object{"key": key, "value": "only", "effect": "NoSchedule"} }
				s.edit(policyPath, fleetPolicy("1", nil,
					object{"partition": object{"taints": []any{ours("edu"), ours("lab")}}}))
				_, stop := start(t, s)
				defer stop()
				wait(time.Minute)
				theirs := object{"key": "edu", "value": "reserved", "effect": "NoSchedule"}
				s.edit(nodePath("a"), object{"spec": object{"taints": []any{theirs, ours("lab")}}})
				wait(time.Minute)
				s.edit(policyPath, goes)
				wait(time.Minute)
				taints := list(part(s.get(nodePath("a")), "spec")["taints"])
				if len(taints) == 0 || !cmp.Equal(taints[0], any(theirs)) ||
					slices.ContainsFunc(taints, func(x any) bool { return x.(object)["key"] == "lab" }) {
					t.Errorf("the node has %v", taints)
				}
			})
		})
	}
}

// What a vanished agent left is removed after a while. A node whose agent is no pod is left alone.
func TestClearAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for name, origin := range map[string]string{
			"gone": kube.OriginPod, "unit": kube.OriginUnit,
			"well": kube.OriginPod,
		} {
			n := aNode(object{"team": "x"})
			merge(n, annotate(kube.OriginAnnotation, origin, wordKey, "waiting 2", historyKey, "[]"))
			n["spec"] = object{"taints": []any{
				object{"key": kube.TaintKey, "effect": "NoSchedule"},
				object{"key": "other", "effect": "NoSchedule"},
			}}
			part(n, "metadata")["managedFields"] = []any{object{
				"manager": kube.FieldManager, "fieldsV1": object{"f:status": object{"f:capacity": object{"f:qemu.org/memory": object{}}}},
			}}
			part(n, "status")["capacity"] = object{"cpu": "4", "qemu.org/memory": "16Gi", "qemu.org/edu": "2"}
			s.edit(nodePath(name), n)
		}
		s.edit("/api/v1/namespaces/acceld-system/pods/x",
			object{"metadata": object{
				"namespace": "acceld-system",
				"labels":    object{"app.kubernetes.io/name": "acceld"},
			}, "spec": object{"nodeName": "well"}})
		_, stop := start(t, s)
		defer stop()
		wait(9 * time.Minute)
		if len(s.written()) != 0 {
			t.Errorf("too soon: %v", s.written())
		}
		wait(2 * time.Minute)
		n := s.get(nodePath("gone"))
		if diff := cmp.Diff(object{"team": "x"}, part(part(n, "metadata"), "labels")); diff != "" ||
			len(list(part(n, "spec")["taints"])) != 1 || len(list(part(n, "status")["conditions"])) != 1 ||
			annotation(n, wordKey) != "" || annotation(n, historyKey) != "" {
			t.Errorf("%v", n)
		}
		if d := cmp.Diff(object{"cpu": "4", "qemu.org/edu": "2"}, part(part(n, "status"), "capacity")); d != "" {
			t.Errorf("capacity (-want +got):\n%s", d)
		}
		for _, name := range []string{"unit", "well"} {
			if len(part(part(s.get(nodePath(name)), "metadata"), "labels")) < 3 {
				t.Errorf("%s was cleared", name)
			}
		}
		writes := len(s.written())
		wait(time.Hour)
		if len(s.written()) != writes {
			t.Errorf("again: %v", s.written()[writes:])
		}
	})
}

// A dry run, a conflict, another operator: each is reported, and nothing is written to a node.
func TestWhatIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b"} {
			s.edit(nodePath(name), aNode(object{"pool": name}))
			s.edit(nodePath(name), annotate(wordKey, "waiting 2"))
		}
		s.edit(policyPath, fleetPolicy("2", object{}, object{"dryRun": true}))
		controller, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		got := status(t, s)
		if c := got.Conditions[3]; c.Type != ConditionDryRun ||
			c.Message != "qemu-edu: 2 nodes from version 1 to version 2" || got.Nodes.Matched != 2 {
			t.Errorf("%+v", got)
		}
		s.edit("/apis/apps/v1/namespaces/x/daemonsets/nvidia-driver-daemonset-abc",
			object{
				"metadata": object{"namespace": "x"},
				"spec":     object{"template": object{"spec": object{"nodeSelector": object{"pool": "a"}}}},
			})
		s.edit(policyPath, object{"spec": object{
			"dryRun": false, "kinds": object{"nvidia-gpu": object{}},
			"priority": 3,
		}})
		s.edit(kube.PoliciesPath+"/younger", object{
			"metadata": object{"creationTimestamp": "2026-03-05T12:00:00Z"},
			"spec":     object{"priority": 3, "kinds": object{kind: object{}}},
		})
		s.edit(nodePath("a"),
			object{"metadata": object{
				"labels":      object{kube.Prefix + "driver-container-nvidia-gpu": "ready"},
				"annotations": object{accel.ReportAnnotation + "nvidia-gpu": "waiting 9"},
			}})
		wait(time.Minute)
		got = status(t, s)
		if !slices.ContainsFunc(got.Blocked, func(b Blocked) bool {
			return b.Reason == "OtherOperator" && strings.Contains(b.Example, "x/nvidia-driver-daemonset-abc")
		}) {
			t.Errorf("%+v", got.Blocked)
		}
		if annotation(s.get(nodePath("a")), accel.GrantAnnotation+"nvidia-gpu") != "" {
			t.Error("an upgrade was granted where another operator is")
		}
		conditions := list(part(s.get(kube.PoliciesPath+"/younger"), "status")["conditions"])
		if c := conditions[2].(object); c["status"] != "True" || !strings.Contains(fmt.Sprint(c["message"]),
			`qemu-edu: the policy "fleet" holds on a`) {
			t.Errorf("%v", conditions)
		}
		if got, want := gauges(t, controller, "acceld_policy_problem"),
			"acceld_policy_problem Conflict younger EqualPriority 1"; got != want {
			t.Errorf("the metrics say %q, want %q", got, want)
		}
	})
}

// TestFailed: conflicts and other refused writes are counted separately.
func TestFailed(t *testing.T) {
	c, err := New(Options{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("it is newer"))
	over, end := context.WithCancel(t.Context())
	end()
	c.failed(t.Context(), "node", "a", conflict)
	c.failed(t.Context(), "node", "a", errors.New("forbidden"))
	c.failed(over, "node", "a", errors.New("the end"))
	got := gauges(t, c, "acceld_controller_conflicts_total", "acceld_controller_write_failures_total")
	if want := "acceld_controller_conflicts_total 1\nacceld_controller_write_failures_total 1"; got != want {
		t.Errorf("the metrics say %q, want %q", got, want)
	}
}

// TestSame: only a change that this package reads makes a pass due.
func TestSame(t *testing.T) {
	node := func(change func(n *nodeObject)) *Node {
		n := &nodeObject{}
		n.Metadata.UID, n.Metadata.Labels, n.Metadata.Annotations = "u", map[string]string{"a": "b"},
			map[string]string{"acceld.dev/x": "1", "node.alpha.kubernetes.io/ttl": "0"}
		change(n)
		return reread[Node](t, n)
	}
	for what, c := range map[string]struct {
		change func(n *nodeObject)
		same   bool
	}{
		"nothing":                 {func(*nodeObject) {}, true},
		"an annotation of others": {func(n *nodeObject) { n.Metadata.Annotations["node.alpha.kubernetes.io/ttl"] = "300" }, true},
		"one more of others":      {func(n *nodeObject) { n.Metadata.Annotations["example.com/x"] = "" }, true},
		"one of acceld's":         {func(n *nodeObject) { n.Metadata.Annotations["acceld.dev/x"] = "2" }, false},
		"one more of acceld's":    {func(n *nodeObject) { n.Metadata.Annotations["acceld.dev/y"] = "" }, false},
		"one less of acceld's":    {func(n *nodeObject) { delete(n.Metadata.Annotations, "acceld.dev/x") }, false},
		"a label":                 {func(n *nodeObject) { n.Metadata.Labels["a"] = "c" }, false},
		"cordoned":                {func(n *nodeObject) { n.Spec.Unschedulable = true }, false},
		"not ready": {func(n *nodeObject) {
			n.Status.Conditions = []nodeCondition{{Type: "Ready", Status: "False"}}
		}, false},
		"a taint": {func(n *nodeObject) {
			n.Spec.Taints = []taint{{Taint: accel.Taint{Key: "example.com/gpu"}}}
		}, false},
		"a taint of a condition": {func(n *nodeObject) {
			n.Spec.Taints = []taint{{Taint: accel.Taint{Key: "node.kubernetes.io/not-ready"}}}
		}, true},
		"another node": {func(n *nodeObject) { n.Metadata.UID = "v" }, false},
	} {
		if got := node(c.change).Same(node(func(*nodeObject) {})); got != c.same {
			t.Errorf("%s: %v", what, got)
		}
	}
}
