package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

// member is an agent of a DaemonSet.
func member(t *testing.T, h *host.Host, group string) *hotRestart {
	t.Helper()
	return &hotRestart{host: h, group: group, log: slog.New(slog.DiscardHandler)}
}

// serves is a machine whose kind the kubelet has, or waits for.
func serves(next accel.Step) accel.Machine {
	m := accel.Machine{Taken: time.Unix(1, 0)}
	m.Want.Kubernetes = true
	m.Want.Kinds = map[string]*accel.Definition{"a": {Kind: "a"}}
	m.Status = map[string]accel.Status{"a": {Next: next}}
	return m
}

// TestHotRestart: an agent that another one follows ends, and has its connections until the other one is registered. It
// goes on if the other one ends.
func TestHotRestart(t *testing.T) {
	h := hosttest.New(t).Host
	first, second := member(t, h, "acceld-system"), member(t, h, "acceld-system")
	release, problem := first.begin(t.Context())
	if problem != nil {
		t.Fatal(problem)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := first.watch(ctx); err != nil {
		t.Fatal(err)
	}
	ended, over := make(chan struct{}), make(chan error, 1)
	still := func() (accel.Machine, <-chan struct{}) { return serves(accel.StepNone), nil }
	go func() { over <- first.run(ctx, still, func() { close(ended); cancel() }) }()
	select {
	case <-ended:
		t.Fatal("nobody has asked it to end")
	case <-time.After(50 * time.Millisecond):
	}

	followed := make(chan func())
	go func() {
		release, problem := second.begin(t.Context())
		if problem != nil {
			t.Error(problem)
		}
		followed <- release
	}()
	<-ended
	if err := <-over; err != nil || !first.followed() {
		t.Fatalf("%v, followed %t", err, first.followed())
	}
	select {
	case <-followed:
		t.Fatal("two agents at a time")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	release = <-followed

	// Until the second is registered, the first one answers.
	var next atomic.Pointer[accel.Step]
	step := accel.StepRegister
	next.Store(&step)
	news := make(chan struct{})
	m := func() (accel.Machine, <-chan struct{}) { return serves(*next.Load()), news }
	ctx2, cancel2 := context.WithCancel(t.Context())
	defer cancel2()
	go func() { over <- second.run(ctx2, m, func() { t.Error("nobody follows the second") }) }()
	time.Sleep(50 * time.Millisecond)
	if !first.followed() {
		t.Fatal("the second was not registered yet")
	}
	begin, none := time.Now(), accel.StepNone
	next.Store(&none)
	news <- struct{}{}
	for first.followed() {
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(begin); took < settling {
		t.Errorf("answered for %s after the second was registered", took)
	}
	cancel2()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	release()

	t.Setenv(standby, "1")
	if release, problem = first.begin(t.Context()); problem != nil {
		t.Fatal(problem)
	}
	release()
}

// TestHotRestartOfOthers: only agents of one DaemonSet follow one another, and a driver is replaced to its end.
func TestHotRestartOfOthers(t *testing.T) {
	h := hosttest.New(t).Host
	for _, groups := range [][2]string{{"", ""}, {"", "a"}, {"a", ""}, {"a", "b"}} {
		release, problem := member(t, h, groups[0]).begin(t.Context())
		if problem != nil {
			t.Fatal(problem)
		}
		other := member(t, h, groups[1])
		if _, problem := other.begin(t.Context()); problem == nil || problem.Reason != accel.AlreadyRunning {
			t.Errorf("%q: %v", groups, problem)
		}
		if other.followed() {
			t.Errorf("%q: nobody follows", groups)
		}
		release()
	}
}

// TestHotRestartWaits: an agent that replaces a driver goes on until it has done so.
func TestHotRestartWaits(t *testing.T) {
	h := hosttest.New(t).Host
	first := member(t, h, "a")
	release, problem := first.begin(t.Context())
	if problem != nil {
		t.Fatal(problem)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = member(t, h, "a").begin(ctx) }()
	for !first.followed() {
		time.Sleep(time.Millisecond)
	}
	var ready atomic.Bool
	news := make(chan struct{})
	m := func() (accel.Machine, <-chan struct{}) {
		if ready.Load() {
			return serves(accel.StepNone), news
		}
		return serves(accel.StepDriver), news
	}
	ended := make(chan struct{})
	go func() { _ = first.run(ctx, m, func() { close(ended) }) }()
	news <- struct{}{}
	select {
	case <-ended:
		t.Fatal("the driver is being replaced")
	case <-time.After(50 * time.Millisecond):
	}
	ready.Store(true)
	news <- struct{}{}
	<-ended
}

// TestOurs: an agent of another container is not ours.
func TestOurs(t *testing.T) {
	m := hosttest.New(t)
	self, agent := "0::/kubepods/a\n", "0::/kubepods/b\n"
	m.File("/proc/self/cgroup", self)
	m.File(fmt.Sprintf("/proc/%d/cgroup", os.Getpid()), agent)
	if problem := lock.Ours(m.Host); problem == nil || problem.Reason != accel.ProbeUnanswered {
		t.Errorf("without an agent: %v", problem)
	}
	release, problem := member(t, m.Host, "a").begin(t.Context())
	if problem != nil {
		t.Fatal(problem)
	}
	defer release()
	if problem := lock.Ours(m.Host); problem == nil || problem.Reason != accel.AlreadyRunning {
		t.Errorf("another one's: %v", problem)
	}
	m.File("/proc/self/cgroup", agent)
	if problem := lock.Ours(m.Host); problem != nil {
		t.Error(problem)
	}
	ctx, cancel := context.WithCancel(t.Context())
	next := make(chan struct{})
	go func() { defer close(next); _, _ = member(t, m.Host, "a").begin(ctx) }()
	defer func() { cancel(); <-next }()
	for !lock.Followed(m.Host, "a") {
		time.Sleep(time.Millisecond)
	}
	if problem := lock.Ours(m.Host); problem == nil || !strings.Contains(problem.Message, "follows still answers") {
		t.Errorf("the agent that it follows still answers: %v", problem)
	}
}

// TestHotRestartIsLate: an agent that does not come to be registered lets the previous one go.
func TestHotRestartIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var told time.Duration
		r := &hotRestart{log: slog.New(slog.DiscardHandler), done: func() { told = time.Since(begin) }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		builds := func() (accel.Machine, <-chan struct{}) { return serves(accel.StepDriver), nil }
		if err := r.run(ctx, builds, nil); err != nil || told != followTime {
			t.Errorf("%v, the previous one left after %s", err, told)
		}
	})
}

// TestFinish: an agent whose pod is deleted answers a while longer for the next one, and no longer.
func TestFinish(t *testing.T) {
	h := hosttest.New(t).Host
	release, problem := member(t, h, "a").begin(t.Context())
	if problem != nil {
		t.Fatal(problem)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	next := make(chan struct{})
	go func() { defer close(next); _, _ = member(t, h, "a").begin(ctx) }()
	first := member(t, h, "a")
	for !first.followed() {
		time.Sleep(time.Millisecond)
	}
	over := make(chan error, 1)
	deleted, del := context.WithCancel(t.Context())
	go func() { over <- first.finish(deleted) }()
	del()
	select {
	case err := <-over:
		t.Fatalf("it left at once: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel() // the next one is gone
	<-next
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestRegistered: what is blocked or absent is not waited for.
func TestRegistered(t *testing.T) {
	blocked := serves(accel.StepRegister)
	blocked.Status["a"] = accel.Status{Next: accel.StepDriver, Blocked: &accel.Failure{}}
	held := serves(accel.StepRegister)
	held.Status["a"] = accel.Status{Next: accel.StepRegister, Blocked: &accel.Failure{}}
	unknown := serves(accel.StepNone)
	delete(unknown.Status, "a")
	off := serves(accel.StepRegister)
	off.Want.Kubernetes = false
	for name, c := range map[string]struct {
		m    accel.Machine
		want bool
	}{
		"nothing is known":  {accel.Machine{}, false},
		"ready":             {serves(accel.StepNone), true},
		"kubelet counts":    {serves(accel.StepAwait), true},
		"not registered":    {serves(accel.StepRegister), false},
		"kubelet asked":     {held, false},
		"driver loads":      {serves(accel.StepDriver), false},
		"blocked":           {blocked, true},
		"not looked at":     {unknown, false},
		"no kubelet wanted": {off, true},
	} {
		if got := registered(c.m); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
