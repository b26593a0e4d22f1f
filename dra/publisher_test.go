package dra

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

func TestPublishes(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.kubelet()
	b.run(p)
	b.offered(p, 2)
	s := b.server.published()[0]
	if s.Spec.Driver != "qemu-edu.acceld.dev" || s.Spec.NodeName != node || s.Spec.Pool.Name != node ||
		s.Spec.Pool.Generation != 1 || s.Metadata.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("the slice: %+v", s)
	}
	b.until("the class", func() bool {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		return len(b.server.classes) == 1
	})
	c := b.server.classes["qemu-edu.acceld.dev"]
	if c.Spec.ExtendedResourceName != "qemu.org/edu" ||
		c.Spec.Selectors[0].CEL.Expression != `device.driver == "qemu-edu.acceld.dev"` {
		t.Errorf("the class: %+v", c)
	}
	// Steady state: what does not change is not written, however often it is reported.
	writes := b.server.writes()
	for range 20 {
		p.Update(edus(2))
		p.poke()
	}
	time.Sleep(50 * time.Millisecond)
	if n := b.server.writes(); n != writes {
		t.Errorf("%d writes without a change", n-writes)
	}
	// A fault is one write in the same generation, and so is its end.
	p.Update([]accel.Accelerator{edu(1), sick(edu(2))})
	b.offered(p, 1)
	if s := b.server.published()[0]; s.Spec.Pool.Generation != 1 ||
		s.Spec.Devices[1].Taints[0].Value != "DeviceUnhealthy" || b.server.writes() != writes+1 {
		t.Errorf("after a fault: %+v, %d writes", s.Spec, b.server.writes()-writes)
	}
	p.Update(edus(2))
	b.offered(p, 2)
	if s := b.server.published()[0]; len(s.Spec.Devices[1].Taints) != 0 {
		t.Errorf("after its end: %+v", s.Spec)
	}
}

// TestDrift: what somebody deletes or changes is restored, and a slice in our name that is not ours is deleted.
func TestDrift(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.kubelet()
	b.run(p)
	b.offered(p, 2)
	right := func() bool {
		all := b.server.published()
		return len(all) == 1 && len(all[0].Spec.Devices) == 2 && len(all[0].Spec.Devices[0].Taints) == 0
	}
	for name, spoil := range map[string]func(){
		"deleted": b.server.wipe,
		"changed": func() {
			s := b.server.published()[0]
			s.Spec.Devices = s.Spec.Devices[:1]
			if err := b.server.Do(t.Context(), "PUT", apiRoot+"resourceslices/"+s.Metadata.Name, nil, s,
				nil); err != nil {
				t.Fatal(err)
			}
		},
		"doubled": func() {
			s := b.server.published()[0]
			s.Metadata = kube.Meta{Identity: kube.Identity{Name: "stray"}}
			if err := b.server.Do(t.Context(), "POST", apiRoot+"resourceslices", nil, s, nil); err != nil {
				t.Fatal(err)
			}
		},
	} {
		spoil()
		if right() && name != "deleted" {
			continue // already repaired
		}
		b.until(name+" slices to be mended", right)
		b.offered(p, 2)
	}
}

// TestNodeAgain: the slices of a node that was deleted and registered again belong to the new node, or the garbage
// collector would delete them without end.
func TestNodeAgain(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.kubelet()
	b.run(p)
	b.offered(p, 2)
	b.server.mu.Lock()
	b.server.nodeUID = "node-uid-2"
	b.server.mu.Unlock()
	b.server.wipe()
	b.until("slices of the new node", func() bool {
		all := b.server.published()
		return len(all) == 1 && all[0].Metadata.OwnerReferences[0].UID == "node-uid-2"
	})
	b.offered(p, 2)
}

// TestOlderServer drops fields: that is logged once, and does not cause endless writes.
func TestOlderServer(t *testing.T) {
	b := newBed(t)
	b.server.forgets = func(s *Slice) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Taints = nil
		}
	}
	p := b.plugin(edu(1), sick(edu(2)))
	b.kubelet()
	b.run(p)
	b.offered(p, 2) // the truth: this server would allocate both
	writes := b.server.writes()
	for range 5 {
		p.poke()
		time.Sleep(5 * time.Millisecond)
	}
	if n := b.server.writes(); n != writes {
		t.Errorf("%d writes again", n-writes)
	}
}

