package deviceplugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// estate holds connections for the next process, as the service manager does.
type estate struct {
	t *testing.T

	mu   sync.Mutex
	held map[string][]*net.UnixConn
}

// process is one process of the agent. It gets what the previous processes kept. One that is dead reads nothing.
type process struct {
	*estate
	leaving, dead bool
	handed        map[string][]*net.UnixConn
}

// Inherited returns what the previous process kept.
func (p *process) Inherited(name string) []net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []net.Conn
	for _, c := range p.handed[name] {
		all = append(all, c)
	}
	return all
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (e *estate) process() *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &process{estate: e, handed: e.held}
	e.held = map[string][]*net.UnixConn{}
	return p
}

func (p *process) Keep(name string, c *net.UnixConn) net.Conn {
	f, err := c.File()
	if err != nil {
		p.t.Error(err)
		return c
	}
	defer f.Close()
	copied, err := net.FileConn(f)
	if err != nil {
		p.t.Error(err)
		return c
	}
	p.t.Cleanup(func() { copied.Close() })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[name] = append(p.held[name], copied.(*net.UnixConn))
	return held{c, p}
}

func (p *process) End(name string) {
	p.mu.Lock()
	ending := p.handed[name]
	delete(p.handed, name)
	p.mu.Unlock()
	for _, c := range ending {
		held{c, p}.Close()
	}
}

func (p *process) Leaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving
}

func (p *process) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
}

type held struct {
	*net.UnixConn
	p *process
}

func (h held) Read(b []byte) (int, error) {
	n, err := h.UnixConn.Read(b)
	h.p.mu.Lock()
	dead := h.p.dead
	h.p.mu.Unlock()
	if dead {
		<-h.p.t.Context().Done()
		return 0, net.ErrClosed
	}
	return n, err
}

func (h held) Close() error {
	if !h.p.Leaving() {
		h.CloseWrite()
		h.CloseRead()
	}
	return h.UnixConn.Close()
}

func TestNextProcessGoesOn(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	e := &estate{t: t}
	dips := 0
	over := make(chan struct{})
	var looking sync.WaitGroup
	first := e.process()
	p := newPlugin(k, func(c *Config) { c.Connections = first })
	p.Update(two())
	stop := run(t, p)
	eventually(t, "registered and counted", settled(p, 1, 2))
	looking.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				if len(k.health()) != 2 {
					dips++
				}
			}
		}
	})
	const lives = 5
	for range lives {
		first.leave()
		stop()
		k.set(func() {
			if k.open != 1 {
				t.Errorf("%d streams are open when the process has left, want 1", k.open)
			}
		})
		first = e.process()
		p = newPlugin(k, func(c *Config) { c.Connections = first })
		p.Update(two())
		stop = run(t, p)
		eventually(t, "registered and counted by the next process", settled(p, 1, 2))
		eventually(t, "the stream of the process before has ended", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.open == 1
		})
	}
	close(over)
	looking.Wait()
	if dips > 0 {
		t.Errorf("the kubelet was seen without devices %d times", dips)
	}
	if got, want := k.health(), []string{"a", "b"}; !cmp.Equal(got, want) {
		t.Errorf("the kubelet has %v, want %v", got, want)
	}
	stop() // this one does not leave
	eventually(t, "the stream has ended with the plugin", func() bool { return len(k.health()) == 0 })
}

// firstProcess starts a kubelet and the plugin of a process that keeps its connections, and waits until the kubelet
// counts its devices. stop ends the plugin.
func firstProcess(t *testing.T) (k *fakeKubelet, e *estate, first *process, stop func()) {
	t.Helper()
	k = newFakeKubelet(t)
	k.start()
	t.Cleanup(k.stop)
	e = &estate{t: t}
	first = e.process()
	p := newPlugin(k, func(c *Config) { c.Connections = first })
	p.Update(two())
	stop = run(t, p)
	eventually(t, "registered and counted", settled(p, 1, 2))
	return k, e, first, stop
}

