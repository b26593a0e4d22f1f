package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
)

const testResource = "example.com/thing"

// fakeKubelet does what the kubelet's device manager does with sockets: it wipes the directory at its start, dials back
// inside Register, opens one stream per registration, and counts no device when a stream ends.
type fakeKubelet struct {
	t    *testing.T
	dir  string // kubelet.sock is here
	pods string // the PodResources socket

	servers []*grpc.Server
	ctx     context.Context
	cancel  context.CancelFunc

	mu          sync.Mutex
	refusals    int  // that many registrations are still refused
	wipes       int  // that many registrations lose their socket before they are dialled
	mute        bool // the stream is not opened
	blind       bool // the list is not counted until the next registration
	silent      bool // PodResources fails
	register    int  // calls of Register
	open        int  // open streams
	duplicate   bool // a Register came while a stream was open
	endpoints   []string
	messages    int
	list        []*pluginapi.Device
	conn        *grpc.ClientConn
	held        map[string]PodRef
	allocatable int // calls
}

// sockets returns a directory with a short path: a socket's path has at most 107 bytes.
func sockets(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newFakeKubelet(t *testing.T) *fakeKubelet {
	dir := sockets(t)
	return &fakeKubelet{t: t, dir: filepath.Join(dir, "device-plugins"), pods: filepath.Join(dir, "pods.sock")}
}

// start starts the kubelet, or restarts it.
func (k *fakeKubelet) start() {
	k.t.Helper()
	k.stop()
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		k.t.Fatal(err)
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type() == os.ModeSocket {
			os.Remove(filepath.Join(k.dir, e.Name()))
		}
	}
	os.Remove(k.pods)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ctx, k.cancel = context.WithCancel(k.t.Context())
	k.list, k.blind, k.open = nil, false, 0
	for _, path := range []string{k.pods, filepath.Join(k.dir, kubeletSocket)} {
		// The socket appears when something already listens on it; a real kubelet's refuses for a moment.
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".new", Net: "unix"})
		if err != nil {
			k.t.Fatal(err)
		}
		l.SetUnlinkOnClose(false) // a killed kubelet leaves it
		if err := os.Rename(path+".new", path); err != nil {
			k.t.Fatal(err)
		}
		s := grpc.NewServer()
		if path == k.pods {
			podresources.RegisterPodResourcesListerServer(s, &fakePods{k: k})
		} else {
			pluginapi.RegisterRegistrationServer(s, &fakeRegistration{k: k})
		}
		go s.Serve(l)
		k.servers = append(k.servers, s)
	}
}

func (k *fakeKubelet) stop() {
	k.mu.Lock()
	servers := k.servers
	k.servers = nil
	if k.cancel != nil {
		k.cancel()
	}
	k.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}

// cut ends the stream as a lost connection does.
func (k *fakeKubelet) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn.Close()
}

// set changes the fake under its lock.
func (k *fakeKubelet) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// plugin is the client of the last registered plugin.
func (k *fakeKubelet) plugin() pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return pluginapi.NewDevicePluginClient(k.conn)
}

// health is the list as the kubelet has it: "id" or "id!" for an unhealthy device.
func (k *fakeKubelet) health() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var rows []string
	for _, d := range k.list {
		row := d.ID
		if d.Health != pluginapi.Healthy {
			row += "!"
		}
		rows = append(rows, row)
	}
	return rows
}

type fakeRegistration struct {
	pluginapi.UnsafeRegistrationServer
	k *fakeKubelet
}

