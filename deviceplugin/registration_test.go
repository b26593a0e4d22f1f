package deviceplugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
)

func TestRegister(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	var mu sync.Mutex
	var seen []accel.PluginHave
	var p *Plugin
	p = newPlugin(k, func(c *Config) {
		c.OnChange = func() {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, p.State())
		}
	})
	stop := run(t, p)
	p.Update(two())
	eventually(t, "registered and counted", settled(p, 1, 2))
	if got, want := k.health(), []string{"a", "b"}; !cmp.Equal(got, want) {
		t.Errorf("the kubelet has %v, want %v", got, want)
	}
	k.mu.Lock()
	if got := k.list[1].Topology.Nodes[0].ID; got != 1 {
		t.Errorf("NUMA node of b = %d, want 1", got)
	}
	endpoint := k.endpoints[0]
	k.mu.Unlock()
	if !strings.HasPrefix(endpoint, "acceld-example-thing-") {
		t.Errorf("endpoint %q", endpoint)
	}
	stop()
	if _, err := os.Lstat(filepath.Join(k.dir, endpoint)); !os.IsNotExist(err) {
		t.Errorf("the socket %q was left: %v", endpoint, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if last := seen[len(seen)-1]; last.Registered || last.Registrations != 1 {
		t.Errorf("last report = %+v, want not registered", last)
	}
}

func TestKubeletComesLate(t *testing.T) {
	k := newFakeKubelet(t)
	p := newPlugin(k, nil)
	p.timing.resync = time.Hour // events only
	p.Update(two())
	run(t, p)
	eventually(t, "kubelet absent", func() bool {
		return p.Problem() != nil && p.Problem().Reason == accel.KubeletAbsent
	})
	k.start() // creates the directory too
	defer k.stop()
	eventually(t, "registered", settled(p, 1, 2))
}

func TestKubeletRestarts(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer func() { k.stop() }()
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	for n := 2; n <= 20; n++ {
		k.start()
		eventually(t, "registered with the new kubelet", settled(p, n, 2))
	}
	k.set(func() {
		if k.duplicate || k.register != 20 {
			t.Errorf("%d calls of Register, duplicate %v; want 20, false", k.register, k.duplicate)
		}
	})
	entries, err := os.ReadDir(k.dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d sockets in the directory (%v), want kubelet.sock and ours", len(entries), err)
	}
}

func TestStreamIsCut(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer func() { k.stop() }()
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	for n := 2; n <= 20; n++ {
		k.cut()
		eventually(t, "registered again", settled(p, n, 2))
	}
	k.set(func() {
		if k.duplicate {
			t.Error("a registration came while a stream was open, or a socket's name was used twice")
		}
	})
}

func TestRegisterIsRefused(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	k.refusals = 4
	var mu sync.Mutex
	var worst *accel.Problem
	var p *Plugin
	p = newPlugin(k, func(c *Config) {
		c.OnChange = func() {
			mu.Lock()
			defer mu.Unlock()
			if problem := p.Problem(); problem != nil && problem.Reason == accel.RegistrationFailed {
				worst = problem
			}
		}
	})
	p.Update(two())
	run(t, p)
	eventually(t, "registered at last", settled(p, 1, 2))
	mu.Lock()
	defer mu.Unlock()
	if worst == nil || !strings.Contains(worst.Message, "no room for example.com/thing") {
		t.Errorf("problem = %v, want RegistrationFailed in the kubelet's own words", worst)
	}
}

// The kubelet starts between our listening and our registration: it wipes our socket and then looks for it.
func TestSocketIsWipedDuringRegistration(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	k.wipes = 3
	p := newPlugin(k, nil)
	p.Update(two())
	began := time.Now()
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestKubeletAgreesAndOpensNoStream(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	k.mute = true
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "a second attempt", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.register > 1 })
	if problem := p.Problem(); problem == nil || problem.Reason != accel.RegistrationFailed {
		t.Errorf("problem = %v, want RegistrationFailed", problem)
	}
	k.set(func() { k.mute = false })
	eventually(t, "registered", func() bool { return p.State().Allocatable.Is(2) })
}

