package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

const (
	device0 = "0000:01:00.0"
	kept    = "/run/acceld/handover.json"
	podA    = "11111111-2222-3333-4444-555555555555"
	podB    = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
)

// bed is a machine with one device.
type bed struct {
	t    *testing.T
	host *host.Host
	root string
	*Keeper

	mu      sync.Mutex
	def     accel.Definition
	users   []accel.Holder
	claims  []string
	unknown bool // which claims are prepared
	real    bool // users are processes of this machine
	parts   []accel.Accelerator
	other   *accel.Switched // the device has another driver
	cleaned int
	fail    *accel.Problem
	during  func() // called while the device is being scrubbed
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, root: t.TempDir(), def: accel.Definition{Kind: "a-b", Handover: &accel.Handover{}}}
	var err error
	if b.host, err = host.New(b.root); err != nil {
		t.Fatal(err)
	}
	b.Keeper = b.keeper()
	return b
}

// keeper returns another keeper of the same machine, as that of the next agent.
func (b *bed) keeper() *Keeper {
	return New(Options{
		Host: b.host, File: kept, Log: slog.New(slog.DiscardHandler), Changed: func() {},
		Machine: func() accel.Machine {
			b.mu.Lock()
			defer b.mu.Unlock()
			def := b.def
			return accel.Machine{
				Want: accel.Want{Kinds: map[string]*accel.Definition{"a-b": &def}},
				Have: map[string]accel.Have{"a-b": {
					Driver: accel.DriverHave{Serves: true},
					Accelerators: []accel.Accelerator{{
						ID: device0, Health: accel.Health{State: accel.Healthy}, Partitions: b.parts, Switched: b.other,
					}},
				}},
			}
		},
		Users: func(*accel.Definition, accel.Accelerator) []accel.Holder {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.DeleteFunc(slices.Clone(b.users), func(u accel.Holder) bool {
				_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", u.PID)) // a killed process has none, nor open files
				return b.real && err != nil
			})
		},
		Clean: func(context.Context, *accel.Definition, accel.Accelerator) *accel.Problem {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.during != nil {
				b.during()
			}
			if b.fail == nil {
				b.cleaned++
			}
			return b.fail
		},
		Claims: func(string) ([]string, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.Clone(b.claims), !b.unknown
		},
	})
}

// run runs a keeper; stop ends it.
func (b *bed) run(k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	guard.Go(func() { ended <- k.Run(ctx) })
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				b.t.Error(err)
			}
		})
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *bed) times() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cleaned
}

func (b *bed) write(name, text string) {
	b.t.Helper()
	name = filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// group returns the directory of a pod's control group.
func group(pod string) string {
	return "/sys/fs/cgroup/kubepods.slice/kubepods-pod" + strings.ReplaceAll(pod, "-", "_") + ".slice"
}

// starts lets a process of a pod's container begin.
func (b *bed) starts(pid int, pod string) {
	dir := group(pod) + fmt.Sprintf("/crio-%d.scope", pid)
	b.write(dir+"/cgroup.events", "populated 1\nfrozen 0\n")
	b.write(group(pod)+"/cgroup.events", "populated 1\nfrozen 0\n")
	b.write(fmt.Sprintf("/proc/%d/cgroup", pid), "0::"+strings.TrimPrefix(dir, "/sys/fs/cgroup")+"\n")
}

// ends ends all processes of a pod; removed means that its control group is removed, too.
func (b *bed) ends(pod string, removed bool) {
	if removed {
		if err := os.RemoveAll(filepath.Join(b.root, group(pod))); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	b.write(group(pod)+"/cgroup.events", "populated 0\nfrozen 0\n")
}

// admit asks for the device, for as long as a container would wait.
func (b *bed) admit(pid int, patience time.Duration) *accel.Problem {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	return b.Admit(ctx, pid, []string{device0})
}

func (b *bed) must(pid int) {
	b.t.Helper()
	if problem := b.admit(pid, 10*time.Second); problem != nil {
		b.t.Fatalf("process %d was refused: %v", pid, problem)
	}
}

// soon waits until something is true.
func (b *bed) soon(what string, holds func() bool) {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("after 10 s still not: %s", what)
		}
	}
}

// seen is the device as people see it.
func (b *bed) seen() accel.Accelerator {
	return b.Enrich(&b.def, []accel.Accelerator{{ID: device0}})[0]
}

