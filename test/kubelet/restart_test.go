package kubelet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/test/manager"
)

// patience is when a restart counts as stuck; goal is the time that every restart must settle in.
const (
	patience = 20 * time.Second
	goal     = 2 * time.Second
)

// plugin is one life of the plugin inside this process.
type plugin struct {
	*deviceplugin.Plugin
	stop func()
}

func startPlugin() *plugin {
	p := &plugin{Plugin: newPlugin()}
	p.Update(two())
	p.stop = runPlugin(p.Plugin)
	return p
}

// runPlugin runs p until the function that it returns is called.
func runPlugin(p *deviceplugin.Plugin) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

// right reports that the plugin says what the kubelet says.
func (p *plugin) right() bool {
	have := p.State()
	return have.Registered && have.Allocatable.Is(2) && p.Problem() == nil
}

// say tells what each side thinks.
func say(k *Kubelet, p *plugin) func() string {
	return func() string {
		return fmt.Sprintf("the kubelet counts %d, the plugin has %+v, problem %v", k.Allocatable(thing), p.State(),
			p.Problem())
	}
}

func startKubelet(t *testing.T, pods *Pods) *Kubelet {
	t.Helper()
	k, err := Start(pods)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// times are the settle times of one kind of restart.
type times []time.Duration

// settle waits until the condition holds and lasts, and records the time since began. A kubelet before 1.37 may see the
// end of another plugin of the resource late, and then takes the devices away for a moment: it has settled after that.
func (ts *times) settle(t *testing.T, began time.Time, condition func() bool, say func() string) {
	t.Helper()
	for {
		for !condition() {
			if time.Since(began) > patience {
				t.Fatalf("restart %d is stuck: %s", len(*ts)+1, say())
			}
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		time.Sleep(5 * time.Millisecond)
		if condition() {
			*ts = append(*ts, took)
			return
		}
		if newest {
			t.Fatalf("restart %d did not last: %s", len(*ts)+1, say())
		}
	}
}

func (ts times) report(t *testing.T) {
	t.Helper()
	slices.Sort(ts)
	at := func(p float64) time.Duration { return ts[int(p*float64(len(ts)-1))].Round(time.Millisecond / 10) }
	t.Logf("%d restarts, 0 stuck; settled in p50 %s, p90 %s, p99 %s, worst %s", len(ts), at(.5), at(.9), at(.99), at(1))
	if worst := ts[len(ts)-1]; worst > goal {
		t.Errorf("worst settle time %s, goal %s", worst, goal)
	}
}

func TestPluginRestarts(t *testing.T) {
	need(t)
	k := startKubelet(t, NewPods())
	defer k.Stop()
	p := startPlugin()
	defer func() { p.stop() }()
	var ts times
	for range *restarts {
		began := time.Now()
		p.stop()
		p = startPlugin()
		ts.settle(t, began, func() bool { return k.Allocatable(thing) == 2 && p.right() }, say(k, p))
	}
	ts.report(t)
}

// dipsOf looks at the kubelet until the function that it returns is called, which tells how often it had other than 2
// devices.
func dipsOf(k *Kubelet) (stop func() int) {
	dips := 0
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				if k.Allocatable(thing) != 2 {
					dips++
				}
				time.Sleep(200 * time.Microsecond)
			}
		}
	})
	return func() int {
		close(over)
		wg.Wait()
		return dips
	}
}

func TestPluginRestartsOverlapping(t *testing.T) {
	need(t)
	k := startKubelet(t, NewPods())
	defer k.Stop()
	p := startPlugin()
	defer func() { p.stop() }()
	var ts times
	ts.settle(t, time.Now(), func() bool { return k.Allocatable(thing) == 2 && p.right() }, say(k, p))
	dips := dipsOf(k)
	for range *restarts {
		began := time.Now()
		next := startPlugin()
		for !next.right() && time.Since(began) < patience {
			time.Sleep(time.Millisecond)
		}
		p.stop()
		p = next
		ts.settle(t, began, func() bool { return k.Allocatable(thing) == 2 && p.right() }, say(k, p))
	}
	ts.report(t)
	if n := dips(); n > 0 && newest {
		t.Errorf("allocatable dipped %d times while two plugins overlapped", n)
	} else {
		t.Logf("%d dips of allocatable", n)
	}
}

func TestKubeletRestarts(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	p := startPlugin()
	defer p.stop()
	var ts times
	ts.settle(t, time.Now(), func() bool { return k.Allocatable(thing) == 2 && p.right() }, say(k, p))
	for range *restarts {
		began := time.Now()
		k.Stop()
		k = startKubelet(t, pods)
		ts.settle(t, began, func() bool { return k.Allocatable(thing) == 2 && p.right() }, say(k, p))
	}
	ts.report(t)
}

func TestBothRestart(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	p := startPlugin()
	defer func() { p.stop() }()
	var ts times
	for i := range *restarts {
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i%7) * time.Millisecond) // another order each time
			p.stop()
			p = startPlugin()
		})
		k.Stop()
		k = startKubelet(t, pods)
		wg.Wait()
		ts.settle(t, began, func() bool { return k.Allocatable(thing) == 2 && p.right() }, say(k, p))
	}
	ts.report(t)
}

