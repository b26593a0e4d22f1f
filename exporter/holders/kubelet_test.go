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
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/host"
)

// service is a PodResources service with one pod.
type service struct {
	podresources.UnimplementedPodResourcesListerServer
	device atomic.Pointer[string]
}

func (s *service) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Namespace: "ns", Name: "p",
		Containers: []*podresources.ContainerResources{{Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: thing, DeviceIds: []string{*s.device.Load()}}}}},
	}}}, nil
}

// serve is one life of a kubelet that listens below root.
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

// TestKubelet: real sockets and directories, over a restart of the kubelet.
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
		Host: h, Root: func() string { return "/var/lib/kubelet" }, Active: func() bool { return true }, Claims: func() []Hold { return nil },
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
		for until := time.Now().Add(10 * time.Second); cmp.Diff([]string{want}, lines(f.Holdings().By)) != ""; time.Sleep(5 * time.Millisecond) {
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
	// The next life of the kubelet has the pod on another device, as after a checkpoint that was lost.
	stop = kubelet.serve(t, root)
	defer stop()
	give("b")
	for until := time.Now().Add(10 * time.Second); len(f.Holdings().By["b"]) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the kubelet was not asked again")
		}
	}
	// What it writes into its directory is a reason to ask.
	give("c")
	if err := os.WriteFile(filepath.Join(root, "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); len(f.Holdings().By["c"]) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a checkpoint was no reason to ask")
		}
	}
}
