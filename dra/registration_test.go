package dra

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbbeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/acceld/acceld/accel"
)

// offered waits until n devices are offered.
func (b *bed) offered(p *Plugin, n int) {
	b.Helper()
	b.until("the devices to be offered", func() bool {
		return p.State().Registered && p.State().Allocatable.Is(n) && p.Problem() == nil
	})
}

func TestServesBothVersions(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	k := b.kubelet()
	b.run(p)
	b.offered(p, 1)
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	conn := k.conn()
	now, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(t.Context(),
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{ref("c", "u-1")}})
	if err != nil || now.GetClaims()["u-1"].GetError() != "" || len(now.GetClaims()["u-1"].GetDevices()) != 1 {
		t.Errorf("v1: %v %v", now, err)
	}
	before, err := drapbbeta.NewDRAPluginClient(conn).NodeUnprepareResources(t.Context(),
		&drapbbeta.NodeUnprepareResourcesRequest{
			Claims: []*drapbbeta.Claim{{Namespace: "team", Name: "c", Uid: "u-1"}},
		})
	if err != nil || before.GetClaims()["u-1"].GetError() != "" || !p.book.empty() {
		t.Errorf("v1beta1: %v %v", before, err)
	}
}

// TestKubeletRestarts: slices that the kubelet deletes at its start are back as soon as it has registered the
// plugin.
func TestKubeletRestarts(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	k := b.kubelet()
	b.run(p)
	b.offered(p, 2)
	for i := range 10 {
		k.stop()
		b.until("the kubelet to be gone", func() bool { return !p.State().Registered })
		if p.State().Allocatable.Known || p.Problem() == nil || p.Problem().Reason != accel.KubeletAbsent {
			t.Errorf("without a kubelet: %+v %v", p.State(), p.Problem())
		}
		b.server.wipe()
		k = b.kubelet()
		began := time.Now()
		b.offered(p, 2) // it may connect just before it reports the registration
		b.until("the kubelet's word", func() bool { return p.State().Registrations == i+2 })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("restart %d: offered again after %s", i, took)
		}
		// It reports what it last saw. That the slices were deleted meanwhile may arrive a moment later.
		b.until("one slice", func() bool { return len(b.server.published()) == 1 })
	}
}

// TestNotWithoutKubelet: without a kubelet to prepare claims, nothing is published.
func TestNotWithoutKubelet(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.run(p)
	b.until("an announcement", func() bool { return len(b.sockets()) == 1 })
	time.Sleep(50 * time.Millisecond)
	if n := len(b.server.published()); n > 0 {
		t.Errorf("%d slices without a kubelet", n)
	}
	b.kubelet()
	b.offered(p, 1)
}

func (b *bed) sockets() []string {
	found, _ := filepath.Glob(filepath.Join(b.root, "/var/lib/kubelet/plugins_registry/*.sock"))
	return found
}

func TestRefused(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	k := &kubelet{bed: b, conns: nil, refusals: 1 << 20, over: make(chan struct{})}
	k.conns = map[string]*grpc.ClientConn{}
	b.run(p)
	b.until("an announcement", func() bool { return len(b.sockets()) == 1 })
	first := b.sockets()[0]
	b.until("the refusal to be said", func() bool {
		k.look()
		return p.Problem() != nil && p.Problem().Reason == accel.RegistrationFailed
	})
	if !strings.Contains(p.Problem().Message, "not today") {
		t.Errorf("%v", p.Problem())
	}
	k.mu.Lock()
	k.refusals = 0
	k.mu.Unlock()
	go k.watch()
	b.Cleanup(k.stop)
	b.offered(p, 1)
	for _, s := range b.sockets() {
		if s == first {
			t.Error("the name of a socket is used twice")
		}
	}
}

// another reports whether there is exactly one announcement, other than first.
func (b *bed) another(first string) bool {
	now := b.sockets()
	return len(now) == 1 && now[0] != first
}

// TestUnheard: an announcement that the kubelet overlooked is repeated under another name.
func TestUnheard(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	p.timing.unheard = 30 * time.Millisecond
	b.run(p)
	first := ""
	b.until("an announcement", func() bool {
		if all := b.sockets(); len(all) > 0 {
			first = all[0]
		}
		return first != ""
	})
	b.until("another one", func() bool { return b.another(first) })
}

