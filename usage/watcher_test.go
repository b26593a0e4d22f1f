package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// bed is a host with two devices of one kind; the second has partitions.
type bed struct {
	*Watcher
	mu       sync.Mutex
	m        accel.Machine
	replaced chan struct{}
	openers  []host.Opener
	recorded []Grant
	asked    []Grant
	unread   error          // of the processes
	unknown  *accel.Problem // of the records
	silent   *accel.Problem // of the kubelet
	// what the probe program says, and the names of containers by id
	processes  map[string][]accel.ProbeProcess
	containers map[string]string
	takes      time.Duration // a look
	looks      []time.Duration
	asks       int
	changes    int
	began      time.Time
	news       []string // what accel.Diff has found
	last       accel.Machine
}

func newBed() *bed {
	b := &bed{replaced: make(chan struct{}), began: time.Now()}
	b.m = machineOf(map[string][]accel.Accelerator{"npu": two()})
	b.m.Taken = time.Now()
	b.m.Status = map[string]accel.Status{"npu": {}}
	b.m.Want = accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"npu": {Kind: "npu"}}}
	b.Watcher = New(Options{
		Log: slog.New(slog.DiscardHandler),
		Follow: func() (accel.Machine, <-chan struct{}) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.m, b.replaced
		},
		Took: func(f func()) time.Duration { // the clock of the test
			begin := time.Now()
			f()
			return time.Since(begin)
		},
		Openers: func(_ context.Context, nodes []accel.DeviceNode, _ func(string) bool) ([]host.Opener, error) {
			b.mu.Lock()
			b.looks = append(b.looks, time.Since(b.began))
			takes, openers, unread := b.takes, slices.Clone(b.openers), b.unread
			b.mu.Unlock()
			time.Sleep(takes)
			var all []host.Opener
			for _, o := range openers { // as the host finds them: by the nodes that are asked for
				o.Nodes = slices.DeleteFunc(slices.Clone(o.Nodes), func(path string) bool {
					return !slices.ContainsFunc(nodes, func(n accel.DeviceNode) bool { return n.Path == path })
				})
				if len(o.Nodes) > 0 {
					all = append(all, o)
				}
			}
			return all, unread
		},
		Shared:   func(*accel.Definition) []accel.DeviceNode { return nil },
		Expected: func(*accel.Definition, host.Opener) bool { return false },
		Recorded: func(*accel.Definition) ([]Grant, *accel.Problem) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.recorded, b.unknown
		},
		Asked: func(context.Context, *accel.Definition) ([]Grant, *accel.Problem) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asks++
			return b.asked, b.silent
		},
		Name: names, Container: func(id string) string { return b.containers[id] },
		Processes: func(*accel.Definition) map[string][]accel.ProbeProcess {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.processes
		},
		Changed: func() {
			b.set(func() { b.changes++ })
			b.publish()
		},
	})
	return b
}

// publish takes another snapshot, as the loop does.
func (b *bed) publish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.m
	m.Taken = time.Now()
	devices := b.Enrich(m.Want.Kinds["npu"], slices.Clone(b.m.Have["npu"].Accelerators))
	m.Have = map[string]accel.Have{"npu": {Accelerators: devices}}
	for _, c := range accel.Diff(b.last, m) {
		if u, is := c.(accel.UnrequestedChange); is {
			b.news = append(b.news, u.Device+" "+u.String())
		}
	}
	b.last = m
	close(b.replaced)
	b.replaced = make(chan struct{})
}

// set changes the host.
func (b *bed) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// says returns what is known of the first device.
func (b *bed) says() string {
	b.publish()
	h := b.first()
	if h == nil {
		return "nothing"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", h.Count, strings.Join(h.Lines(), "; ")))
}

// first is what is known of the first device, as of the last snapshot.
func (b *bed) first() *accel.UnrequestedHave {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last.Have["npu"].Accelerators[0].Unrequested
}

// told is what accel.Diff has found so far.
func (b *bed) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.news)
}

// times is how often the kubelet was asked.
func (b *bed) times() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asks
}

// run runs the watcher in a bubble of time until the test function ends.
func run(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		test(t, b)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func opener(pid int, start time.Duration, uid string, nodes ...string) host.Opener {
	return host.Opener{PID: pid, Start: start, Comm: "train", Pod: uid, Nodes: nodes}
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNamedAtTheSecondLook(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.set(func() { b.openers = []host.Opener{opener(7, 1, podA, "/dev/npu0"), opener(8, 1, podA, "/dev/npu0")} })
		is := func(want string) {
			t.Helper()
			if got := b.says(); got != want {
				t.Errorf("after %s: %q, want %q", time.Since(b.began), got, want)
			}
		}
		is("nothing")
		after(confirm + time.Second)
		is("0")
		after(confirm)
		const named = "process 7 train and 1 more (pod team/a, to which no device of the kind is given)"
		is("1 " + named)
		if got := strings.Join(b.told(), "; "); got != device0+" "+named {
			t.Errorf("news %q", got)
		}
		after(10 * every)
		is("1 " + named)
		b.set(func() { b.openers = b.openers[1:] }) // the first process ends
		after(every)
		is("1 process 8 train (pod team/a, to which no device of the kind is given)")
		b.set(func() { b.openers = nil })
		after(every)
		is("0")
		if len(b.told()) != 1 {
			t.Errorf("news %q", b.told())
		}
	})
}

