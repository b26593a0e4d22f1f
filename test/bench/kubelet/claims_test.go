package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/seed"
)

const (
	driver     = "qemu-edu.acceld.dev"
	peerDriver = "gpu.example.com"
)

// TestBesideExampleDriver has the calls that a kubelet makes to a DRA plugin, at a real API server that both ask for
// the claims. Records are on the disk, CDI specs in memory, as on every host. The peer's client is told to ask as fast
// as it can: by default it asks five times a second.
func TestBesideExampleDriver(t *testing.T) {
	need(t)
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set: an API server of the test bed is needed")
	}
	file := peer(t, driverPeer)
	const devices = 64
	m := newMachine(t, devices)
	newKubelet(t, m) // slices are published when it says that no pod holds a device in another way
	plane := controlPlane(t, m)
	config := plane.REST()
	config.QPS = -1 // as fast as it can
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	_, err = client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		metav1.CreateOptions{})
	check(t, err)
	ours := &party{
		name: "acceld", process: m.agent("  kubeconfig: /etc/acceld/kubeconfig\n  allocation: dra\n"),
		driver: driver, specs: m.path("run/cdi"),
	}
	ours.device = func(i int) string { return strings.NewReplacer(":", "-", ".", "-").Replace(address(i)) }
	parties := []*party{ours}
	if file != "" {
		parties = append(parties, m.exampleDriver(file, plane.Kubeconfig(), devices))
	}
	for _, p := range parties {
		p.find(t, m)
		for i := range callers {
			p.claims = append(p.claims, allocated(t, client, p, i))
		}
	}
	b := newTable("acceld", "dra-example-driver")
	reference(t, client, ours, b)
	for _, callers := range []int{1, callers} {
		life(t, parties, b, callers)
	}
	taint(t, m, client, ours, b)
	var peerProcess *program
	if len(parties) > 1 {
		peerProcess = parties[1].process
	}
	memory(t, b, ours.process, peerProcess)
	t.Log(b.String())
}

// controlPlane starts etcd and an API server of the test bed on this machine; nothing else changes objects there.
func controlPlane(t *testing.T, m *machine) *cluster.Plane {
	t.Helper()
	c, err := cache.Open(nil)
	check(t, err)
	set, err := parts.Build(t.Context(), c, progress.New(os.Stderr), parts.Cluster()...)
	check(t, err)
	plane, err := cluster.Here(t.Context(), t.TempDir(), cluster.Config{Program: set.Path, Alone: true})
	check(t, err)
	t.Cleanup(plane.Stop)
	guest, err := plane.GuestKubeconfig()
	check(t, err)
	m.write("etc/acceld/kubeconfig",
		string(bytes.ReplaceAll(guest, []byte("https://"+seed.HostIP), []byte("https://127.0.0.1"))))
	return plane
}

// party is a DRA plugin with claims for its devices.
type party struct {
	name, driver string
	process      *program
	device       func(i int) string
	specs        string // directory of its CDI specs
	plugin       drapb.DRAPluginClient
	health       drahealth.DRAResourceHealthClient
	claims       []*drapb.Claim

	prepared, again, taken figures
}

func (m *machine) exampleDriver(file, kubeconfig string, devices int) *party {
	m.t.Helper()
	p := &party{name: "dra-example-driver", driver: peerDriver, specs: m.path("run/cdi-of-the-peer")}
	p.device = func(i int) string { return fmt.Sprintf("gpu-%d", i) }
	p.process = start(m.t, p.name, exec.Command(file, "--node-name="+node, "--kubeconfig="+kubeconfig,
		"--cdi-root="+p.specs,
		fmt.Sprintf("--num-devices=%d", devices), "--kube-api-qps=-1",
		"--kubelet-registrar-directory-path="+m.path("var/lib/kubelet/plugins_registry"),
		"--kubelet-plugins-directory-path="+m.path("var/lib/kubelet/plugins")))
	return p
}