func (f *fakeRegistration) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k := f.k
	k.mu.Lock()
	k.register++
	if k.open > 0 {
		k.duplicate = true
	}
	if k.refusals > 0 {
		k.refusals--
		k.mu.Unlock()
		return nil, fmt.Errorf("no room for %s", req.ResourceName)
	}
	if k.wipes > 0 {
		k.wipes--
		k.mu.Unlock()
		os.Remove(filepath.Join(k.dir, req.Endpoint))
		select { // the real one dials for 10 s
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
		return nil, fmt.Errorf("failed to dial device plugin")
	}
	if slices.Contains(k.endpoints, req.Endpoint) {
		k.duplicate = true
	}
	k.endpoints = append(k.endpoints, req.Endpoint)
	kctx, mute := k.ctx, k.mute
	k.mu.Unlock()

	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, req.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(conn)
	if _, err := client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		return nil, err
	}
	if mute {
		return &pluginapi.Empty{}, nil
	}
	stream, err := client.ListAndWatch(kctx, &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.open++
	k.conn = conn
	k.blind = false
	k.mu.Unlock()
	go k.receive(kctx, conn, stream)
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) receive(ctx context.Context, conn *grpc.ClientConn,
	stream pluginapi.DevicePlugin_ListAndWatchClient,
) {
	defer conn.Close()
	for {
		m, err := stream.Recv()
		k.mu.Lock()
		if ctx.Err() != nil {
			k.mu.Unlock()
			return // this kubelet is dead
		}
		if err != nil {
			k.open--
			if k.conn == conn {
				k.list = nil
			}
			k.mu.Unlock()
			return
		}
		k.messages++
		if k.conn == conn {
			k.list = m.Devices
		}
		k.mu.Unlock()
	}
}

type fakePods struct {
	podresources.UnimplementedPodResourcesListerServer
	k *fakeKubelet
}

func (f *fakePods) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	k := f.k
	k.mu.Lock()
	defer k.mu.Unlock()
	k.allocatable++
	if k.silent {
		return nil, fmt.Errorf("too many questions")
	}
	resp := &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "example.com/other", DeviceIds: []string{"x"}},
	}}
	for _, d := range k.list {
		if d.Health == pluginapi.Healthy && !k.blind {
			resp.Devices = append(resp.Devices, &podresources.ContainerDevices{
				ResourceName: testResource,
				DeviceIds:    []string{d.ID},
			})
		}
	}
	return resp, nil
}

func (f *fakePods) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse,
	error,
) {
	k := f.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.silent {
		return nil, fmt.Errorf("too many questions")
	}
	resp := &podresources.ListPodResourcesResponse{}
	for id, ref := range k.held {
		resp.PodResources = append(resp.PodResources, &podresources.PodResources{
			Namespace: ref.Namespace, Name: ref.Pod,
			Containers: []*podresources.ContainerResources{{
				Name: ref.Container,
				Devices: []*podresources.ContainerDevices{
					{ResourceName: testResource, DeviceIds: []string{id}},
					{ResourceName: "example.com/other", DeviceIds: []string{"x"}},
				},
			}},
		})
	}
	return resp, nil
}

// newPlugin returns a plugin of the fake kubelet with short durations.
func newPlugin(k *fakeKubelet, change func(*Config)) *Plugin {
	cfg := Config{
		Resource: testResource, Dir: k.dir, PodResources: k.pods, CDI: true,
		Definition: &accel.Definition{Kind: "example-thing", Resource: testResource},
	}
	if change != nil {
		change(&cfg)
	}
	p := New(cfg)
	p.timing.resync = 50 * time.Millisecond
	p.timing.zero = 100 * time.Millisecond
	p.timing.differs = 300 * time.Millisecond
	p.timing.open = 200 * time.Millisecond
	p.timing.retry = 5 * time.Millisecond
	p.timing.retryMax = 50 * time.Millisecond
	p.watchdog.timing = p.timing
	p.kubelet.young = 0
	return p
}

// run runs the plugin until the returned function is called or the test ends.
func run(t *testing.T, p *Plugin) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run did not end with its context")
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func thing(id string, numa int, state accel.HealthState) accel.Accelerator {
	return accel.Accelerator{ID: id, NUMANode: numa, Health: accel.Health{State: state}}
}

func two() []accel.Accelerator {
	return []accel.Accelerator{thing("a", 0, accel.Healthy), thing("b", 1, accel.Healthy)}
}

// settled is the state after n registrations with the kubelet counting want devices.
func settled(p *Plugin, n, want int) func() bool {
	return func() bool {
		return p.State() == accel.PluginHave{Registered: true, Registrations: n, Allocatable: accel.Known(want)} &&
			p.Problem() == nil
	}
}
