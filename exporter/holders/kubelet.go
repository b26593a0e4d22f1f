package holders

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/host"
)

const (
	// devicePlugins is fixed in the kubelet and does not follow its --root-dir.
	devicePlugins = "/var/lib/kubelet/device-plugins"
	// podLogs is the kubelet's default podLogsDir. If it is elsewhere, the UIDs of pods that use the device plugin
	// are not known.
	podLogs = "/var/log/pods"
	// maxAnswer is the maximum size of an answer in bytes, as in the kubelet's own client (podresources/client.go).
	maxAnswer = 16 << 20
)

// kubelet is one long-lived connection to the PodResources service.
type kubelet struct {
	mu     sync.Mutex
	conn   *grpc.ClientConn
	socket string
}

func (k *kubelet) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil {
		_ = k.conn.Close() // nobody waits for a call in flight
		k.conn = nil
	}
}

// client returns a client of a socket. Its connection reconnects by itself after the kubelet restarts.
func (k *kubelet) client(socket string) (podresources.PodResourcesListerClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil && k.socket != socket {
		_ = k.conn.Close() // the kubelet uses another directory now
		k.conn = nil
	}
	if k.conn == nil {
		conn, err := grpc.NewClient("unix:"+socket,
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
			return nil, err
		}
		k.conn, k.socket = conn, socket
	}
	k.conn.ResetConnectBackoff() // the caller has its own backoff
	return podresources.NewPodResourcesListerClient(k.conn), nil
}

// socketName is where the kubelet serves PodResources, as the host sees it.
func (f *Follower) socketName() string { return path.Join(f.o.Root(), "pod-resources/kubelet.sock") }

// ask asks the kubelet for the resources of all pods.
func (f *Follower) ask(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	socket, err := f.o.Host.Path(f.socketName())
	if err != nil {
		return nil, accel.Problemf(accel.ProbeUnanswered, "cannot find the kubelet's socket: %v", err)
	}
	client, err := f.client(socket)
	if err != nil {
		return nil, accel.Problemf(accel.ProbeUnanswered, "cannot ask the kubelet on %q: %v", socket, err)
	}
	return client.List(ctx, &podresources.ListPodResourcesRequest{})
}

// Resources asks the kubelet what it can give out, with the places of devices, and what each container has.
func (f *Follower) Resources(ctx context.Context) (*podresources.AllocatableResourcesResponse,
	*podresources.ListPodResourcesResponse, error,
) {
	ctx, cancel := context.WithTimeout(ctx, f.timing.ask)
	defer cancel()
	list, err := f.ask(ctx)
	if err != nil {
		return nil, nil, err
	}
	socket, err := f.o.Host.Path(f.socketName())
	if err != nil {
		return nil, nil, err
	}
	client, err := f.client(socket)
	if err != nil {
		return nil, nil, err
	}
	all, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	return all, list, err
}

// socketIdentity changes when the kubelet restarts, because a kubelet creates its socket again; 0 if it is not
// known.
func (f *Follower) socketIdentity() uint64 {
	id, err := f.o.Host.Identity(f.socketName())
	if err != nil {
		return 0
	}
	// The old file and the new one may have the same inode number, but not the same birth time.
	return id ^ uint64(f.o.Host.Born(f.socketName()).UnixNano())
}

// read returns who holds which accelerator, according to an answer and to what is prepared for claims.
func (f *Follower) read(resp *podresources.ListPodResourcesResponse) []said {
	var all []said
	prepared := f.o.Claims()
	uid := map[string]string{} // of pods, from the claims' records
	for _, h := range prepared {
		uid[h.Namespace+"/"+h.Pod] = h.UID
	}
	slot := func(h Hold) string {
		return strings.Join([]string{"claim", h.Accelerator, h.Namespace, h.Claim, h.Pod}, "\n")
	}
	named := map[string]bool{}
	for _, pod := range resp.GetPodResources() {
		for _, c := range pod.GetContainers() {
			who := exporter.Holder{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName()}
			for _, d := range c.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					if acc, ours := f.o.Device(d.GetResourceName(), id); ours {
						who.Resource = d.GetResourceName()
						all = append(all, said{Hold: Hold{acc, who}, slot: who.Resource + "\n" + id})
					}
				}
			}
			for _, h := range f.claimed(c, who) {
				h.UID = uid[h.Namespace+"/"+h.Pod]
				named[slot(h)] = true
				all = append(all, said{Hold: h, slot: slot(h)})
			}
		}
	}
	// Prepared, but not reported by the kubelet: either it soon will be, or the kubelet does not report claims
	// (before 1.34 by default).
	for _, h := range prepared {
		if !named[slot(h)] {
			all = append(all, said{Hold: h, slot: slot(h), vague: true})
		}
	}
	return all
}

// claimed returns the accelerators that a container has by claims.
func (f *Follower) claimed(c *podresources.ContainerResources, who exporter.Holder) []Hold {
	var all []Hold
	for _, r := range c.GetDynamicResources() {
		for _, d := range r.GetClaimResources() {
			if acc, ours := f.o.Claimed(d.GetDriverName(), d.GetDeviceName()); ours {
				h := Hold{acc, who}
				h.Resource, h.Claim = d.GetDriverName(), r.GetClaimName()
				all = append(all, h)
			}
		}
	}
	return all
}

// podUIDs reads the pods' UIDs from the names of their log directories, by "<namespace>/<name>". The kubelet names
// them <namespace>_<name>_<uid> (pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory), and neither a namespace
// nor a name may contain a "_". If several have one name, such as a StatefulSet's pods, the youngest counts.
func podUIDs(h *host.Host) map[string]string {
	entries, err := h.ReadDir(podLogs)
	if err != nil {
		return nil // then no UID is shown
	}
	dirs := map[string]string{}
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_")
		if len(parts) != 3 || !e.IsDir() {
			continue
		}
		key := parts[0] + "/" + parts[1]
		if other := dirs[key]; other == "" ||
			h.Born(path.Join(podLogs, e.Name())).After(h.Born(path.Join(podLogs, other))) {
			dirs[key] = e.Name()
		}
	}
	for key, dir := range dirs {
		dirs[key] = dir[strings.LastIndex(dir, "_")+1:]
	}
	return dirs
}