// killable starts this program as a kubelet or a plugin of its own.
func killable(t *testing.T, what string) (kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), role+"="+what)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func TestPluginIsKilled(t *testing.T) {
	need(t)
	k := startKubelet(t, NewPods())
	defer k.Stop()
	kill := killable(t, "plugin")
	defer func() { kill() }()
	var ts times
	for range max(*restarts/10, 5) {
		ts.settle(t, time.Now(), func() bool {
			return k.Allocatable(thing) == 2
		}, func() string { return "the kubelet has no devices" })
		kill()
		kill = killable(t, "plugin")
		// The kubelet sees the end of the old one first.
		for began := time.Now(); k.Allocatable(thing) == 2 && time.Since(began) < patience; {
			time.Sleep(100 * time.Microsecond)
		}
	}
	ts.report(t)
	time.Sleep(time.Second) // leftovers are removed when they are a second old
	kill()
	p := startPlugin()
	defer p.stop()
	ts.settle(t, time.Now(), p.right, say(k, p))
	time.Sleep(100 * time.Millisecond)
	entries, err := os.ReadDir(PluginDir)
	if err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for _, e := range entries {
		if e.Type() == os.ModeSocket {
			sockets++
		}
	}
	if sockets > 3 { // kubelet.sock, ours, and that of the one killed a moment ago
		t.Errorf("%d sockets are left", sockets)
	}
}

// A service manager that keeps the plugin's connections: however its process ends, the kubelet has its devices until
// the next one has registered, and never learns that there was another. It refuses no pod, and one that comes while
// there is no process waits for the next one.
func TestPluginIsKilledAndKept(t *testing.T) {
	need(t)
	k := startKubelet(t, NewPods())
	defer k.Stop()
	m := manager.New(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	registered := 0
	begin := func() {
		cmd = m.Command(nil, self, os.Args[1:]...)
		cmd.Env = append(cmd.Env, role+"=plugin")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(s os.Signal) {
		_ = cmd.Process.Signal(s)
		_ = cmd.Wait()
	}
	settled := func() bool {
		messages, _ := m.Messages()
		return len(messages) > registered && k.Allocatable(thing) == 2
	}
	say := func() string {
		return fmt.Sprintf("the kubelet counts %d, connections %v", k.Allocatable(thing), m.Held())
	}
	begin()
	defer func() { end(os.Kill) }()
	var ts times
	ts.settle(t, time.Now(), settled, say)
	dips, refusals := dipsOf(k), admitting(t, k)
	for i := range max(*restarts/5, 5) {
		// A pod that the kubelet was admitting stays with the previous plugin, which ends after a while. With it an
		// older kubelet ends the new one, which registers again.
		wait(t, "one connection is kept, and the devices are counted", func() bool {
			return len(m.Held()) == 1 && k.Allocatable(thing) == 2
		})
		messages, _ := m.Messages()
		registered = len(messages)
		began := time.Now()
		end([]os.Signal{os.Kill, syscall.SIGTERM}[i%2])
		time.Sleep(time.Duration(i%50) * time.Millisecond)
		if newest && k.Allocatable(thing) != 2 {
			t.Fatalf("the kubelet counts %d devices of a plugin that will be back", k.Allocatable(thing))
		}
		begin()
		ts.settle(t, began, settled, say)
	}
	ts.report(t)
	if n := dips(); n > 0 && newest {
		t.Errorf("allocatable dipped %d times", n)
	} else {
		t.Logf("%d dips of allocatable", n)
	}
	if admitted, refused := refusals(); len(refused) > 0 && newest {
		t.Errorf("%d pods were admitted, and refused: %q", admitted, refused)
	} else {
		t.Logf("%d pods were admitted, %d refused", admitted, len(refused))
	}
	wait(t, "one connection is kept", func() bool { return len(m.Held()) == 1 })
	// Nobody comes: a service that is stopped has nothing kept.
	end(syscall.SIGTERM)
	m.Release()
	wait(t, "no devices without a plugin", func() bool { return k.Allocatable(thing) == 0 })
}

// admitting admits one pod after the other until stop is called, which returns how many there were and why some were
// refused.
func admitting(t *testing.T, k *Kubelet) (stop func() (admitted int, refused []string)) {
	t.Helper()
	var over atomic.Bool
	var refused []string
	admitted := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !over.Load(); i++ {
			name := fmt.Sprint("short-", i)
			if err := k.Admit(name, thing, 1); err != nil {
				refused = append(refused, err.Error())
			} else {
				admitted++
			}
			k.pods.End(name)
			time.Sleep(time.Millisecond)
		}
	}()
	return func() (int, []string) {
		over.Store(true)
		<-done
		return admitted, refused
	}
}

func TestKubeletIsKilled(t *testing.T) {
	need(t)
	conn, err := grpc.NewClient("unix:"+PodResources, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	counted := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.ResetConnectBackoff()
		resp, err := podresourcesapi.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx,
			&podresourcesapi.AllocatableResourcesRequest{})
		time.Sleep(20 * time.Millisecond) // the plugin needs its share of the limit
		return err == nil && len(resp.Devices) == 2
	}
	p := startPlugin()
	defer p.stop()
	kill := killable(t, "kubelet")
	defer func() { kill() }()
	var ts times
	for range max(*restarts/10, 5) {
		ts.settle(t, time.Now(), func() bool {
			return p.right() && counted()
		}, func() string { return fmt.Sprint(p.State(), p.Problem()) })
		kill()
		for began := time.Now(); p.right() && time.Since(began) < patience; {
			time.Sleep(100 * time.Microsecond)
		}
		kill = killable(t, "kubelet")
	}
	ts.report(t)
}