// TestPassesOn: a device is cleaned between two pods and not between two containers of one, and who has it is written
// down before the container starts.
func TestPassesOn(t *testing.T) {
	b := newBed(t)
	b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	b.soon("nobody knew who had had it: cleaned", func() bool { return b.times() == 1 })
	text, err := b.host.ReadFile(kept)
	if err != nil || !strings.Contains(string(text), podA) {
		t.Fatalf("%v: %s", err, text)
	}
	b.starts(11, podA)
	b.must(11)
	b.starts(20, podB)
	if problem := b.admit(20, 300*time.Millisecond); problem == nil || problem.Reason != accel.HandoverRefused ||
		!strings.Contains(problem.Message, podA) {
		t.Fatalf("the next pod got the device of one that runs: %v", problem)
	}
	if b.times() != 1 {
		t.Fatalf("cleaned %d times", b.times())
	}
	admitted := make(chan *accel.Problem, 1)
	guard.Go(func() { admitted <- b.admit(20, 10*time.Second) })
	b.ends(podA, false)
	if problem := <-admitted; problem != nil {
		t.Fatal(problem)
	}
	have := b.seen().Handover
	if b.times() != 2 || have.State != accel.HandoverUsed || !slices.Equal(have.Tenants, []string{"pod " + podB}) ||
		have.Cleaned != 2 || have.Seconds < have.Last {
		t.Errorf("cleaned %d times: %+v", b.times(), have)
	}
	b.ends(podB, true)
	b.soon("cleaned when its pod has ended", func() bool { return b.seen().Handover.State == accel.HandoverClean })
	b.starts(30, podA)
	b.must(30)
	if b.times() != 3 {
		t.Errorf("cleaned %d times", b.times())
	}
}

// TestNextAgent: the next agent knows who has a device, and cleans one whose tenant has ended meanwhile, or while it
// was being cleaned.
func TestNextAgent(t *testing.T) {
	b := newBed(t)
	stop := b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	stop()
	if problem := b.admit(10, 100*time.Millisecond); problem == nil || problem.Reason != accel.HandoverRefused {
		t.Fatalf("a keeper that has ended admits: %v", problem)
	}
	b.Keeper = b.keeper()
	stop = b.run(b.Keeper)
	b.must(10)
	if have := b.seen().Handover; b.times() != 1 || !slices.Equal(have.Tenants, []string{"pod " + podA}) {
		t.Fatalf("cleaned %d times: %+v", b.times(), have)
	}
	stop()
	b.ends(podA, true)
	b.Keeper = b.keeper()
	b.run(b.Keeper)
	b.soon("cleaned by the next agent", func() bool { return b.times() == 2 })
}