func TestAPIServerRefuses(t *testing.T) {
	resource := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}
	for name, c := range map[string]struct {
		err    error
		reason accel.Reason
	}{
		"away":           {errors.New("connection refused"), accel.APIUnreachable},
		"no rights":      {apierrors.NewForbidden(resource, "", errors.New("no")), accel.APIForbidden},
		"too old for it": {apierrors.NewNotFound(resource, ""), accel.ClaimsUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.server.refusing(func(_, path string) error {
				if strings.Contains(path, "resourceslices") {
					return c.err
				}
				return nil
			})
			p := b.plugin(edu(1))
			b.kubelet()
			b.run(p)
			b.until("the reason", func() bool {
				return p.State().Registered && p.Problem() != nil && p.Problem().Reason == c.reason
			})
			if p.State().Allocatable.Known {
				t.Errorf("%+v", p.State())
			}
			b.server.refusing(nil)
			b.offered(p, 1)
		})
	}
}

// TestWatchRefused: an agent that may list but not watch retries more and more slowly, and says why.
func TestWatchRefused(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	p.cfg.API = unwatched{b.server}
	p.api.API = p.cfg.API
	b.kubelet()
	b.run(p)
	b.until("the reason", func() bool { return p.Problem() != nil && p.Problem().Reason == accel.APIForbidden })
	time.Sleep(300 * time.Millisecond) // six lists, when the delay starts at 10 ms and doubles
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	lists := 0
	for _, r := range b.server.requests {
		if strings.HasPrefix(r, "GET") && strings.HasSuffix(r, "resourceslices") {
			lists++
		}
	}
	if lists > 10 {
		t.Errorf("%d lists", lists)
	}
}

// unwatched is a server that refuses watches.
type unwatched struct{ *server }

func (unwatched) Watch(context.Context, string, url.Values) (io.ReadCloser, error) {
	return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "resourceslices"}, "", errors.New("no watch"))
}

// TestWatchThatLags: a watch reports our own writes late, after newer ones have been answered. Its events are older
// than what is known, so nothing is written, listed or offered because of them.
func TestWatchThatLags(t *testing.T) {
	b := newBed(t)
	late := &lagging{server: b.server, next: make(chan struct{})}
	p := b.plugin(edu(1))
	p.cfg.API = late
	p.api.API = late
	b.kubelet()
	b.run(p)
	b.offered(p, 1)
	p.Update([]accel.Accelerator{sick(edu(1))})
	b.offered(p, 0)
	b.server.mu.Lock()
	b.server.requests = nil
	b.server.mu.Unlock()
	for _, event := range []string{"ADDED", "MODIFIED"} {
		select {
		case late.next <- struct{}{}:
		case <-time.After(10 * time.Second):
			t.Errorf("the watch was given up before the event %s", event)
		}
		for range 10 {
			time.Sleep(5 * time.Millisecond)
			if n := p.State().Allocatable; !n.Is(0) {
				t.Fatalf("after the late event %s %v devices are offered, of which none is well", event, n)
			}
		}
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	for _, r := range b.server.requests {
		if strings.Contains(r, "resourceslices") {
			t.Errorf("%s, because of events that are no news", r)
		}
	}
}

// lagging is a server whose watches send one event for each value received from next.
type lagging struct {
	*server
	next chan struct{}
}

func (l *lagging) Watch(ctx context.Context, collection string, query url.Values) (io.ReadCloser, error) {
	inner, err := l.server.Watch(ctx, collection, query)
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		for lines := bufio.NewScanner(inner); lines.Scan(); {
			select {
			case <-l.next:
				_, _ = in.Write(append(lines.Bytes(), '\n')) // fails when the reader is gone
			case <-ctx.Done():
			}
		}
		_ = in.Close()
	}()
	context.AfterFunc(ctx, func() { _ = in.Close() })
	return out, nil
}

// TestAPIServerAwayLater: what was published stays valid while the API server does not answer.
func TestAPIServerAwayLater(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.kubelet()
	b.run(p)
	b.offered(p, 1)
	b.server.refusing(func(string, string) error { return errors.New("connection refused") })
	p.Update([]accel.Accelerator{sick(edu(1))})
	b.until("the reason", func() bool { return p.Problem() != nil && p.Problem().Reason == accel.APIUnreachable })
	if !p.State().Allocatable.Is(1) {
		t.Errorf("not reached is no reason to count none: %+v", p.State())
	}
	b.server.refusing(nil)
	b.until("the fault to be published", func() bool { return p.State().Allocatable.Is(0) })
}

