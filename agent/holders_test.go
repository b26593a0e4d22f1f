package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

func TestNameHolders(t *testing.T) {
	accs := []accel.Accelerator{
		{ID: "a", Nodes: []accel.DeviceNode{{Path: "/dev/edu0"}}},
		{ID: "b", Nodes: []accel.DeviceNode{{Path: "/dev/edu1"}}},
	}
	got := nameHolders([]accel.Holder{
		{PID: 1, PodUID: "u", Device: "/dev/edu0"},
		{PID: 2, Device: "/dev/edu0"}, // a process of the host
		{Other: "module x"},
	}, map[string][]deviceplugin.PodRef{"a": {{Namespace: "n", Pod: "p"}}, "b": {{Namespace: "n", Pod: "q"}}}, accs)
	want := []accel.Holder{
		{PID: 1, PodUID: "u", Namespace: "n", Pod: "p", Device: "/dev/edu0"},
		{PID: 2, Device: "/dev/edu0"},
		{Other: "module x"},
		{Namespace: "n", Pod: "q", Device: "b"}, // it was given a device and has not opened it
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A device is not partitioned while it is unknown which pods have it.
func TestPodsOnUnknown(t *testing.T) {
	for kubernetes, want := range map[bool][]string{true: {"the kubelet, which nobody has asked yet"}, false: nil} {
		u := &users{
			host: hosttest.New(t).Host, plugins: &plugins{},
			machine: func() accel.Machine { return accel.Machine{Want: accel.Want{Kubernetes: kubernetes}} },
		}
		device := accel.Accelerator{ID: "a", Nodes: []accel.DeviceNode{{Path: "/dev/npu0", Major: 9}}}
		got := u.podsOn(t.Context(), &accel.Definition{Kind: "example-npu"}, device)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kubernetes %t (-want +got):\n%s", kubernetes, diff)
		}
	}
}

// TestUsersUnanswered: a kubelet that does not report who has devices differs from one that reports that nobody has,
// even before this process has started a device plugin. Without a kubelet, nothing is waited for.
func TestUsersUnanswered(t *testing.T) {
	def := &accel.Definition{Kind: "example-npu"}
	for kubernetes, want := range map[bool]accel.Reason{true: accel.ProbeUnanswered, false: ""} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		save(t, file, "logLevel: error\n")
		o := options(hosttest.New(t).Host.Root(), file)
		s, problem := Open(o)
		if problem != nil {
			t.Fatal(problem)
		}
		a := bare(t, o, s)
		a.loop = loop.New(loop.Options{Want: accel.Want{Kubernetes: kubernetes}})
		started := map[string]*serving{devicesOf(def): {devices: deviceplugin.NewKind(deviceplugin.Config{
			Resource: "example.com/npu", PodResources: filepath.Join(t.TempDir(), "kubelet.sock"), Definition: def,
		})}}
		for _, a.plugins.bySlot = range []map[string]*serving{nil, started} {
			var got accel.Reason
			if _, problem := a.users.of(t.Context(), def, nil); problem != nil {
				got = problem.Reason
			}
			if got != want {
				t.Errorf("kubernetes %t, started %t: %q, want %q", kubernetes, a.plugins.bySlot != nil, got, want)
			}
		}
	}
}

// emptyKubelet reports no pod.
type emptyKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (emptyKubelet) List(context.Context, *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error,
) {
	return &podresources.ListPodResourcesResponse{}, nil
}

// answering serves a kubelet's PodResources.
func answering(t *testing.T, socket string, kubelet podresources.PodResourcesListerServer) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, kubelet)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// usersOf returns the users of a machine with a kubelet and no plugin of its own.
func usersOf(h *host.Host) *users {
	machine := func() accel.Machine { return accel.Machine{Want: accel.Want{Kubernetes: true}} }
	return &users{
		host: h, machine: machine,
		plugins: &plugins{Setup: &Setup{Host: h, Log: slog.New(slog.DiscardHandler)}, machine: machine},
	}
}

