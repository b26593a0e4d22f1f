package dra

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
)

// onDemand is a kind whose devices are divided for claims into two halves or four quarters.
func onDemand(def *accel.Definition) *accel.Definition {
	d := *def
	d.Partitions = &accel.Partitions{
		Nodes: []accel.NodeSource{{Glob: "."}}, Make: &accel.Making{File: "partitions", Whole: "1"},
		Profiles: []accel.Profile{
			{Name: "half", Make: "2", Possible: []string{"p0", "p1"}},
			{Name: "quarter", Make: "4", Possible: []string{"p0", "p1", "p2", "p3"}},
		},
	}
	return &d
}

// divided is a device that acceld has divided for a claim.
func divided(a accel.Accelerator, profile string, names ...string) accel.Accelerator {
	a = divide(a, profile, names...)
	a.Divided = &accel.Divided{Kind: "qemu-edu", Profile: profile, Value: "2", Before: "1", Claim: "u", File: "partitions"}
	return a
}

// offeredNow are the names of the devices in slices that have no taint, without their parents' names.
func offeredNow(v View) string {
	var out []string
	for _, s := range Slices(v) {
		for _, d := range s.Spec.Devices {
			if len(d.Taints) == 0 {
				out = append(out, strings.TrimPrefix(strings.TrimPrefix(d.Name, "0000-01-00-0"), "-"))
			}
		}
	}
	return strings.Join(out, " ")
}

// TestPartsPublished: all that could be made is offered, whatever exists, unless something else keeps the device from
// being given out.
func TestPartsPublished(t *testing.T) {
	const all = " half-p0 half-p1 quarter-p0 quarter-p1 quarter-p2 quarter-p3"
	held := edu(1)
	held.Withheld = &accel.Withheld{By: accel.ByProof, Reason: accel.NotProven}
	stuck := divided(edu(1), "half", "p0", "p1")
	stuck.Withheld = &accel.Withheld{By: accel.ByPartitioning, Reason: accel.NotUndivided}
	former := divided(edu(1), "half", "p0", "p1")
	former.Divided = nil
	for i := range former.Partitions {
		former.Partitions[i].Health.State, former.Partitions[i].Bound = accel.Gone, ""
	}
	pending := divided(edu(1), "half", "p0", "p1")
	pending.Partitions[1].Withheld = &accel.Withheld{By: accel.ByRuntime, Reason: accel.SpecPending}
	for name, c := range map[string]struct {
		a      accel.Accelerator
		change func(*View)
		want   string
	}{
		"whole":                {edu(1), nil, all},
		"divided":              {divided(edu(1), "half", "p0", "p1"), nil, all},
		"files to be written":  {pending, nil, all},
		"whole again":          {former, nil, all},
		"divided by others":    {divide(edu(1), "half", "p0", "p1"), nil, "half-p0 half-p1"},
		"withheld":             {held, nil, "none"},
		"sick":                 {sick(edu(1)), nil, "none"},
		"stuck":                {stuck, nil, "none"},
		"not counted":          {edu(1), func(v *View) { v.Uncounted = true }, ""},
		"not counted, divided": {divided(edu(1), "half", "p0", "p1"), func(v *View) { v.Uncounted = true }, "half-p0 half-p1"},
		"refused just now":     {edu(1), func(v *View) { v.Refused = map[string]bool{"0000-01-00-0": true} }, ""},
	} {
		v := View{Node: node, Definition: onDemand(halves(false)), Accelerators: accel.Units([]accel.Accelerator{c.a})}
		if c.change != nil {
			c.change(&v)
		}
		want := c.want
		if got := offeredNow(v); got != want && (want != "none" || got != "") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	slices := Slices(View{Node: node, Definition: onDemand(halves(false)), Accelerators: edus(1)})
	var whole, half, quarter Device
	for _, d := range slices[0].Spec.Devices {
		switch d.Name {
		case "0000-01-00-0":
			whole = d
		case "0000-01-00-0-half-p1":
			half = d
		case "0000-01-00-0-quarter-p3":
			quarter = d
		}
	}
	for what, c := range map[string]struct{ got, want map[string]Counter }{
		"the set":   {slices[1].Spec.SharedCounters[0].Counters, counters(map[string]string{"layout": "4", "layout-0-0": "4", "layout-0-1": "4"})},
		"a device":  {whole.Consumes[0].Counters, counters(map[string]string{"layout": "4", "layout-0-0": "4", "layout-0-1": "4"})},
		"a half":    {half.Consumes[0].Counters, counters(map[string]string{"layout": "2", "layout-0-1": "4"})},
		"a quarter": {quarter.Consumes[0].Counters, counters(map[string]string{"layout": "1", "layout-0-0": "1", "layout-0-1": "1"})},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if half.BindsToNode || len(half.BindingConditions) > 0 {
		t.Error("pods wait for what is made in time")
	}
	later := onDemand(halves(false))
	later.Partitions.Make.BeforeBinding = true
	for _, d := range Slices(View{Node: node, Definition: later, Accelerators: edus(1)})[0].Spec.Devices {
		if d.BindsToNode {
			t.Error("pods wait for what nobody would do:", d)
		}
	}
	followed := View{Node: node, Definition: later, Accelerators: edus(1), Followed: true}
	for _, d := range Slices(followed)[0].Spec.Devices {
		if part := d.Name != "0000-01-00-0"; d.BindsToNode != part || (len(d.BindingConditions) == 1) != part ||
			(len(d.FailureConditions) == 1) != part {
			t.Errorf("%+v", d)
		}
	}
}

// shaper makes parts as the agent does, and notes for whom.
type shaper struct {
	mu      sync.Mutex
	problem *accel.Problem
	shaped  []string
}

func (s *shaper) of(p *Plugin, later bool) *shaper {
	def := onDemand(p.cfg.Definition)
	def.Partitions.Make.BeforeBinding = later
	p.Redefine(def)
	p.cfg.Shape = func(_ context.Context, _ *accel.Definition, a accel.Accelerator, claim, name string) (
		accel.Accelerator, *accel.Problem,
	) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shaped = append(s.shaped, a.ID+" "+claim+" "+name)
		if s.problem != nil {
			return a, s.problem
		}
		if a.Parent != "" {
			a.Bound, a.Nodes = "edu", []accel.DeviceNode{{Path: "/dev/edu0p0"}}
		}
		return a, nil
	}
	return s
}

func (s *shaper) fail(problem *accel.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = problem
}

func (s *shaper) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shaped)
}