// TestPIDReuse: two processes with one PID are each seen once.
func TestPIDReuse(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		for start := range time.Duration(20) {
			b.set(func() { b.openers = []host.Opener{opener(7, start, podA, "/dev/npu0")} })
			after(confirm)
			if got := b.says(); strings.Contains(got, "process") {
				t.Fatal(got)
			}
		}
	})
}

// TestUnknown: while it is not known who was given what, nobody is named; who was named before is no news afterwards.
func TestUnknown(t *testing.T) {
	problem := accel.Problemf(accel.ProbeUnanswered, "the kubelet is silent")
	for name, spoil := range map[string]func(*bed, bool){
		"the kubelet": func(b *bed, ill bool) { b.silent = map[bool]*accel.Problem{true: problem}[ill] },
		"the records": func(b *bed, ill bool) { b.unknown = map[bool]*accel.Problem{true: problem}[ill] },
		"the processes": func(b *bed, ill bool) {
			b.unread = map[bool]error{true: errors.New("the kubelet is silent")}[ill]
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bed) {
				b.set(func() { spoil(b, true); b.openers = []host.Opener{opener(7, 1, podA, "/dev/npu0")} })
				after(10 * every)
				if got := b.says(); got != "0 not known: the kubelet is silent" {
					t.Error(got)
				}
				b.set(func() { spoil(b, false) })
				after(confirm + time.Second)
				if got := b.says(); got != "0" { // now it was seen once
					t.Error(got)
				}
				after(every)
				if got := b.says(); !strings.HasPrefix(got, "1 process 7 ") {
					t.Error(got)
				}
				b.set(func() { spoil(b, true) })
				after(2 * again)
				if got := b.says(); got != "0 not known: the kubelet is silent" {
					t.Error(got)
				}
				b.set(func() { spoil(b, false) })
				after(every)
				if got := b.says(); !strings.HasPrefix(got, "1 process 7 ") || len(b.told()) != 1 {
					t.Errorf("%s, news %q", got, b.told())
				}
			})
		})
	}
}

// TestNobodyAsked: the kubelet and the API server are asked about those alone whom no record knows.
func TestNobodyAsked(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.set(func() {
			b.silent = accel.Problemf(accel.ProbeUnanswered, "nobody answers")
			b.openers = []host.Opener{opener(7, 1, podA, "/dev/npu0")}
			b.recorded = []Grant{{Unit: device0, PodUID: podA}}
		})
		after(10 * every)
		if got := b.says(); got != "0" || b.times() > 0 {
			t.Errorf("%s, asked %d times", got, b.times())
		}
		b.set(func() {
			b.silent, b.recorded, b.asked = nil, nil, []Grant{{Unit: device0, Namespace: "team", Pod: "a"}}
		})
		after(10 * every)
		if got := b.says(); got != "0" || b.times() == 0 || len(b.told()) > 0 {
			t.Errorf("%s, asked %d times, news %q", got, b.times(), b.told())
		}
	})
}

// TestNamedAgain: a pod that uses a device now and then is named once, and once more after it has left it alone.
func TestNamedAgain(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		uses := func() {
			for range 10 {
				b.set(func() { b.openers = []host.Opener{opener(7, time.Since(b.began), podA, "/dev/npu0")} })
				after(2 * every)
				b.set(func() { b.openers = nil })
				after(every)
			}
		}
		uses()
		if len(b.told()) != 1 {
			t.Fatalf("news %q", b.told())
		}
		after(again + every)
		uses()
		if len(b.told()) != 2 {
			t.Errorf("news %q", b.told())
		}
	})
}