// The kubelet calls while there is no process, and again while it has two plugins: it gets answers, though no process
// can read what it sent.
func TestCallsBetweenProcesses(t *testing.T) {
	k, e, first, stop := firstProcess(t)
	before := k.plugin()
	first.leave()
	stop()
	first.die()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	call := func() error {
		_, err := before.Allocate(ctx, &pluginapi.AllocateRequest{
			ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"a"}}},
		})
		return err
	}
	answers := make(chan error, 2)
	for range cap(answers) {
		go func() { answers <- call() }()
	}
	select {
	case err := <-answers:
		t.Fatalf("a process that is dead answers: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	next := e.process()
	p := newPlugin(k, func(c *Config) { c.Connections, c.Inherited = next, next.Inherited })
	p.timing.overlap = time.Second
	p.Update(two())
	run(t, p)
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Errorf("a call while there was no process: %v", err)
		}
	}
	eventually(t, "registered and counted by the next process", settled(p, 1, 2))
	if err := call(); err != nil {
		t.Errorf("a call of who began with the previous process: %v", err)
	}
	eventually(t, "the stream of the process before has ended", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.open == 1
	})
	eventually(t, "the socket of the process before is gone", func() bool {
		sockets, err := filepath.Glob(filepath.Join(k.dir, "acceld-*.sock"))
		return err == nil && len(sockets) == 1
	})
}

// A path that is none of this plugin's is left alone.
func TestListensOnlyWhereItsOwnSocketsAre(t *testing.T) {
	dir := sockets(t)
	for name, own := range map[string]bool{
		"acceld-example-thing-0123abcd.sock":       true,
		"acceld-example-other-0123abcd.sock":       false,
		"kubelet.sock":                             false,
		"more/acceld-example-thing-0123abcd.sock":  false,
		"../acceld-example-thing-0123abcd.sock":    false,
		"acceld-example-thing-0123abcd.sock/../it": false,
	} {
		path := dir + "/" + name
		left, _ := os.Create(path)
		l, err := listenAgain(path, dir, "example-thing")
		if (err == nil) != own {
			t.Errorf("%s: %v", name, err)
		}
		if l != nil {
			l.Close()
		}
		if left != nil && !own {
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			os.Remove(path)
		}
	}
}

// A failed registration ends what was offered before. So does a stream that this process ends while it keeps
// running.
func TestRegistrationFailsAfterPredecessor(t *testing.T) {
	k, e, first, stop := firstProcess(t)
	first.leave()
	stop()
	k.set(func() { k.refusals = 1000 })
	p := newPlugin(k, func(c *Config) { c.Connections = e.process() })
	p.Update(two())
	run(t, p)
	eventually(t, "nothing is offered", func() bool { return len(k.health()) == 0 })
	k.set(func() { k.refusals = 0 })
	eventually(t, "registered at last", func() bool { return p.State().Allocatable.Is(2) })
	k.set(func() { k.blind = true }) // the list is not counted: the plugin registers again
	eventually(t, "registered again", func() bool {
		return p.State().Registrations >= 2 && p.State().Allocatable.Is(2)
	})
}

// A process that leaves still answers calls in flight.
func TestLeavingAnswersCalls(t *testing.T) {
	inv := newInventory(nil)
	inv.quiet(time.Hour) // there was never a call
	leave := inv.enter()
	again := inv.enter()
	done := make(chan struct{})
	go func() { inv.quiet(time.Hour); close(done) }()
	leave()
	select {
	case <-done:
		t.Error("a call is in flight")
	case <-time.After(10 * time.Millisecond):
	}
	again()
	<-done
	defer inv.enter()()
	inv.quiet(time.Millisecond) // a call that does not end holds up nothing

	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	process := (&estate{t: t}).process()
	p := newPlugin(k, func(c *Config) { c.Connections = process })
	p.timing.stop = time.Hour
	p.Update(two())
	stop := run(t, p)
	eventually(t, "registered and counted", settled(p, 1, 2))
	process.leave()
	call := p.list.enter()
	left := make(chan struct{})
	go func() { stop(); close(left) }()
	select {
	case <-left:
		t.Error("it left while a call was in flight")
	case <-time.After(100 * time.Millisecond):
	}
	call()
	<-left
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	// Until the process has ended it continues to answer.
	if _, err := k.plugin().GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(false)); err != nil {
		t.Errorf("a call after leaving: %v", err)
	}
}