// If a kubelet loses the devices silently, asking it shows that.
func TestKubeletForgets(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	k.set(func() { k.blind = true })
	eventually(t, "the difference is seen", func() bool { return p.State().Allocatable.Is(0) })
	eventually(t, "registered again", settled(p, 2, 2))
	k.set(func() {
		if k.duplicate {
			t.Error("registered again while the old stream was open")
		}
	})
}

func TestPodResourcesIsSilent(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	k.silent = true
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "the question is not answered", func() bool {
		return p.Problem() != nil && p.Problem().Reason == accel.ProbeUnanswered && p.State().Registered &&
			!p.State().Allocatable.Known
	})
	k.set(func() { k.silent = false })
	eventually(t, "answered", settled(p, 1, 2))
	k.set(func() { k.silent = true; k.allocatable = 0 })
	eventually(t, "asked again", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.allocatable > 0 })
	if !settled(p, 1, 2)() {
		t.Errorf("state = %+v, %v: not knowing is not no", p.State(), p.Problem())
	}
}

func TestSocketRemovedUnderStream(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	p := newPlugin(k, nil)
	p.Update(two())
	run(t, p)
	eventually(t, "registered", settled(p, 1, 2))
	os.Remove(filepath.Join(k.dir, kubeletSocket))
	p.Update(two()[:1])
	eventually(t, "the stream goes on", settled(p, 1, 1))
}

func TestSocketThatADeadKubeletLeft(t *testing.T) {
	k := newFakeKubelet(t)
	os.MkdirAll(k.dir, 0o755)
	deadSocket(t, filepath.Join(k.dir, kubeletSocket))
	p := newPlugin(k, nil)
	p.timing.resync = time.Hour
	p.timing.retry = time.Hour // the new socket ends the pause
	p.Update(two())
	run(t, p)
	eventually(t, "kubelet absent", func() bool {
		return p.Problem() != nil && p.Problem().Reason == accel.KubeletAbsent
	})
	k.start()
	defer k.stop()
	eventually(t, "registered", func() bool { return p.State().Registered })
}

func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestRemoveLeftovers(t *testing.T) {
	dir := sockets(t)
	name := func(kind string) string { return filepath.Join(dir, "acceld-"+kind+"-0123abcd.sock") }
	deadSocket(t, name("a"))
	deadSocket(t, name("a-b")) // another kind's
	l, err := net.Listen("unix", filepath.Join(dir, "acceld-a-00000000.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(filepath.Join(dir, "acceld-a-11111111.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	removeLeftovers(dir, "a", time.Now())
	if got := len(left()); got != 4 {
		t.Errorf("a socket that is a moment old was removed: %v", left())
	}
	removeLeftovers(dir, "a", time.Now().Add(time.Minute))
	want := []string{"acceld-a-00000000.sock", "acceld-a-11111111.sock", "acceld-a-b-0123abcd.sock"}
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestDirectoryIsNotWritable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root writes anywhere: a path that is too long stands for it")
	}
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	p := newPlugin(k, func(c *Config) { c.Definition = &accel.Definition{Kind: strings.Repeat("x", 100)} })
	p.Update(two())
	run(t, p)
	eventually(t, "a problem that names the socket", func() bool {
		return p.Problem() != nil && p.Problem().Reason == accel.RegistrationFailed &&
			strings.Contains(p.Problem().Message, "cannot listen on")
	})
}

func TestHolders(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	k.held = map[string]PodRef{"a": {Namespace: "ns", Pod: "pod", Container: "main"}}
	p := newPlugin(k, nil)
	got, err := p.Holders(context.Background())
	if diff := cmp.Diff(k.held, got); err != nil || diff != "" {
		t.Fatalf("holders: %v (-want +got):\n%s", err, diff)
	}
	k.set(func() { k.silent = true })
	got, err = p.Holders(context.Background())
	if diff := cmp.Diff(k.held, got); err == nil || diff != "" {
		t.Errorf("holders of a silent kubelet: error %v, want the last good answer and an error (-want +got):\n%s", err,
			diff)
	}
	if accel.AsProblem(err).Reason != accel.ProbeUnanswered {
		t.Errorf("error = %v, want ProbeUnanswered", err)
	}
	p.kubelet.close()
}
