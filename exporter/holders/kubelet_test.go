package holders

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/acceld/acceld/host"
)

// service is a PodResources service with one pod.
type service struct {
	podresources.UnimplementedPodResourcesListerServer
	device atomic.Pointer[string]
}

func (s *service) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse,
	error,
) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Namespace: "ns", Name: "p",
		Containers: []*podresources.ContainerResources{{
			Name:    "main",
			Devices: []*podresources.ContainerDevices{{ResourceName: thing, DeviceIds: []string{*s.device.Load()}}},
		}},
	}}}, nil
}

// serve starts a kubelet that listens below root.
func (s *service) serve(t *testing.T, root string) (stop func()) {
	t.Helper()
	dir := filepath.Join(root, "var/lib/kubelet/pod-resources")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, s)
	go func() { _ = server.Serve(l) }()
	return server.Stop
}

// TestKubelet: real sockets and directories, across a restart of the kubelet.
func TestKubelet(t *testing.T) {
	root, err := os.MkdirTemp("", "ho") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := func(names ...string) {
		if err := os.MkdirAll(filepath.Join(append([]string{root}, names...)...), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := New(Options{
		Host: h, Root: func() string {
			return "/var/lib/kubelet"
		}, Active: func() bool { return true }, Claims: func() []Hold { return nil },
		Device:  func(resource, id string) (string, bool) { return id, resource == thing },
		Claimed: func(string, string) (string, bool) { return "", false },
	})
	f.timing.gap, f.timing.retry, f.timing.settle = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	f.book.timing = f.timing
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-f.Ready()
	shown := func(want string) {
		t.Helper()
		for until := time.Now().Add(10 * time.Second); cmp.Diff([]string{want},
			lines(f.Holdings().By)) != ""; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%v is shown, want %s", lines(f.Holdings().By), want)
			}
		}
	}
	kubelet := &service{}
	give := func(device string) { kubelet.device.Store(&device) }
	give("a")
	dir("var/log/pods/ns_p_old")
	dir("var/log/pods/ns_q_other")
	dir("var/log/pods/not-a-pod")
	dir("var/log/pods/ns_p_new")
	dir("var/lib/kubelet/device-plugins")
	stop := kubelet.serve(t, root)
	shown("a ns/p/main new")
	stop()
	give("b")
	f.Poke()
	time.Sleep(50 * time.Millisecond)
	shown("a ns/p/main new")
	// After its restart the kubelet has the pod on another device, as after a lost checkpoint.
	stop = kubelet.serve(t, root)
	defer stop()
	give("b")
	for until := time.Now().Add(10 * time.Second); len(f.Holdings().By["b"]) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the kubelet was not asked again")
		}
	}
	// A write to its directory triggers a request.
	give("c")
	if err := os.WriteFile(filepath.Join(root, "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"),
		[]byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); len(f.Holdings().By["c"]) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a checkpoint was no reason to ask")
		}
	}
}

// stream is the kubelet's stream of pods.
type stream struct {
	podsapi.UnimplementedPodsServer
	events chan *podsapi.WatchPodsEvent
	began  atomic.Int32
}

func (s *stream) WatchPods(_ *podsapi.WatchPodsRequest, to podsapi.Pods_WatchPodsServer) error {
	s.began.Add(1)
	for {
		select {
		case <-to.Context().Done():
			return nil
		case e := <-s.events:
			if e == nil {
				return nil // the reader was too slow
			}
			if err := to.Send(e); err != nil {
				return err
			}
		}
	}
}

// podEvent returns an event about a pod.
func podEvent(t *testing.T, typ podsapi.EventType, name, uid string, phase corev1.PodPhase) *podsapi.WatchPodsEvent {
	t.Helper()
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Status:     corev1.PodStatus{Phase: phase},
	}
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &podsapi.WatchPodsEvent{Type: typ, Pod: data}
}

// TestPods: what the kubelet's stream of pods reports, and which events may change who holds devices.
func TestPods(t *testing.T) {
	var p pods
	p.begin()
	for _, e := range []struct {
		event *podsapi.WatchPodsEvent
		news  bool
		uid   string
	}{
		{podEvent(t, podsapi.EventType_ADDED, "p", "1", corev1.PodPending), true, "1"},
		{podEvent(t, podsapi.EventType_MODIFIED, "p", "1", corev1.PodRunning), false, "1"},
		{podEvent(t, podsapi.EventType_MODIFIED, "p", "1", corev1.PodSucceeded), true, "1"},
		{podEvent(t, podsapi.EventType_ADDED, "p", "2", corev1.PodPending), true, "2"},
		{podEvent(t, podsapi.EventType_DELETED, "p", "1", corev1.PodSucceeded), true, "2"},
		{podEvent(t, podsapi.EventType_DELETED, "p", "2", corev1.PodRunning), true, ""},
	} {
		if news, err := p.take(e.event); err != nil || news != e.news || p.uid("ns", "p") != e.uid {
			t.Errorf("%s: news %t, uid %q, %v", e.event.GetType(), news, p.uid("ns", "p"), err)
		}
	}
	if p.following() {
		t.Error("not all pods have been told")
	}
	if _, err := p.take(&podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}); err != nil ||
		!p.following() {
		t.Errorf("all pods have been told: %v", err)
	}
	if _, err := p.take(&podsapi.WatchPodsEvent{Type: podsapi.EventType_ADDED, Pod: []byte{0xff}}); err == nil {
		t.Error("what is no pod was taken")
	}
	if p.begin(); p.following() {
		t.Error("a stream that begins has told nothing")
	}
}

// TestStream: the real client with a stream, beyond the stream's end.
func TestStream(t *testing.T) {
	root, err := os.MkdirTemp("", "ho")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "var/lib/kubelet/pods-api")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f := New(Options{Host: h, Root: func() string { return "/var/lib/kubelet" }})
	f.timing.retry = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.stream(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	l, err := net.Listen("unix", filepath.Join(dir, "pods-api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	kubelet := &stream{events: make(chan *podsapi.WatchPodsEvent)}
	server := grpc.NewServer()
	podsapi.RegisterPodsServer(server, kubelet)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	until := func(what string, holds func() bool) {
		t.Helper()
		for begin := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("it did not happen: %s", what)
			}
		}
	}
	for life := range int32(2) {
		kubelet.events <- podEvent(t, podsapi.EventType_ADDED, "p", "1", corev1.PodRunning)
		kubelet.events <- &podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}
		until("all pods are told", func() bool {
			return f.pods.following() && f.pods.uid("ns", "p") == "1" && kubelet.began.Load() == life+1
		})
		kubelet.events <- nil
		until("the stream is begun again", func() bool { return kubelet.began.Load() == life+2 && !f.pods.following() })
	}
}