// TestNewsWhileHeld: while a pod holds a device in another way, the fault of a device is published at once, not only
// with the next question who holds devices.
func TestNewsWhileHeld(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	p.timing.look = time.Hour
	p.cfg.Elsewhere = func(context.Context) (map[string]string, error) {
		return map[string]string{"0000:02:00.0": "pod team/train"}, nil
	}
	b.kubelet()
	b.run(p)
	b.until("one device to be offered", func() bool { return p.State().Allocatable.Is(1) })
	p.Update([]accel.Accelerator{sick(edu(1)), edu(2)})
	b.until("the fault to be published", func() bool { return p.State().Allocatable.Is(0) })
}

// TestElsewhere: no claim gets a device that a pod holds through the device plugin until that pod ends,
// whether or not the kubelet answers meanwhile.
func TestElsewhere(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	p.timing.look = 10 * time.Millisecond
	var known, ended atomic.Bool
	p.cfg.Elsewhere = func(context.Context) (map[string]string, error) {
		switch {
		case !known.Load():
			return nil, errors.New("the kubelet does not answer")
		case ended.Load():
			return nil, nil
		}
		return map[string]string{"0000:02:00.0": "pod team/train"}, nil
	}
	b.kubelet()
	b.run(p)
	b.until("the silence to be said", func() bool {
		return p.Problem() != nil && p.Problem().Reason == accel.ProbeUnanswered
	})
	if n := len(b.server.published()); n > 0 {
		t.Errorf("%d slices while nobody knows who holds devices", n)
	}
	known.Store(true)
	b.until("one device to be offered", func() bool {
		return p.State().Allocatable.Is(1) && p.Problem() != nil && p.Problem().Reason == accel.DeviceHeld
	})
	b.server.allocate("c", "u-1", "r=0000-02-00-0")
	held := func(when string) {
		t.Helper()
		if s := b.server.published()[0]; len(s.Spec.Devices[1].Taints) != 1 ||
			s.Spec.Devices[1].Taints[0].Value != "DeviceHeld" {
			t.Errorf("%s: %+v", when, s.Spec.Devices)
		}
		if _, fault := prepare(t, p, "c", "u-1"); !strings.Contains(fault, "held by pod team/train") {
			t.Errorf("%s: %q", when, fault)
		}
	}
	held("the kubelet answers")
	known.Store(false) // for example a kubelet that has just restarted
	b.until("the silence to be reported again", func() bool {
		return p.Problem() != nil && p.Problem().Reason == accel.ProbeUnanswered
	})
	held("the kubelet does not answer any more")
	known.Store(true)
	b.until("the kubelet to be asked again", func() bool {
		return p.State().Allocatable.Is(1) && p.Problem() != nil && p.Problem().Reason == accel.DeviceHeld
	})
	held("the kubelet answers again")
	ended.Store(true)
	b.offered(p, 2)
}

// TestRetire: the plugin offers nothing, running pods keep their devices, and the plugin ends when the last claim
// ends.
func TestRetire(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.kubelet()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	b.offered(p, 2)
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Fatal(fault)
	}
	p.Retire()
	b.until("the slices to be gone", func() bool { return len(b.server.published()) == 0 })
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Errorf("a pod that runs starts a container again: %s", fault)
	}
	if held, known := p.Held(); !known || !slices.Equal(held, []string{"0000:01:00.0"}) ||
		!Served(b.host, "/var/lib/acceld", b.def) {
		t.Errorf("held: %v %v", held, known)
	}
	if who := p.Known(); len(who) != 1 || who[0].Pod != "pod-of-c" || who[0].Namespace != "team" {
		t.Errorf("holders: %+v", who)
	}
	select {
	case <-ended:
		t.Error("it ended while a claim was held")
	case <-time.After(50 * time.Millisecond):
	}
	if fault := unprepare(t, p, "u-1"); fault != "" {
		t.Error(fault)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it does not end with the last claim")
	}
	if Served(b.host, "/var/lib/acceld", b.def) {
		t.Error("a later agent would look for claims again")
	}
}

// TestTidy: claims that ended while no agent was running are unprepared at its start, others are not.
func TestTidy(t *testing.T) {
	b := newBed(t)
	before := b.plugin(edus(3)...)
	for i, name := range []string{"gone", "again", "kept"} {
		b.server.allocate(name, "u-"+name, "r="+DeviceName(edu(i+1).ID))
		if _, fault := prepare(t, before, name, "u-"+name); fault != "" {
			t.Fatal(fault)
		}
	}
	b.server.release("gone")
	b.server.allocate("again", "u-other", "r=0000-02-00-0") // another claim with the same name
	b.server.refusing(func(string, string) error { return errors.New("connection refused") })
	p := b.plugin(edus(3)...)
	b.run(p)
	time.Sleep(30 * time.Millisecond)
	if n := len(p.book.all()); n != 3 {
		t.Fatalf("%d claims while nobody can say anything about them", n)
	}
	b.server.refusing(nil)
	b.until("the claims to be taken back", func() bool { return len(p.book.all()) == 1 })
	if p.book.all()[0].UID != "u-kept" || b.there("/var/run/cdi/acceld-claim-qemu-edu.acceld.dev-u-gone.json") {
		t.Errorf("%v", p.book.all())
	}
}

