package deviceplugin

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestAllocate(t *testing.T) {
	def := &accel.Definition{
		Resource: testResource,
		Nodes:    []accel.NodeSource{{Glob: "accel/*"}, {Glob: "misc/*", Permissions: "rwm"}},
		Container: accel.Edits{
			Env:    []string{"THING=a=b", "broken"},
			Mounts: []accel.Mount{{HostPath: "/usr/lib/x", ContainerPath: "/x", Options: []string{"ro", "bind"}}},
			Nodes:  []string{"/dev/ctl"},
		},
	}
	a, b := thing("0000:01:00.0", 0, accel.Healthy), thing("0000:02:00.0", 0, accel.Healthy)
	a.Nodes = []accel.DeviceNode{{Path: "/dev/x0"}, {Path: "/dev/x1"}}
	a.Beside = []string{"/dev/infiniband/uverbs0"}
	bare := thing("bare", 0, accel.Healthy)
	bare.Bare = true
	sick := thing("sick", 0, accel.Unhealthy)
	sick.Health.Reason, sick.Health.Message = accel.DeviceUnhealthy, "it is on fire"
	inv := newInventory(def)
	inv.update([]accel.Accelerator{a, b, bare, sick, thing("away", 0, accel.Healthy), thing("odd", 0, "")}, time.Now())
	inv.update([]accel.Accelerator{a, b, bare, sick, thing("odd", 0, "")}, time.Now())
	for _, tc := range []struct {
		name    string
		cdi     bool
		ids     []string
		want    *pluginapi.ContainerAllocateResponse
		code    codes.Code
		message string
	}{
		{name: "cdi", cdi: true, ids: []string{b.ID, a.ID}, want: &pluginapi.ContainerAllocateResponse{
			Annotations: map[string]string{"acceld.dev/devices": "0000:01:00.0,0000:02:00.0"},
			CdiDevices:  []*pluginapi.CDIDevice{{Name: testResource + "=" + a.ID}, {Name: testResource + "=" + b.ID}},
		}},
		{name: "in no spec", cdi: true, ids: []string{a.ID, "bare"}, want: &pluginapi.ContainerAllocateResponse{
			Annotations: map[string]string{"acceld.dev/devices": "0000:01:00.0,bare"},
			CdiDevices:  []*pluginapi.CDIDevice{{Name: testResource + "=" + a.ID}},
		}},
		{name: "device specs", ids: []string{a.ID}, want: &pluginapi.ContainerAllocateResponse{
			Annotations: map[string]string{"acceld.dev/devices": "0000:01:00.0"},
			Envs:        map[string]string{"THING": "a=b"},
			Mounts:      []*pluginapi.Mount{{HostPath: "/usr/lib/x", ContainerPath: "/x", ReadOnly: true}},
			Devices: []*pluginapi.DeviceSpec{
				{HostPath: "/dev/x0", ContainerPath: "/dev/x0", Permissions: "rwm"},
				{HostPath: "/dev/x1", ContainerPath: "/dev/x1", Permissions: "rwm"},
				{HostPath: "/dev/infiniband/uverbs0", ContainerPath: "/dev/infiniband/uverbs0", Permissions: "rw"},
				{HostPath: "/dev/ctl", ContainerPath: "/dev/ctl", Permissions: "rwm"},
			},
		}},
		{
			name: "no node", ids: []string{b.ID}, code: codes.FailedPrecondition,
			message: `cannot allocate device "0000:02:00.0": it has no device node (NodeMissing)`,
		},
		{
			name: "unknown", cdi: true, ids: []string{a.ID, "0000:09:00.0"}, code: codes.NotFound,
			message: `cannot allocate device "0000:09:00.0": example.com/thing has no such device`,
		},
		{
			name: "unhealthy", cdi: true, ids: []string{"sick"}, code: codes.FailedPrecondition,
			message: `cannot allocate device "sick": it is on fire (DeviceUnhealthy)`,
		},
		{
			name: "gone", cdi: true, ids: []string{"away"}, code: codes.FailedPrecondition,
			message: `cannot allocate device "away": the device is no longer there (DeviceGone)`,
		},
		{
			name: "health not known", cdi: true, ids: []string{"odd"}, code: codes.FailedPrecondition,
			message: `cannot allocate device "odd": its health is not known (DeviceUnhealthy)`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &service{cfg: Config{Resource: testResource, CDI: tc.cdi, Definition: def}.complete(), list: inv}
			resp, err := s.Allocate(context.Background(), request(tc.ids...))
			if got := status.Convert(err); got.Code() != tc.code || got.Message() != tc.message {
				t.Fatalf("error %v, want %s %q", err, tc.code, tc.message)
			}
			if tc.want == nil {
				return
			}
			want := &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{tc.want}}
			if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
	if inv.calls != 0 {
		t.Errorf("%d calls are still marked as in flight", inv.calls)
	}
}

// The agent cannot hold up a call, and the calls are quick.
func TestNothingDelaysAllocate(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	blocked := make(chan struct{})
	p := newPlugin(k, func(c *Config) { c.OnChange = func() { <-blocked } })
	p.Update(two())
	run(t, p)
	defer close(blocked)
	eventually(t, "registered", settled(p, 1, 2))
	k.set(func() { k.silent = true })
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				p.Update([]accel.Accelerator{thing("a", 0, accel.Healthy), thing("b", i%2, accel.Healthy)})
				time.Sleep(time.Millisecond)
			}
		}
	}()
	client := k.plugin()
	var took []time.Duration
	for range 500 {
		began := time.Now()
		if _, err := client.Allocate(context.Background(), request("a")); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("Allocate over the socket: p50 %s, p99 %s, worst %s", took[250], took[494], took[499])
	if took[250] > 20*time.Millisecond {
		t.Errorf("p50 = %s", took[250])
	}
}

func BenchmarkAllocate(b *testing.B) {
	inv := newInventory(&accel.Definition{})
	inv.update(two(), time.Now())
	s := &service{cfg: Config{Resource: testResource, CDI: true, Definition: &accel.Definition{}}, list: inv}
	for b.Loop() {
		if _, err := s.Allocate(context.Background(), request("a", "b")); err != nil {
			b.Fatal(err)
		}
	}
}

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, _ any) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
		boom := func(context.Context, any) (any, error) { panic("boom") }
		for _, tc := range []struct {
			name    string
			req     any
			handler grpc.UnaryHandler
			code    codes.Code
		}{
			{"hanging allocate", &pluginapi.AllocateRequest{}, hang, codes.DeadlineExceeded},
			{"panicking allocate", &pluginapi.AllocateRequest{}, boom, codes.Internal},
			{"hanging preference", &pluginapi.PreferredAllocationRequest{}, hang, codes.OK},
			{"panicking preference", &pluginapi.PreferredAllocationRequest{}, boom, codes.OK},
		} {
			ctx, cancel := context.WithCancel(context.Background()) // the kubelet's own has no deadline
			began := time.Now()
			resp, err := bounded(ctx, tc.req, &grpc.UnaryServerInfo{FullMethod: "/x"}, tc.handler)
			if status.Code(err) != tc.code || (err == nil) == (resp == nil) {
				t.Errorf("%s: %v, %v", tc.name, resp, err)
			}
			if took := time.Since(began); took > callDeadline {
				t.Errorf("%s took %s", tc.name, took)
			}
			cancel()
		}
	})
}