// TestPartPrepared follows claims for parts that do not exist yet.
func TestPartPrepared(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	s := (&shaper{problem: accel.Problemf(accel.InUse, "in use by train")}).of(p, false)
	needed := func(profile string) bool {
		return NeededParts(b.host, "/var/lib/acceld", "qemu-edu")("0000:01:00.0", profile)
	}
	b.server.allocate("c", "u-1", "r=0000-01-00-0-half-p0")
	if ids, fault := prepare(t, p, "c", "u-1"); len(ids) > 0 || !strings.Contains(fault, "InUse") ||
		b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Errorf("%v %q", ids, fault)
	}
	if !needed("half") || needed("quarter") {
		t.Error("the record has to come first: without it, the device is made whole")
	}
	s.fail(nil)
	if ids, fault := prepare(t, p, "c", "u-1"); fault != "" || len(ids) != 1 {
		t.Fatal(ids, fault)
	}
	if diff := cmp.Diff(slices.Repeat([]string{"0000:01:00.0-half-p0 u-1 team/c"}, 2), s.list()); diff != "" {
		t.Error(diff)
	}
	spec, err := cdi.ParseSpec([]byte(b.file(fmt.Sprintf(specOf, "u-1"))))
	if err != nil || spec.Devices[0].ContainerEdits.DeviceNodes[0].Path != "/dev/edu0p0" {
		t.Errorf("%+v %v", spec, err)
	}
	for name, device := range map[string]string{
		"whole": "0000-01-00-0", "another layout": "0000-01-00-0-quarter-p3", "the same part": "0000-01-00-0-half-p0",
	} {
		b.server.allocate("x", "u-2", "r="+device)
		if _, fault := prepare(t, p, "x", "u-2"); !strings.Contains(fault, "holds one of its devices") {
			t.Errorf("%s: %q", name, fault)
		}
	}
	for _, device := range []string{"0000-01-00-0-half-p1", "0000-02-00-0", "0000-02-00-0-unknown-p0"} {
		b.server.allocate("x", "u-2", "r="+device)
		_, fault := prepare(t, p, "x", "u-2")
		if known := !strings.Contains(device, "unknown"); (fault == "") != known {
			t.Errorf("%s: %q", device, fault)
		}
		unprepare(t, p, "u-2")
	}
	b.host.RemoveAll("/var/run/cdi")
	b.mkdir("/var/run/cdi")
	p.renew("u-1")
	if b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Error("a spec for a part that is not there")
	}
	p.Update(accel.Units([]accel.Accelerator{divided(edu(1), "half", "p0", "p1"), edu(2)}))
	p.renew("u-1")
	if !b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Error("no spec for a part that is there")
	}
	if fault := unprepare(t, p, "u-1"); fault != "" || needed("half") {
		t.Error("something is left:", fault)
	}
	if err := b.host.WriteFile("/var/lib/acceld/dra/qemu-edu/u-9.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !needed("half") || !needed("quarter") {
		t.Error("a record that cannot be read may need anything")
	}
}

