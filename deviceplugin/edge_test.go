package deviceplugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
)

// silent is a kubelet that takes a question and never answers it.
type silent struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (silent) GetAllocatableResources(ctx context.Context, _ *podresources.AllocatableResourcesRequest) (
	*podresources.AllocatableResourcesResponse, error,
) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestQuestionEnds: a kubelet that accepts a call and never answers is asked again.
func TestQuestionEnds(t *testing.T) {
	pods := filepath.Join(sockets(t), "pods.sock")
	l, err := net.Listen("unix", pods)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, silent{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	p := New(Config{Resource: testResource, PodResources: pods, Definition: &accel.Definition{Kind: "example-thing"}})
	defer p.kubelet.close()
	p.timing.ask = 50 * time.Millisecond
	answered := make(chan view, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { answered <- p.ask(ctx, true) }()
	select {
	case v := <-answered:
		if v.err == nil {
			t.Errorf("%+v", v)
		}
	case <-time.After(20 * time.Second):
		t.Error("the question is still open")
	}
}

// TestMountsAreReadOnly: a container cannot write to the host's files unless the definition says so.
func TestMountsAreReadOnly(t *testing.T) {
	for name, c := range map[string]struct {
		options []string
		want    bool
	}{"no options": {nil, true}, "read-only": {[]string{"ro", "bind"}, true}, "writable": {
		[]string{"rw", "bind"},
		false,
	}} {
		def := &accel.Definition{
			Resource: testResource,
			Container: accel.Edits{Mounts: []accel.Mount{{
				HostPath: "/usr/lib/x", ContainerPath: "/x",
				Options: c.options,
			}}},
		}
		inv := newInventory(def)
		inv.update([]accel.Accelerator{thing("a", 0, accel.Healthy)}, time.Now())
		s := &service{cfg: Config{Resource: testResource, Definition: def}, list: inv}
		resp, err := s.Allocate(t.Context(), request("a"))
		if err != nil {
			t.Fatal(err)
		}
		if m := resp.ContainerResponses[0].Mounts; len(m) != 1 || m[0].ReadOnly != c.want {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// TestSocketIsForRoot: only root can talk to the plugin or get devices from it.
func TestSocketIsForRoot(t *testing.T) {
	p := New(Config{Resource: testResource, Dir: sockets(t), Definition: &accel.Definition{Kind: "example-thing"}})
	s, problem := p.serve()
	if problem != nil {
		t.Fatal(problem)
	}
	defer s.stop(time.Second)
	if st, err := os.Stat(s.path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestSumOfKinds: what is unknown for one profile is unknown for the kind.
func TestSumOfKinds(t *testing.T) {
	k := NewKind(Config{Resource: testResource, Definition: &accel.Definition{
		Kind:     "example-thing",
		Resource: testResource,
	}})
	k.Update(accel.Units(divided("a:half0,half1 b")))
	if len(k.all()) != 2 {
		t.Fatalf("%d plugins", len(k.all()))
	}
	answer := func(n int) accel.Answer[int] {
		if n < 0 {
			return accel.Answer[int]{}
		}
		return accel.Known(n)
	}
	for _, c := range []struct{ whole, halves, want int }{
		{1, 2, 3},
		{-1, 2, -1},
		{1, -1, -1},
		{-1, -1, -1},
		{0, 0, 0},
	} {
		for i, n := range []int{c.whole, c.halves} {
			k.all()[i].pluginState.set(nil, func(h *accel.PluginHave) { h.Registered, h.Allocatable = true, answer(n) })
		}
		if got := k.State(); got.Allocatable != answer(c.want) || !got.Registered {
			t.Errorf("%d and %d: %+v, want %d", c.whole, c.halves, got, c.want)
		}
	}
}
