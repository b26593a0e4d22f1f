package kubelet

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet is the part of one that plugins see: it takes registrations, follows their lists and says what is
// allocatable.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	t   *testing.T
	ctx context.Context
	dir string // of kubelet.sock

	mu      sync.Mutex
	plugins map[string]*plugin // by resource
	changed chan struct{}      // closed when any of it did
}

// plugin is one that has registered.
type plugin struct {
	client pluginapi.DevicePluginClient
	health map[string]string // by device; nil before the first list
}

func newKubelet(t *testing.T, m *machine) *kubelet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := &kubelet{
		t: t, ctx: ctx, dir: m.path("var/lib/kubelet/device-plugins"),
		plugins: map[string]*plugin{}, changed: make(chan struct{}),
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	podresources.RegisterPodResourcesListerServer(server, k)
	for _, socket := range []string{
		filepath.Join(k.dir, "kubelet.sock"),
		m.path("var/lib/kubelet/pod-resources/kubelet.sock"),
	} {
		l, err := net.Listen("unix", socket)
		check(t, err)
		go func() { _ = server.Serve(l) }()
	}
	t.Cleanup(func() { cancel(); server.Stop() })
	return k
}

// dial connects to a socket as the kubelet does: one connection for all calls.
func dial(t *testing.T, socket string) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Register takes a plugin and begins to follow its list.
func (k *kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	p := &plugin{client: pluginapi.NewDevicePluginClient(dial(k.t, filepath.Join(k.dir, r.GetEndpoint())))}
	if _, err := p.client.GetDevicePluginOptions(k.ctx, &pluginapi.Empty{}); err != nil {
		return nil, err
	}
	stream, err := p.client.ListAndWatch(k.ctx, &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	k.change(func() { k.plugins[r.GetResourceName()] = p })
	go func() {
		for {
			list, err := stream.Recv()
			if err != nil {
				return
			}
			health := map[string]string{}
			for _, d := range list.GetDevices() {
				health[d.GetID()] = d.GetHealth()
			}
			k.change(func() { p.health = health })
		}
	}()
	return &pluginapi.Empty{}, nil
}

func (k *kubelet) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
	close(k.changed)
	k.changed = make(chan struct{})
}

// healthy returns the ids of a resource's healthy devices, sorted.
func (k *kubelet) healthy(resource string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.plugins[resource]
	if p == nil {
		return nil
	}
	ids := slices.Sorted(maps.Keys(p.health))
	return slices.DeleteFunc(ids, func(id string) bool { return p.health[id] != pluginapi.Healthy })
}

func (k *kubelet) client(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plugins[resource].client
}

// await waits until a resource has so many healthy devices, and returns when that was seen.
func (k *kubelet) await(resource string, n int, patience time.Duration) time.Time {
	k.t.Helper()
	late := time.After(patience)
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if have := len(k.healthy(resource)); have == n {
			return time.Now()
		}
		select {
		case <-changed:
		case <-late:
			k.t.Fatalf("%s has %d healthy devices after %s, want %d", resource, len(k.healthy(resource)), patience, n)
		}
	}
}

// GetAllocatableResources says what the lists say.
func (k *kubelet) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	names := slices.Sorted(maps.Keys(k.plugins))
	k.mu.Unlock()
	resp := &podresources.AllocatableResourcesResponse{}
	for _, name := range names {
		resp.Devices = append(resp.Devices, &podresources.ContainerDevices{
			ResourceName: name,
			DeviceIds:    k.healthy(name),
		})
	}
	return resp, nil
}

// List says that no pod holds a device.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse,
	error,
) {
	return &podresources.ListPodResourcesResponse{}, nil
}