// find does what a kubelet does when a socket appears in the directory of registrations.
func (p *party) find(t *testing.T, m *machine) {
	t.Helper()
	for begin := time.Now(); p.plugin == nil; time.Sleep(20 * time.Millisecond) {
		sockets, err := filepath.Glob(m.path("var/lib/kubelet/plugins_registry/*.sock"))
		check(t, err)
		for _, socket := range sockets {
			r := registration.NewRegistrationClient(dial(t, socket))
			info, err := r.GetInfo(t.Context(), &registration.InfoRequest{})
			if err != nil || info.GetName() != p.driver {
				continue
			}
			endpoint := info.GetEndpoint()
			if !strings.HasPrefix(endpoint, m.root) { // the agent's root is not ours
				endpoint = m.path(endpoint)
			}
			conn := dial(t, endpoint)
			p.plugin, p.health = drapb.NewDRAPluginClient(conn), drahealth.NewDRAResourceHealthClient(conn)
			// the connection is there
			_, err = p.plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{})
			check(t, err)
			_, err = r.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
			check(t, err)
			break
		}
		if time.Since(begin) > patience {
			t.Fatalf("%s has not registered", p.name)
		}
	}
}

// allocated makes a claim that has the i-th device, as the scheduler leaves it.
func allocated(t *testing.T, client kubernetes.Interface, p *party, i int) *drapb.Claim {
	t.Helper()
	claims := client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", p.name, i)}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "it", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: p.driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}}}
	c, err := claims.Create(t.Context(), c, metav1.CreateOptions{})
	check(t, err)
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "it", Driver: p.driver, Pool: node,
			Device: p.device(i),
		}},
	}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{
		Resource: "pods", Name: fmt.Sprintf("p-%d", i),
		UID: types.UID(fmt.Sprintf("p-%d", i)),
	}}
	c, err = claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	check(t, err)
	return &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}
}

// reference is what the API server alone takes for the question that both ask in prepare.
func reference(t *testing.T, client kubernetes.Interface, p *party, b *table) {
	t.Helper()
	c := &contestant{name: "API server", do: func(i int) error {
		_, err := client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(t.Context(),
			p.claims[i%len(p.claims)].GetName(), metav1.GetOptions{})
		return err
	}}
	n, calls := rounds()
	contest(t, n, calls/10, callers, []*contestant{c})
	b.times(fmt.Sprintf("the API server's answer alone, %d at a time", callers), c.took, nil)
}

// life prepares all claims, prepares them again as after a restart of the kubelet, and takes them back, one party after
// the other.
func life(t *testing.T, parties []*party, b *table, callers int) {
	t.Helper()
	times := 40
	if testing.Short() {
		times = 2
	}
	for _, p := range parties {
		p.prepared, p.again, p.taken = figures{}, figures{}, figures{}
	}
	for round := range times + 1 {
		for i := range parties {
			p := parties[(i+round)%len(parties)]
			prepare := &contestant{name: p.name + " prepares", by: p.process, do: func(i int) error {
				return p.prepare(t.Context(), i)
			}}
			prepared := storm(t, prepare, len(p.claims), callers)
			p.expect(t, len(p.claims))
			again := storm(t, prepare, len(p.claims), callers)
			unprepare := &contestant{name: p.name + " takes back", by: p.process, do: func(i int) error {
				return p.unprepare(t.Context(), i)
			}}
			taken := storm(t, unprepare, len(p.claims), callers)
			p.expect(t, 0)
			if t.Failed() {
				t.FailNow()
			}
			if round > 0 { // the first one warms up
				p.prepared.add(prepared)
				p.again.add(again)
				p.taken.add(taken)
			}
		}
	}
	for _, row := range []struct {
		what string
		of   func(*party) *figures
	}{
		{"NodePrepareResources", func(p *party) *figures { return &p.prepared }},
		{"the same again", func(p *party) *figures { return &p.again }},
		{"NodeUnprepareResources", func(p *party) *figures { return &p.taken }},
	} {
		var theirs *figures
		if len(parties) > 1 {
			theirs = row.of(parties[1])
		}
		b.calls(fmt.Sprintf("%s, %d at a time", row.what, callers), row.of(parties[0]), theirs)
	}
}

