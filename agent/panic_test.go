package agent

import (
	"context"
	"io"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

// ill is a task whose first two runs panic: the first when it asks its context for the first time, the second when it
// does so for the third time.
type ill struct {
	Task
	first, second bool
	runs, ended   atomic.Int32
}

func (x *ill) Run(ctx context.Context) error {
	n := x.runs.Add(1)
	defer x.ended.Add(1)
	switch {
	case n == 1 && x.first:
		ctx = poisonedContext(ctx, 1)
	case n == 2 && x.second:
		ctx = poisonedContext(ctx, 3)
	}
	return x.Task.Run(ctx)
}

// poisoned is a context whose Done panics at one call: any line of a task might panic.
type poisoned struct {
	context.Context
	left atomic.Int32
}

func poisonedContext(ctx context.Context, call int32) context.Context {
	p := &poisoned{Context: ctx}
	p.left.Store(call)
	return p
}

func (p *poisoned) Done() <-chan struct{} {
	if p.left.Add(-1) == 0 {
		panic("an error of ours")
	}
	return p.Context.Done()
}

// TestPanicInEachTask: every task of the agent, in the list that it really has, panics as it begins and further
// on. That is a reason which /v1/machine and the metrics show, the task works again afterwards, and no other task ends.
func TestPanicInEachTask(t *testing.T) {
	var version atomic.Pointer[string]
	said := "v1.37.1"
	version.Store(&said)
	credentials := filepath.Join(t.TempDir(), "kubeconfig")
	save(t, credentials, apiServer(t, &version))
	config := "node: node-a\nkubernetes: {enabled: on, kubeconfig: " + credentials + "}\n" +
		"endpoint: {listen: '127.0.0.1:0', remote: {listen: '127.0.0.1:0', tokens: true}}\n"
	var names []string
	for _, task := range assembled(t, hosttest.New(t), config).tasks {
		names = append(names, task.String())
	}
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, 6) // they mostly wait, but a user has only 128 instances of inotify
	for _, name := range names {
		room <- struct{}{}
		all.Go(func() {
			t.Run(name, func(t *testing.T) { panicIn(t, config, name) })
			<-room
		})
	}
}

func panicIn(t *testing.T, config, name string) {
	m := hosttest.New(t)
	m.AddPCI(accel.PCIDevice{Address: "0000:01:00.0", Class: "120000", Vendor: "f00d", Device: "0001"})
	m.File("/etc/acceld/definitions.d/npu.yaml",
		"kind: example-npu\nresource: example.com/npu\nmatch: [{vendor: f00d, device: '0001'}]\n"+
			"driver: {binds: npu, modules: [{name: npu}]}\n")
	a := assembled(t, m, config)
	for _, start := range []func() error{
		func() error { return a.watcher.followSteps(a.ctx, a.Kinds, accel.Facts{}) },
		func() error { return a.resets.watch(a.ctx) }, func() error { return a.reloader.watch(a.ctx) },
	} {
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	a.pods.Need()
	var tasks []Task
	var sick *ill
	for _, task := range a.tasks {
		x := &ill{Task: task}
		if task.String() == name {
			x.first, x.second, sick = true, true, x
		}
		tasks = append(tasks, x)
	}
	ctx, end := context.WithCancel(a.ctx)
	var served sync.WaitGroup
	served.Go(func() { Serve(ctx, a.Log, func() {}, tasks...) })
	defer served.Wait()
	defer end()
	shows := func(path, text string) func() bool {
		return func() bool {
			w := httptest.NewRecorder()
			a.exporter.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
			b, err := io.ReadAll(w.Body)
			return err == nil && strings.Contains(string(b), text)
		}
	}
	await(t, "the reason in the metrics", shows("/metrics",
		`acceld_agent_part_problem{part="`+name+`",reason="PartFailed"} 1`))
	await(t, "the reason in the machine", shows("/v1/machine", "panic: an error of ours"))
	await(t, "another run", func() bool { return sick.runs.Load() > 1 })
	for until := time.Now().Add(4 * time.Second); sick.runs.Load() < 3 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond) // not every task asks its context that often
	}
	await(t, "a run that lasts", func() bool {
		runs := sick.runs.Load()
		time.Sleep(time.Second / 2)
		return sick.runs.Load() == runs && sick.ended.Load() == runs-1
	})
	if runs := sick.runs.Load(); runs > 3 {
		t.Errorf("it ran %d times: %v", runs, a.faults.list())
	}
	for _, task := range tasks {
		if x := task.(*ill); x != sick && x.runs.Load() != 1 {
			t.Errorf("%s ran %d times: %v", x, x.runs.Load(), a.faults.list())
		}
	}
	t.Logf("%d runs", sick.runs.Load())
}