// TestUnreadable: with a file that cannot be read, nobody gets a device that was not cleaned.
func TestUnreadable(t *testing.T) {
	for name, text := range map[string]string{
		"torn": `{"schema":1,"dev`, "later": `{"schema":2,"devices":{"0000:01:00.0":{}}}`,
		"empty device": `{"schema":1,"devices":{"0000:01:00.0":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.write(kept, text)
			b.run(b.Keeper)
			b.starts(10, podA)
			b.must(10)
			if b.times() != 1 {
				t.Errorf("cleaned %d times", b.times())
			}
		})
	}
}

// TestInUseBefore: a pod that had the device open before anybody wrote it down keeps it, and the next one waits for it.
func TestInUseBefore(t *testing.T) {
	b := newBed(t)
	b.starts(10, podA)
	b.users = []accel.Holder{{PID: 10, PodUID: podA}}
	b.run(b.Keeper)
	b.starts(11, podA)
	b.must(11)
	b.starts(20, podB)
	if problem := b.admit(20, 200*time.Millisecond); problem == nil || b.times() != 0 {
		t.Fatalf("cleaned %d times, %v", b.times(), problem)
	}
}

// TestLeftovers: a process that outlives its pod keeps the device from everybody; one of the pod's own is killed if the
// kind says so, and another never.
func TestLeftovers(t *testing.T) {
	b := newBed(t)
	b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	b.set(func() { b.users = []accel.Holder{{PID: 12, Comm: "left"}} })
	b.ends(podA, true)
	b.soon("withheld", func() bool { w := b.seen().Withheld; return w != nil && w.Reason == accel.LeftoverProcess })
	if w := b.seen().Withheld; w.By != accel.ByHandover || !strings.Contains(w.Message, "left (pid 12") {
		t.Errorf("%+v", w)
	}
	b.starts(20, podB)
	if problem := b.admit(20, 5*time.Second); problem == nil || problem.Reason != accel.LeftoverProcess {
		t.Fatalf("%v", problem)
	}
	b.set(func() { b.users = nil })
	b.must(20)
	if a := b.seen(); a.Withheld != nil || b.times() != 2 {
		t.Errorf("cleaned %d times: %+v", b.times(), a)
	}
}

// TestSameName: a container whose control group has the name of an earlier one's is another tenant.
func TestSameName(t *testing.T) {
	b := newBed(t)
	b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	dir := filepath.Join(b.root, group(podA))
	if err := os.Rename(dir, dir+".before"); err != nil { // so that its number is not used again
		t.Fatal(err)
	}
	b.starts(11, podA)
	b.must(11)
	if b.times() != 2 {
		t.Errorf("cleaned %d times", b.times())
	}
}

// TestKill: only a process of the former tenant is killed.
func TestKill(t *testing.T) {
	b := newBed(t)
	b.def.Handover.Leftovers, b.real = accel.LeftoversKill, true
	b.run(b.Keeper)
	b.starts(10, podA)
	// Both have left their control groups; a mount namespace is not left without trace.
	mounts := func(pid int, namespace string) {
		b.write(fmt.Sprintf("/proc/%d/comm", pid), "sleep\n")
		dir := filepath.Join(b.root, fmt.Sprintf("proc/%d/ns", pid))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(namespace, filepath.Join(dir, "mnt"))); err != nil {
			t.Fatal(err)
		}
	}
	sleeper := func(namespace string) *exec.Cmd {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		mounts(cmd.Process.Pid, namespace)
		return cmd
	}
	mounts(10, "mnt:[1]")
	b.must(10)
	theirs, other, later := sleeper("mnt:[1]"), sleeper("mnt:[2]"), sleeper("mnt:[1]")
	b.starts(later.Process.Pid, podB) // whose namespace got the number of one that is gone
	b.set(func() {
		b.users = []accel.Holder{
			{PID: later.Process.Pid}, {PID: theirs.Process.Pid}, {PID: other.Process.Pid, Comm: "other"},
		}
	})
	ended := make(chan error, 1)
	guard.Go(func() { ended <- theirs.Wait() })
	b.ends(podA, true)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process of the former pod ended with %v", err)
	}
	b.soon("withheld because of the other process", func() bool {
		w := b.seen().Withheld
		return w != nil && strings.Contains(w.Message, "other")
	})
	for _, cmd := range []*exec.Cmd{other, later} {
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); err != nil { // a killed one has none
			t.Errorf("another pod's process was killed: %v", err)
		}
	}
	if have := b.seen().Handover; have.Killed != 1 || have.State != accel.HandoverFailed {
		t.Errorf("%+v", have)
	}
	b.set(func() { b.users = nil })
	b.soon("cleaned", func() bool { return b.seen().Handover.State == accel.HandoverClean })
}

// TestOpenedMeanwhile: whoever opens the device while it is being scrubbed keeps it from the next tenant.
func TestOpenedMeanwhile(t *testing.T) {
	b := newBed(t)
	b.during = func() { b.users = []accel.Holder{{PID: 12, Comm: "thief"}} }
	b.run(b.Keeper)
	b.starts(10, podA)
	if problem := b.admit(10, 5*time.Second); problem == nil || problem.Reason != accel.LeftoverProcess {
		t.Fatalf("%v", problem)
	}
}

// TestNotScrubbed: a device that cannot be scrubbed, or fails its self-test, is nobody's until it can.
func TestNotScrubbed(t *testing.T) {
	b := newBed(t)
	b.fail = accel.Problemf(accel.ScrubFailed, "x")
	b.run(b.Keeper)
	b.starts(10, podA)
	if problem := b.admit(10, 5*time.Second); problem == nil || problem.Reason != accel.ScrubFailed {
		t.Fatalf("%v", problem)
	}
	if a := b.seen(); a.Withheld == nil || a.Withheld.Reason != accel.ScrubFailed ||
		a.Handover.State != accel.HandoverFailed {
		t.Errorf("%+v", a)
	}
	b.set(func() { b.fail = nil })
	b.soon("cleaned by itself", func() bool { return b.seen().Handover.State == accel.HandoverClean })
}

// TestShared: the pods that share a device have it together, and it is cleaned after the last.
func TestShared(t *testing.T) {
	b := newBed(t)
	b.def.Sharing = &accel.Sharing{Replicas: 2}
	b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	b.starts(20, podB)
	b.must(20)
	if b.times() != 1 {
		t.Fatalf("cleaned %d times", b.times())
	}
	b.ends(podA, true)
	if have := b.seen().Handover; have.State != accel.HandoverUsed {
		t.Errorf("%+v", have)
	}
	b.ends(podB, true)
	b.soon("cleaned", func() bool { return b.seen().Handover.State == accel.HandoverClean })
}

// TestClaims: the pods of one claim are one tenant, until the claim is not prepared any more.
func TestClaims(t *testing.T) {
	b := newBed(t)
	b.claims = []string{"c1"}
	b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	b.starts(20, podB)
	b.must(20)
	b.ends(podA, true)
	b.ends(podB, true)
	b.starts(21, podB)
	b.must(21)
	if have := b.seen().Handover; b.times() != 1 || !slices.Equal(have.Tenants, []string{"claim c1"}) {
		t.Fatalf("cleaned %d times: %+v", b.times(), have)
	}
	b.set(func() { b.claims, b.unknown = []string{"c2"}, true })
	b.Poke()
	if problem := b.admit(21, 200*time.Millisecond); problem == nil || b.times() != 1 {
		t.Fatalf("cleaned %d times while it is not known which claims are prepared, %v", b.times(), problem)
	}
	b.set(func() { b.unknown = false })
	b.Poke()
	time.Sleep(50 * time.Millisecond)
	if b.times() != 1 {
		t.Fatal("cleaned under a process of the last claim")
	}
	b.ends(podB, true)
	b.soon("cleaned", func() bool { return b.times() == 2 })
	b.starts(22, podB)
	b.must(22)
	if have := b.seen().Handover; b.times() != 2 || !slices.Equal(have.Tenants, []string{"claim c2"}) {
		t.Fatalf("cleaned %d times: %+v", b.times(), have)
	}
}

// TestDivided: a device is not touched while it is divided, because its partitions may be in use, and is cleaned when
// it is whole again.
func TestDivided(t *testing.T) {
	b := newBed(t)
	b.parts = []accel.Accelerator{{ID: device0 + "-p0", Parent: device0, Health: accel.Health{State: accel.Healthy}}}
	b.run(b.Keeper)
	b.Poke()
	time.Sleep(50 * time.Millisecond)
	if b.times() != 0 {
		t.Error("a divided device was cleaned")
	}
	b.set(func() { b.parts = nil })
	b.Poke()
	b.soon("cleaned", func() bool { return b.times() == 1 })
}

// TestReconfigured: a kind that needs no care any more does not wait.
func TestReconfigured(t *testing.T) {
	b := newBed(t)
	b.run(b.Keeper)
	b.starts(10, podA)
	b.must(10)
	b.set(func() { b.def.Handover = nil })
	b.starts(20, podB)
	b.must(20)
}

// TestUnknownContainer: a process without a control group of its own is nobody's container.
func TestUnknownContainer(t *testing.T) {
	b := newBed(t)
	b.run(b.Keeper)
	b.write("/proc/10/cgroup", "0::/\n")
	for _, pid := range []int{10, 11} {
		if problem := b.admit(pid, time.Second); problem == nil || problem.Reason != accel.HandoverRefused {
			t.Errorf("process %d: %v", pid, problem)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":1,"devices":{"0000:01:00.0":{"tenants":[{"group":{"dir":"/x"}}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		devices, err := decode(text)
		if err != nil && devices != nil {
			t.Fatal("an error with devices")
		}
		for id, y := range devices {
			d := device{tenancy: y}
			if h := d.have(); h.State == "" {
				t.Fatal(id)
			}
		}
	})
}

// TestLend: a claim that gets the device with another driver is a tenant: the former one's is cleaned before, and its
// own after it is unprepared. Nothing is cleaned while it is prepared.
func TestLend(t *testing.T) {
	b := newBed(t)
	b.run(b.Keeper)
	b.set(func() { b.claims = []string{"claim-1"} })
	if problem := b.Lend(t.Context(), "claim-1", device0); problem != nil {
		t.Fatal(problem)
	}
	if n := b.times(); n != 1 { // of which it was not known who had it
		t.Errorf("cleaned %d times before", n)
	}
	if problem := b.Lend(t.Context(), "claim-1", device0); problem != nil || b.times() != 1 {
		t.Error("again:", problem, b.times())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if problem := b.Lend(ctx, "claim-2", device0); problem == nil || problem.Reason != accel.HandoverRefused {
		t.Error("another claim:", problem)
	}
	b.set(func() { b.claims, b.other = []string{"claim-2"}, &accel.Switched{Use: accel.UseVFIO} })
	b.Poke()
	time.Sleep(50 * time.Millisecond)
	if b.times() != 1 {
		t.Error("it was cleaned before it had its driver again")
	}
	b.set(func() { b.other = nil })
	b.Poke()
	if problem := b.Lend(t.Context(), "claim-2", device0); problem != nil || b.times() != 2 {
		t.Error("after the first was unprepared:", problem, b.times())
	}
}