// TestPartsAhead: parts are made before a pod is bound, and the claim's status says so; what cannot be made is said,
// too, and nothing is left of a claim that is over before its pod was bound.
func TestPartsAhead(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	s := (&shaper{}).of(p, true)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- newAhead(p).run(ctx) }()
	defer func() { cancel(); <-over }()
	b.server.allocate("not-waiting", "u-0", "r=0000-02-00-0-half-p0")
	b.server.allocate("c", "u-1", "r=0000-01-00-0-half-p0")
	b.server.awaiting("c")
	eventually(t, "the first claim", func() bool { return b.server.said("c") == "0000-01-00-0-half-p0 acceld.dev/Made Made" })
	if r, _ := p.book.get("u-1"); !r.Ahead || r.Devices[0].Profile != "half" {
		t.Errorf("%+v", r)
	}
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Error(fault)
	}
	if r, _ := p.book.get("u-1"); r.Ahead {
		t.Error("the kubelet has prepared it")
	}
	s.fail(accel.Problemf(accel.DivisionFailed, "the kernel says no"))
	b.server.allocate("d", "u-2", "r=0000-02-00-0-quarter-p0")
	b.server.awaiting("d")
	eventually(t, "the refusal", func() bool {
		return b.server.said("d") == "0000-02-00-0-quarter-p0 acceld.dev/CannotBeMade DivisionFailed"
	})
	if _, known := p.book.get("u-2"); known {
		t.Error("a record is left of a claim that cannot be prepared")
	}
	if devices, again := p.refused.now(); !devices["0000-02-00-0"] || len(devices) != 1 || again <= 0 || again > refusedFor {
		t.Error(devices, again)
	}
	s.fail(nil)
	b.server.allocate("e", "u-3", "r=0000-02-00-0-half-p1")
	b.server.awaiting("e")
	eventually(t, "the third claim", func() bool { return b.server.said("e") != "" })
	b.server.release("e")
	eventually(t, "the end of a claim that was never bound", func() bool {
		_, known := p.book.get("u-3")
		return !known
	})
	if slices.ContainsFunc(s.list(), func(text string) bool { return strings.Contains(text, "u-0") }) {
		t.Error("a claim that does not wait was prepared ahead:", s.list())
	}
	if _, known := p.book.get("u-1"); !known {
		t.Error("a claim that the kubelet has prepared is gone")
	}
}

// TestPartsAheadForbidden: without the right to follow claims, the kind says so, and it no longer does when the right
// is given.
func TestPartsAheadForbidden(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	(&shaper{}).of(p, true)
	api := &noClaims{server: b.server}
	api.forbidden.Store(true)
	p.cfg.API = api
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- newAhead(p).run(ctx) }()
	defer func() { cancel(); <-over }()
	eventually(t, "the reason", func() bool {
		why := p.State().NotAhead
		return why != nil && why.Reason == accel.APIForbidden && strings.Contains(why.Message, "cannot follow claims")
	})
	api.forbidden.Store(false)
	eventually(t, "the right", func() bool { return p.State().NotAhead == nil })
}

// noClaims is a server that may forbid to list claims.
type noClaims struct {
	*server
	forbidden atomic.Bool
}

func (s *noClaims) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if s.forbidden.Load() && strings.HasSuffix(path, "resourceclaims") {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "resourceclaims"}, "", errors.New("no"))
	}
	return s.server.Do(ctx, method, path, query, body, into)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: not in time", what)
}

// TestSameRecord: a claim that gets something else has to be written down again.
func TestSameRecord(t *testing.T) {
	of := func(change func(*record)) record {
		r := record{UID: "u-1", Namespace: "team", Name: "c", Devices: []given{{Request: "r", Pool: "n", Device: "d"}}}
		change(&r)
		return r
	}
	plain := of(func(*record) {})
	for name, change := range map[string]func(*record){
		"use": func(r *record) { r.Devices[0].Use = accel.UseVFIO }, "metadata": func(r *record) { r.Devices[0].Metadata = true },
		"parent": func(r *record) { r.Devices[0].Parent = "d" }, "profile": func(r *record) { r.Devices[0].Profile = "half" },
		"ahead": func(r *record) { r.Ahead = true }, "check": func(r *record) { r.Devices[0].Check = true },
	} {
		if other := of(change); plain.same(other) || !other.same(of(change)) {
			t.Error(name)
		}
	}
}
