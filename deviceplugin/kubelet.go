package deviceplugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// PodRef names the container that holds a device.
type PodRef struct {
	Namespace string
	Pod       string
	Container string
	// UID is set, and Namespace and Pod are empty, if the kubelet does not know the pod yet.
	UID string
}

// String names the pod for people.
func (r PodRef) String() string {
	if r.UID != "" {
		return r.UID
	}
	return r.Namespace + "/" + r.Pod
}

// kubelet is a client of the kubelet's PodResources service with one long-lived connection.
type kubelet struct {
	resource string
	former   []string // previous names of the resource
	socket   string
	dir      string                    // the directory of the checkpoint
	pods     func() (host.Pods, error) // the pods that have containers; nil if the checkpoint is not looked at

	// young is how long a kubelet that restarted may not know all its pods.
	young time.Duration

	mu   sync.Mutex
	conn *grpc.ClientConn
	last heldRefs // the last good answer of holders
	// life is the socket of the kubelet that answered last, and since is when it was first seen; zero for the first.
	life  os.FileInfo
	since time.Time
}

// YoungKubelet is how long a kubelet gets to learn its pods from the API server after its sockets are there. Until
// then its list of holders lacks those that it has not heard of.
const YoungKubelet = 30 * time.Second

// maxAnswer is the maximum size of an answer in bytes, as in the kubelet's own client (podresources/client.go).
const maxAnswer = 16 << 20

// client returns the client. The first call opens the connection, which reconnects by itself after the kubelet
// restarts.
func (k *kubelet) client() (podresources.PodResourcesListerClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.socket == "" {
		return nil, accel.Problemf(accel.ProbeUnanswered,
			"cannot ask the kubelet for pod resources: no socket is configured")
	}
	if k.conn == nil {
		conn, err := grpc.NewClient("unix:"+k.socket,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
					MaxDelay: time.Second,
				},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			return nil, accel.Problemf(accel.ProbeUnanswered, "cannot ask the kubelet on %q: %s", k.socket, err)
		}
		k.conn = conn
	}
	k.conn.ResetConnectBackoff() // the callers have their own backoff
	return podresources.NewPodResourcesListerClient(k.conn), nil
}

func (k *kubelet) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil {
		_ = k.conn.Close() // nobody waits for a call in flight
		k.conn = nil
	}
}

// allocatable returns the ids of the resource's devices that the kubelet counts as healthy, sorted, including those
// that pods hold.
func (k *kubelet) allocatable(ctx context.Context) ([]string, error) {
	client, err := k.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, accel.Problemf(accel.ProbeUnanswered, "cannot ask the kubelet what is allocatable: %s",
			status.Convert(err).Message())
	}
	var ids []string
	for _, d := range resp.GetDevices() {
		if d.GetResourceName() == k.resource {
			ids = append(ids, d.GetDeviceIds()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil // a device with two NUMA nodes is listed twice
}

// holders returns who holds which device. With an error it returns the last good answer. The answer of a kubelet that
// has just restarted can only add holders: the end of a holder is known when the kubelet knows its pods.
func (k *kubelet) holders(ctx context.Context) (heldRefs, error) {
	held, err := k.latest(ctx)
	if err != nil {
		return held, err
	}
	more, err := k.unlisted(held)
	held = more.with(held)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.justRestarted() {
		err = errors.New("the kubelet has just restarted and may not know all its pods yet")
	}
	if err != nil {
		held = k.last.with(held)
	}
	k.last = held
	if err != nil {
		return held, accel.Problemf(accel.ProbeUnanswered, "it is not known who holds devices: %v", err)
	}
	return held, nil
}

// latest is holders with the answer of any kubelet, for those who choose among devices that are free anyway.
func (k *kubelet) latest(ctx context.Context) (heldRefs, error) {
	held, err := k.list(ctx)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.last, err
	}
	return held, nil
}

// justRestarted notes which kubelet answers, by its socket. The caller holds mu.
func (k *kubelet) justRestarted() bool {
	info, err := os.Stat(k.socket)
	if err != nil {
		return true // it answered and is gone
	}
	if k.life != nil && (!os.SameFile(info, k.life) || !info.ModTime().Equal(k.life.ModTime())) {
		k.since = time.Now()
	}
	k.life = info
	return !k.since.IsZero() && time.Since(k.since) < k.young
}

// list asks the kubelet who holds which device.
func (k *kubelet) list(ctx context.Context) (heldRefs, error) {
	client, err := k.client()
	if err != nil {
		return heldRefs{}, err
	}
	resp, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return heldRefs{}, accel.Problemf(accel.ProbeUnanswered, "cannot ask the kubelet who holds devices: %s",
			status.Convert(err).Message())
	}
	held := heldRefs{now: map[string]PodRef{}, before: map[string]PodRef{}}
	for _, pod := range resp.GetPodResources() {
		for _, c := range pod.GetContainers() {
			for _, d := range c.GetDevices() {
				into := held.now
				switch {
				case d.GetResourceName() == k.resource:
				case slices.Contains(k.former, d.GetResourceName()):
					into = held.before
				default:
					continue
				}
				for _, id := range d.GetDeviceIds() {
					into[id] = PodRef{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName()}
				}
			}
		}
	}
	return held, nil
}

// register registers the socket endpoint with the kubelet of dir. If nobody listens there, the problem is
// KubeletAbsent; any other failure is RegistrationFailed with the kubelet's message.
func register(ctx context.Context, dir, endpoint, resource string) *accel.Problem {
	socket := filepath.Join(dir, kubeletSocket)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return accel.Problemf(accel.RegistrationFailed, "cannot register %q with the kubelet on %q: %s", resource,
			socket, err)
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version:      pluginapi.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
		Options:      &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true},
	})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Unavailable:
		return accel.Problemf(accel.KubeletAbsent, "cannot register %q: no kubelet answers on %q", resource, socket)
	case codes.DeadlineExceeded, codes.Canceled:
		return accel.Problemf(accel.RegistrationFailed, "cannot register %q: the kubelet did not answer in time",
			resource)
	}
	return accel.Problemf(accel.RegistrationFailed, "cannot register %q: the kubelet refused: %s", resource,
		status.Convert(err).Message())
}
