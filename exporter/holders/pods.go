package holders

import (
	"context"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/acceld/acceld/pace"
)

// pods are the node's pods according to the kubelet's own stream, which it serves by default since Kubernetes 1.37
// (KEP-4188). The stream reports their UIDs and when a pod has completed, which no directory does. Without it, both
// are found out in other ways and later.
type pods struct {
	mu   sync.Mutex
	uids map[string]string // by "<namespace>/<name>"
	live bool              // the stream has reported all pods and continues
}

// uid returns the UID of a pod; empty if the stream has not reported it.
func (p *pods) uid(namespace, name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uids[namespace+"/"+name]
}

// following reports whether the stream currently reports every pod.
func (p *pods) following() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// begin forgets what an earlier stream reported.
func (p *pods) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uids, p.live = map[string]string{}, false
}

// take records an event, and reports whether it may have changed who holds devices.
func (p *pods) take(e *podsapi.WatchPodsEvent) (news bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.GetType() == podsapi.EventType_INITIAL_SYNC_COMPLETE {
		p.live = true
		return true, nil
	}
	var pod corev1.Pod
	if err := pod.Unmarshal(e.GetPod()); err != nil {
		return false, err
	}
	key, uid := pod.Namespace+"/"+pod.Name, string(pod.UID)
	if e.GetType() == podsapi.EventType_DELETED {
		if p.uids[key] == uid { // another pod may have the name already
			delete(p.uids, key)
		}
		return true, nil
	}
	news = p.uids[key] != uid || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	p.uids[key] = uid
	return news, nil
}

// stream follows the kubelet's stream until ctx ends. The kubelet drops a slow reader, and reports every pod again
// to one that comes back.
func (f *Follower) stream(ctx context.Context) {
	backoff := pace.Backoff{First: f.timing.retry, Max: f.timing.idle} // a kubelet before 1.37 never has a stream
	for failures := 1; ctx.Err() == nil; failures++ {
		f.pods.begin()
		err := f.streamOnce(ctx)
		f.o.Log.Debug("the kubelet's stream of pods has ended", "error", err)
		if f.pods.following() {
			failures = 1
		}
		_ = pace.Sleep(ctx, backoff.After(failures))
	}
}

// streamOnce follows one stream to its end.
func (f *Follower) streamOnce(ctx context.Context) error {
	socket, err := f.o.Host.Path(path.Join(f.o.Root(), "pods-api/pods-api.sock"))
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return err
	}
	defer conn.Close()
	events, err := podsapi.NewPodsClient(conn).WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		return err
	}
	for {
		e, err := events.Recv()
		if err != nil {
			return err
		}
		news, err := f.pods.take(e)
		if err != nil {
			return err
		}
		if news && len(f.Holdings().By) > 0 {
			f.Poke()
		}
	}
}