func (p *party) prepare(ctx context.Context, i int) error {
	resp, err := p.plugin.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: p.claims[i : i+1]})
	if err != nil {
		return err
	}
	answer := resp.GetClaims()[p.claims[i].GetUid()]
	if d := answer.GetDevices(); answer.GetError() != "" || len(d) != 1 || d[0].GetDeviceName() != p.device(i) ||
		d[0].GetPoolName() != node || len(d[0].GetCdiDeviceIds()) == 0 {
		return fmt.Errorf("it answers %v", resp)
	}
	return nil
}

func (p *party) unprepare(ctx context.Context, i int) error {
	resp, err := p.plugin.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: p.claims[i : i+1]})
	if err != nil {
		return err
	}
	if answer, known := resp.GetClaims()[p.claims[i].GetUid()]; !known || answer.GetError() != "" {
		return fmt.Errorf("it answers %v", resp)
	}
	return nil
}

// expect holds the directory of CDI specs to so many claims.
func (p *party) expect(t *testing.T, n int) {
	t.Helper()
	entries, err := os.ReadDir(p.specs)
	check(t, err)
	have := 0
	for _, e := range entries {
		for _, c := range p.claims {
			if strings.Contains(e.Name(), c.GetUid()) {
				have++
			}
		}
	}
	if have != n {
		t.Errorf("%s has CDI specs of %d claims, want %d", p.name, have, n)
	}
}

// taint makes devices ill in what their driver says, and waits until the API server has the taint in a slice, and until
// the kubelet's stream of health says so. The peer at hand has neither.
func taint(t *testing.T, m *machine, client kubernetes.Interface, p *party, b *table) {
	t.Helper()
	slices, err := client.ResourceV1().ResourceSlices().Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.driver=" + p.driver})
	check(t, err)
	defer slices.Stop()
	health, err := p.health.NodeWatchResources(t.Context(), &drahealth.NodeWatchResourcesRequest{})
	check(t, err)
	verdicts := make(chan *drahealth.NodeWatchResourcesResponse)
	go func() {
		for {
			v, err := health.Recv()
			if err != nil {
				return
			}
			verdicts <- v
		}
	}()
	times := 20
	if testing.Short() {
		times = 2
	}
	var tainted, told []time.Duration
	for i := range times {
		begin := time.Now()
		check(t, os.WriteFile(m.path(m.dir(i), "health"), []byte("overheated\n"), 0o644))
		m.nudge()
		late := time.After(patience)
		for isTainted, isTold := false, false; !isTainted || !isTold; {
			select {
			case e := <-slices.ResultChan():
				if s, ok := e.Object.(*resourceapi.ResourceSlice); ok && !isTainted && len(taints(s)) == i+1 {
					isTainted, tainted = true, append(tainted, time.Since(begin))
				}
			case v := <-verdicts:
				if !isTold && unhealthy(v) == i+1 {
					isTold, told = true, append(told, time.Since(begin))
				}
			case <-late:
				t.Fatalf("device %d is ill: in the slice %t, told to the kubelet %t", i, isTainted, isTold)
			}
		}
	}
	b.events("an attribute says ill, to NodeWatchResources", told, nil)
	b.events("the same, to the taint in the ResourceSlice", tainted, nil)
}

func taints(s *resourceapi.ResourceSlice) []string {
	var names []string
	for _, d := range s.Spec.Devices {
		if len(d.Taints) > 0 {
			names = append(names, d.Name)
		}
	}
	return names
}

func unhealthy(v *drahealth.NodeWatchResourcesResponse) int {
	n := 0
	for _, d := range v.GetDevices() {
		if d.GetHealth() == drahealth.HealthStatus_UNHEALTHY {
			n++
		}
	}
	return n
}