// TestYoungKubelet: that a kubelet which has just started names no holder does not mean that there are none, even if
// this agent has never asked another one. Neither does it if nobody knows when the kubelet started.
func TestYoungKubelet(t *testing.T) {
	def := &accel.Definition{Kind: "example-npu", Resource: "example.com/npu"}
	for age, want := range map[time.Duration]accel.Reason{
		0: accel.ProbeUnanswered, 29 * time.Second: accel.ProbeUnanswered, time.Minute: "",
		-time.Hour: accel.ProbeUnanswered,
	} {
		h := hosttest.New(t).Host
		socket := filepath.Join(h.Root(), kubeletDir, "pod-resources/kubelet.sock")
		answering(t, socket, emptyKubelet{})
		started := time.Now().Add(-age)
		if err := os.Chtimes(socket, started, started); err != nil {
			t.Fatal(err)
		}
		var got accel.Reason
		if _, problem := usersOf(h).held(t.Context(), def); problem != nil {
			got = problem.Reason
		}
		if got != want {
			t.Errorf("age %s: %q, want %q", age, got, want)
		}
	}
}

// TestIdlePod: a kubelet that has restarted does not know its pods until the API server has sent them, which may take
// longer than any time limit. A pod that still runs holds what the kubelet's checkpoint says, though no process has the
// device open.
func TestIdlePod(t *testing.T) {
	def := &accel.Definition{Kind: "example-npu", Resource: "example.com/npu"}
	m := hosttest.New(t)
	socket := filepath.Join(m.Host.Root(), kubeletDir, "pod-resources/kubelet.sock")
	answering(t, socket, emptyKubelet{})
	started := time.Now().Add(-time.Hour)
	if err := os.Chtimes(socket, started, started); err != nil {
		t.Fatal(err)
	}
	m.File("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", `{"Data":{"PodDeviceEntries":[
		{"PodUID":"u-1","ContainerName":"main","ResourceName":"example.com/npu","DeviceIDs":{"0":["a"]},"AllocResp":""},
		{"PodUID":"u-2","ContainerName":"main","ResourceName":"example.com/npu","DeviceIDs":{"0":["b"]},"AllocResp":""}
		],"RegisteredDevices":{}},"Checksum":1}`)
	m.Dir("/sys/fs/cgroup/kubepods/burstable/podu-1")
	u := usersOf(m.Host)
	held, problem := u.held(t.Context(), def)
	if problem != nil {
		t.Fatal(problem)
	}
	got := nameHolders(nil, held, []accel.Accelerator{{ID: "a"}, {ID: "b"}})
	if diff := cmp.Diff([]accel.Holder{{PodUID: "u-1", Device: "a"}}, got); diff != "" {
		t.Error(diff)
	}
	m.Remove("/sys/fs/cgroup/kubepods/burstable/podu-1")
	if held, problem := u.held(t.Context(), def); problem != nil || len(held) > 0 {
		t.Errorf("after its end %v, %v", held, problem)
	}
}

// All pods with a share of a device are named, and no process is attributed to one of them.
func TestNameHoldersOfShared(t *testing.T) {
	accs := []accel.Accelerator{{ID: "a", Nodes: []accel.DeviceNode{{Path: "/dev/edu0"}}}}
	p, q := deviceplugin.PodRef{Namespace: "n", Pod: "p"}, deviceplugin.PodRef{Namespace: "n", Pod: "q"}
	held := byDevice(map[string]deviceplugin.PodRef{"a": q, "a::1": p, "a::2": q})
	if diff := cmp.Diff(map[string][]deviceplugin.PodRef{"a": {p, q}}, held); diff != "" {
		t.Fatal(diff)
	}
	got := nameHolders([]accel.Holder{{PID: 1, PodUID: "u", Device: "/dev/edu0"}}, held, accs)
	want := []accel.Holder{
		{PID: 1, PodUID: "u", Device: "/dev/edu0"},
		{Namespace: "n", Pod: "p", Device: "a"},
		{Namespace: "n", Pod: "q", Device: "a"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNameClaimants(t *testing.T) {
	processes := []accel.Holder{{PID: 7, Comm: "train", PodUID: "u-1"}, {PID: 8, Comm: "bash"}}
	got := NameClaimants(processes, []dra.Holder{
		{Device: "a", Namespace: "team", Pod: "one", UID: "u-1", Claim: "c"},
		{Device: "a", Namespace: "team", Pod: "two", UID: "u-2", Claim: "c"},
		{Device: "b", Namespace: "team", Pod: "two", UID: "u-2", Claim: "c"},
		{Device: "d", Namespace: "team", Claim: "idle"},
	})
	want := []accel.Holder{
		{PID: 7, Comm: "train", PodUID: "u-1", Namespace: "team", Pod: "one"},
		{PID: 8, Comm: "bash"},
		{Namespace: "team", Pod: "two", PodUID: "u-2", Device: "a"},
		{Other: "claim team/idle", Device: "d"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