// TestUsers: processes are named together if they are of one pod, container or service; there are many, and few are
// listed.
func TestUsers(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.set(func() {
			of := func(pid int, o host.Opener) {
				o.PID, o.Comm, o.Nodes = pid, "x", []string{"/dev/npu0"}
				b.openers = append(b.openers, o)
			}
			of(1, host.Opener{Unit: "a.service"})
			of(2, host.Opener{Container: strings.Repeat("0f", 32), Unit: "libpod.scope"})
			of(3, host.Opener{Unit: "a.service"})
			of(4, host.Opener{Unit: ""})
			of(5, host.Opener{Container: strings.Repeat("0f", 32), Unit: "libpod.scope"})
		})
		after(3 * confirm)
		if got := b.says(); got != "3 process 2 x and 1 more (container 0f0f0f0f0f0f, which is in no pod); "+
			"process 4 x (of the host); process 1 x and 1 more (of the host, in a.service)" {
			t.Error(got)
		}
		b.set(func() {
			b.openers = nil
			for pid := range 100 {
				b.openers = append(b.openers, host.Opener{PID: pid, Unit: fmt.Sprintf("%d.service", pid), Nodes: []string{"/dev/npu0"}})
			}
		})
		after(3 * every)
		h := b.first()
		if b.says(); h.Count != 100 || len(h.Users) != accel.MaxUnrequested || !strings.HasSuffix(b.says(), "; and 84 more") {
			t.Errorf("%d users, %d listed, %q", h.Count, len(h.Users), b.says())
		}
	})
}

// TestPace: looks that take long are rarer, and at once after the first one there is none.
func TestPace(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		after(5 * time.Minute)
		b.set(func() {
			if n := len(b.looks); n < 9 || n > 11 || b.looks[0] < confirm {
				t.Errorf("%d looks: %s", n, b.looks)
			}
			b.looks, b.takes = nil, time.Second
		})
		after(20 * time.Minute)
		b.set(func() {
			if n := len(b.looks); n < 5 || n > 7 {
				t.Errorf("%d looks of a second each: %s", n, b.looks)
			}
			b.looks, b.openers = nil, []host.Opener{opener(7, 1, podA, "/dev/npu0")}
		})
		after(20 * time.Minute)
		b.set(func() {
			if n := len(b.looks); n < 6 || n > 9 {
				t.Errorf("%d looks of a second each with a suspect: %s", n, b.looks)
			}
		})
	})
}

// TestOldAnswer: a look that does not end makes the last answer old.
func TestOldAnswer(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		after(confirm + time.Second)
		if got := b.says(); got != "0" {
			t.Error(got)
		}
		b.set(func() { b.takes = time.Hour })
		after(every + late + time.Second)
		if got := b.says(); got != "0 not known: the last look at the processes of the host has not ended" {
			t.Error(got)
		}
		after(time.Hour)
		if got := b.says(); got != "0" {
			t.Error(got)
		}
	})
}

// TestNotWanted: without a kubelet nobody is looked for, nor where nobody is reported. What was known is forgotten.
func TestNotWanted(t *testing.T) {
	for name, change := range map[string]func(*bed){
		"no kubelet": func(b *bed) { b.m.Want.Kubernetes = false },
		"no report": func(b *bed) {
			b.m.Want.Kinds = map[string]*accel.Definition{"npu": {Unrequested: &accel.Unrequested{Report: accel.ReportNone}}}
		},
		"no devices": func(b *bed) { b.m.Have = nil },
		"no nodes":   func(b *bed) { b.m = machineWithoutNodes(b.m) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bed) {
				b.set(func() { b.openers = []host.Opener{opener(7, 1, podA, "/dev/npu0")} })
				after(3 * confirm)
				if got := b.says(); !strings.HasPrefix(got, "1 ") {
					t.Error(got)
				}
				var was accel.Machine
				b.set(func() { was = b.m })
				b.set(func() { change(b); b.looks = nil })
				after(2 * every)
				b.set(func() { b.looks = nil })
				after(time.Hour)
				b.mu.Lock()
				if len(b.looks) > 0 || len(b.have) > 0 || len(b.seen) > 0 {
					t.Errorf("%d looks, %v, %v", len(b.looks), b.have, b.seen)
				}
				b.m = was
				b.mu.Unlock()
				b.publish()
				after(2 * every)
				if got := b.says(); !strings.HasPrefix(got, "1 ") {
					t.Errorf("wanted again: %s", got)
				}
			})
		})
	}
}

func machineWithoutNodes(m accel.Machine) accel.Machine {
	m.Have = map[string]accel.Have{"npu": {Accelerators: []accel.Accelerator{{ID: device0}}}}
	return m
}

// TestEndsAtOnce: a look that is in progress does not keep an agent from ending.
func TestEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		b.o.Openers = func(ctx context.Context, _ []accel.DeviceNode, _ func(string) bool) ([]host.Opener, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		after(2 * confirm)
		cancel()
		if err := <-ended; err != nil || b.changes > 0 {
			t.Errorf("%v, %d changes", err, b.changes)
		}
	})
}

// TestHost: a definition may spare the processes of the host.
func TestHost(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.set(func() {
			containers := &accel.Unrequested{Report: accel.ReportContainers}
			b.m.Want.Kinds = map[string]*accel.Definition{"npu": {Unrequested: containers}}
			b.openers = []host.Opener{opener(7, 1, "", "/dev/npu0")}
		})
		after(3 * confirm)
		if got := b.says(); got != "0" || b.times() > 0 {
			t.Errorf("%s, asked %d times", got, b.times())
		}
	})
}