// TestConnectionLost: a kubelet that reports the plugin as registered but does not reconnect is not trusted.
func TestConnectionLost(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	p.timing.lost = 30 * time.Millisecond
	k := b.kubelet()
	b.run(p)
	b.offered(p, 1)
	first := b.sockets()[0]
	k.conn().Close()
	b.until("a new registration", func() bool { return p.State().Registrations > 1 && b.another(first) })
	b.offered(p, 1)
}

// TestSocketRemoved: the plugin survives a cleared registry directory.
func TestSocketRemoved(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.kubelet()
	b.run(p)
	b.offered(p, 1)
	first := b.sockets()[0]
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	b.until("a new registration", func() bool { return b.another(first) })
	b.offered(p, 1)
}

// TestBeforeKubelet: on a new host the agent may start before the kubelet.
func TestBeforeKubelet(t *testing.T) {
	b := newBed(t)
	if err := os.RemoveAll(filepath.Join(b.root, "/var/lib/kubelet")); err != nil {
		t.Fatal(err)
	}
	p := b.plugin(edu(1))
	b.run(p)
	b.until("the reason", func() bool { return p.Problem() != nil && p.Problem().Reason == accel.KubeletAbsent })
	b.mkdir("/var/lib/kubelet/plugins_registry")
	b.kubelet()
	b.offered(p, 1)
}

// TestLeftovers: the sockets of a killed agent are removed, those of a live one stay.
func TestLeftovers(t *testing.T) {
	b := newBed(t)
	dead := filepath.Join(b.root, "/var/lib/kubelet/plugins_registry/acceld-qemu-edu-00000001-reg.sock")
	alive := filepath.Join(b.root, "/var/lib/kubelet/plugins_registry/acceld-qemu-edu-00000002-reg.sock")
	foreign := filepath.Join(b.root, "/var/lib/kubelet/plugins_registry/other-00000003-reg.sock")
	for _, name := range []string{dead, alive, foreign} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if name != alive {
			l.Close()
		} else {
			t.Cleanup(func() { l.Close() })
		}
	}
	b.plugin(edu(1)).removeLeftovers(time.Now().Add(time.Minute))
	for name, want := range map[string]bool{dead: false, alive: true, foreign: true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s is there: %v", filepath.Base(name), err == nil)
		}
	}
}

func TestStopRemovesSockets(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.kubelet()
	stop := b.run(p)
	b.offered(p, 1)
	stop()
	endpoints, _ := filepath.Glob(filepath.Join(b.root, "/var/lib/kubelet/plugins/qemu-edu.acceld.dev/*"))
	if len(b.sockets())+len(endpoints) > 0 {
		t.Errorf("left: %v %v", b.sockets(), endpoints)
	}
	if len(b.server.published()) != 1 {
		t.Error("the slices went with the agent: the kubelet takes them away when nobody comes back")
	}
}

func TestHealth(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1), edu(2))
	var looks atomic.Bool
	p.cfg.Alive = func() error {
		if !looks.Load() {
			return errors.New("nobody looks")
		}
		return nil
	}
	p.timing.confirm = 20 * time.Millisecond
	k := b.kubelet()
	b.run(p)
	conn := k.conn()
	stream, err := drahealth.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(),
		&drahealth.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *drahealth.NodeWatchResourcesResponse)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			got <- m
		}
	}()
	select {
	case m := <-got:
		t.Errorf("confirmed while nobody looks: %v", m)
	case <-time.After(100 * time.Millisecond):
	}
	looks.Store(true)
	m := <-got
	if len(m.GetDevices()) != 2 || m.GetDevices()[0].GetHealth() != drahealth.HealthStatus_HEALTHY ||
		m.GetDevices()[0].GetDevice().GetPoolName() != node {
		t.Errorf("%v", m)
	}
	<-got // confirmed again although nothing changed
	p.Update([]accel.Accelerator{edu(1), sick(edu(2))})
	for m.GetDevices()[1].GetHealth() == drahealth.HealthStatus_HEALTHY {
		m = <-got
	}
	if d := m.GetDevices()[1]; d.GetHealth() != drahealth.HealthStatus_UNHEALTHY || d.GetMessage() != "ecc error" ||
		d.GetHealthCheckTimeoutSeconds() != 30 {
		t.Errorf("%v", d)
	}
	old, err := drahealthalpha.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(),
		&drahealthalpha.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := old.Recv(); err != nil || len(m.GetDevices()) != 2 {
		t.Errorf("v1alpha1: %v %v", m, err)
	}
}