// TestSpecsFollow: a claim's spec describes its device as it is now, whether the device or the file changed.
func TestSpecsFollow(t *testing.T) {
	const spec = "/var/run/cdi/acceld-claim-qemu-edu.acceld.dev-u-1.json"
	b := newBed(t)
	p := b.plugin(edu(1))
	b.run(p)
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Fatal(fault)
	}
	if err := b.host.Remove(spec); err != nil {
		t.Fatal(err)
	}
	b.until("the spec to be back", func() bool { return b.there(spec) })
	a := edu(1)
	a.Nodes = []accel.DeviceNode{{Path: "/dev/edu7"}}
	p.Update([]accel.Accelerator{a})
	b.until("the spec to name the new node", func() bool {
		return b.there(spec) && strings.Contains(b.file(spec), "/dev/edu7")
	})
}

// TestOwnWritesAreNoDrift: the writes of a prepare do not cause the other claims' specs to be rendered again.
func TestOwnWritesAreNoDrift(t *testing.T) {
	const claims = 20
	bed := newBed(t)
	var rendered atomic.Int32
	p := bed.plugin(edus(claims)...)
	edits := p.cfg.Edits
	p.cfg.Edits = func(def *accel.Definition, a accel.Accelerator) (shared, own specs.ContainerEdits,
		problem *accel.Problem,
	) {
		rendered.Add(1)
		return edits(def, a)
	}
	// when the directory appears, all specs are checked
	if err := os.MkdirAll(filepath.Join(bed.root, specDir), 0o755); err != nil {
		t.Fatal(err)
	}
	bed.run(p)
	bed.until("the records", p.book.read)
	prepare := func(i int) {
		bed.server.allocate(fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i), "r="+DeviceName(edu(i+1).ID))
		if _, problem := prepareOne(t.Context(), p, ref(fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i))); problem != nil {
			t.Fatal(problem)
		}
	}
	changed := func(i int, change func(file string) error) {
		file := filepath.Join(bed.root, fmt.Sprintf("/var/run/cdi/acceld-claim-qemu-edu.acceld.dev-u-%d.json", i))
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(file); err != nil {
			t.Fatal(err)
		}
		// events come in order, so those of our own writes have passed
		bed.until("the spec that somebody changed", func() bool {
			now, _ := os.ReadFile(file)
			return string(now) == string(want)
		})
	}
	prepare(0)
	changed(0, os.Remove) // by now what happens once at the start has happened
	rendered.Store(1)
	for i := 1; i < claims; i++ {
		prepare(i)
	}
	replace := func(file string) error { // in one step: truncating and writing would be two changes
		other := filepath.Join(bed.root, "other")
		return errors.Join(os.WriteFile(other, []byte("{}"), 0o644), os.Rename(other, file))
	}
	for i, change := range []func(file string) error{os.Remove, replace} {
		changed(i, change)
	}
	if n := rendered.Load(); n > claims+2 {
		t.Errorf("%d specs were rendered for %d claims and two changes by somebody else", n, claims)
	}
}

// TestReleasedTogether: pods that end together are reported once to the agent, which then looks at every device.
func TestReleasedTogether(t *testing.T) {
	const claims = 20
	bed := newBed(t)
	var reported atomic.Int32
	p := bed.plugin(edus(claims)...)
	p.timing.settle = 100 * time.Millisecond
	p.cfg.OnChange = func() { reported.Add(1) }
	bed.run(p)
	bed.until("the records", p.book.read)
	for i := range claims {
		bed.server.allocate(fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i), "r="+DeviceName(edu(i+1).ID))
		if _, problem := prepareOne(t.Context(), p, ref(fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i))); problem != nil {
			t.Fatal(problem)
		}
	}
	before := reported.Load()
	for i := range claims {
		if problem := unprepareOne(p, fmt.Sprintf("u-%d", i)); problem != nil {
			t.Fatal(problem)
		}
	}
	bed.until("the agent to be told", func() bool { return reported.Load() > before })
	time.Sleep(3 * p.timing.settle)
	if n := reported.Load() - before; n >= claims/2 {
		t.Errorf("the agent was told %d times of %d claims", n, claims)
	}
}
