package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/usage"
)

// oneKubelet says that one pod has one device.
type oneKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (oneKubelet) List(context.Context, *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error,
) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Namespace: "team", Name: "listed", Containers: []*podresources.ContainerResources{{
			Name: "main", Devices: []*podresources.ContainerDevices{{
				ResourceName: "example.com/npu", DeviceIds: []string{"0000:01:00.0::3"},
			}},
		}},
	}}}, nil
}

// usesKubelet starts a kubelet that runs since a while, and returns an agent beside it.
func usesKubelet(t *testing.T, m *hosttest.Machine, since time.Duration) unrequested {
	t.Helper()
	socket := filepath.Join(m.Host.Root(), kubeletDir, "pod-resources/kubelet.sock")
	answering(t, socket, oneKubelet{})
	started := time.Now().Add(-since)
	if err := os.Chtimes(socket, started, started); err != nil {
		t.Fatal(err)
	}
	return unrequested{assembled(t, m, "kubernetes: {enabled: on}\n")}
}

func texts(all []usage.Grant) (out []string) {
	for _, g := range all {
		out = append(out, fmt.Sprintf("%s to %s %s/%s", g.Unit, g.PodUID, g.Namespace, g.Pod))
	}
	slices.Sort(out)
	return out
}

// TestWhoWasGiven: the kubelet's checkpoint says it at once, and the kubelet if it is asked; a kubelet that has just
// started says too little.
func TestWhoWasGiven(t *testing.T) {
	def := &accel.Definition{Kind: "example-npu", Resource: "example.com/npu"}
	m := hosttest.New(t)
	a := usesKubelet(t, m, time.Hour)
	if got, problem := a.recorded(def); len(got) > 0 || problem != nil {
		t.Errorf("without a checkpoint %v, %v", got, problem)
	}
	const checkpoint = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
	m.File(checkpoint, `{"Data":{"PodDeviceEntries":[
		{"PodUID":"u-1","ContainerName":"init","ResourceName":"example.com/npu","DeviceIDs":{"0":["0000:02:00.0::1"]},"AllocResp":""},
		{"PodUID":"u-2","ContainerName":"main","ResourceName":"other.com/x","DeviceIDs":{"0":["GPU-1"]},"AllocResp":""}
		],"RegisteredDevices":{}},"Checksum":1}`)
	got, problem := a.recorded(def)
	if diff := cmp.Diff([]string{"0000:02:00.0 to u-1 /", "GPU-1 to u-2 /"}, texts(got)); diff != "" || problem != nil {
		t.Errorf("%v (-want +got):\n%s", problem, diff)
	}
	got, problem = a.asked(t.Context(), def)
	if diff := cmp.Diff([]string{"0000:01:00.0 to  team/listed"}, texts(got)); diff != "" || problem != nil {
		t.Errorf("%v (-want +got):\n%s", problem, diff)
	}
	m.File(checkpoint, "damaged")
	if got, problem := a.recorded(def); got != nil || problem == nil {
		t.Errorf("of a damaged checkpoint %v", got)
	}
	m.Remove(checkpoint)
	m.Dir("/var/lib/acceld/dra/" + def.Kind) // an earlier agent has prepared claims
	if !dra.Served(m.Host, a.Config.StateDir, def) {
		t.Fatal("no claims")
	}
	if got, problem := a.asked(t.Context(), def); got != nil || problem == nil || !strings.Contains(problem.Message, "by claims") {
		t.Errorf("with claims that nobody has read: %v, %v", got, problem)
	}
	young := usesKubelet(t, hosttest.New(t), time.Second)
	if got, problem := young.asked(t.Context(), def); got != nil || problem == nil {
		t.Errorf("of a kubelet that has just started: %v", got)
	}
}

// TestWhoMayUse: processes of acceld, daemons of drivers and those that are named may have every device open.
func TestWhoMayUse(t *testing.T) {
	m := hosttest.New(t)
	o := unrequested{assembled(t, m, "")}.options()
	stat := func(pid, parent int, cgroup string) {
		m.File(fmt.Sprintf("/proc/%d/stat", pid), fmt.Sprintf("%d (x) S %d%s 100", pid, parent, strings.Repeat(" 0", 17)))
		m.File(fmt.Sprintf("/proc/%d/cgroup", pid), cgroup)
		m.Link(fmt.Sprintf("/proc/%d/fd/3", pid), "/dev/npu0")
		m.File(fmt.Sprintf("/proc/%d/comm", pid), "acceld\n")
	}
	stat(os.Getpid(), 1, "0::/\n")
	stat(os.Getpid()+1, os.Getpid(), "0::/\n")
	stat(os.Getpid()+2, 1, "0::/system.slice/acceld-companion-example-npu.state.service\n")
	stat(os.Getpid()+3, 1, "0::/system.slice/watch.service\n")
	stat(os.Getpid()+4, 1, "0::/system.slice/acceld.service\n")
	def := &accel.Definition{Kind: "example-npu", Unrequested: &accel.Unrequested{Beside: []string{"watch.service"}}}
	all, err := o.Openers(t.Context(), []accel.DeviceNode{{Path: "/dev/npu0"}}, func(string) bool { return false })
	if err != nil || len(all) != 5 {
		t.Fatalf("%+v, %v", all, err)
	}
	var got []int
	for _, x := range all {
		if !o.Expected(def, x) {
			got = append(got, x.PID-os.Getpid())
		}
	}
	if diff := cmp.Diff([]int{4}, got); diff != "" {
		t.Errorf("who may not (-want +got):\n%s", diff)
	}
}

func TestPodName(t *testing.T) {
	m := hosttest.New(t)
	o := unrequested{assembled(t, m, "")}.options()
	m.Dir("/var/log/pods/team_train-7_u-1/main")
	m.Dir("/var/log/pods/team_train-8_u-11")
	m.Dir("/var/log/pods/te_am_train-8_u-2")
	for uid, want := range map[string]string{"u-1": "team/train-7", "u-2": "/", "u-3": "/"} {
		if namespace, pod := o.Name(uid); namespace+"/"+pod != want {
			t.Errorf("%s: %s/%s", uid, namespace, pod)
		}
	}
}

// TestContainerName: a container has the name that the kubelet gave to the link to its log.
func TestContainerName(t *testing.T) {
	m := hosttest.New(t)
	o := unrequested{assembled(t, m, "")}.options()
	id := strings.Repeat("0f", 32)
	m.Link("/var/log/containers/train-7_team_main-"+id+".log", "/var/log/pods/team_train-7_u-1/main/0.log")
	m.Link("/var/log/containers/a_b_c_d-"+strings.Repeat("0e", 32)+".log", "/x")
	for of, want := range map[string]string{id: "main", strings.Repeat("0e", 32): "", strings.Repeat("0d", 32): ""} {
		if got := o.Container(of); got != want {
			t.Errorf("%s: %q", of, got)
		}
	}
}

// TestOpenFiles: what the kernel says of open files is read of the nodes that somebody asks about.
func TestOpenFiles(t *testing.T) {
	m := hosttest.New(t)
	o := unrequested{assembled(t, m, "")}.options()
	m.File("/proc/20/stat", "20 (x) S 1"+strings.Repeat(" 0", 17)+" 100")
	m.File("/proc/20/cgroup", "0::/system.slice/x.service\n")
	m.Link("/proc/20/fd/3", "/dev/npu0")
	m.Link("/proc/20/fd/4", "/dev/npu1")
	m.File("/proc/20/fdinfo/3", "npu-client-id: 1\n")
	m.File("/proc/20/fdinfo/4", "npu-client-id: 2\n")
	all, err := o.Openers(t.Context(), []accel.DeviceNode{{Path: "/dev/npu0"}, {Path: "/dev/npu1"}},
		func(node string) bool { return node == "/dev/npu1" })
	want := []host.OpenFile{{Node: "/dev/npu1", Info: "npu-client-id: 2"}}
	if err != nil || len(all) != 1 || !slices.Equal(all[0].Files, want) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestUseIsShown: what the watcher knows is in the snapshot of the devices.
func TestUseIsShown(t *testing.T) {
	a := assembled(t, hosttest.New(t), "")
	o := unrequested{a}.options()
	m := accel.Machine{
		Taken: time.Now(), Want: accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"example-npu": {Kind: "example-npu"}}},
		Have: map[string]accel.Have{"example-npu": {Accelerators: []accel.Accelerator{
			{ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/npu0"}}},
		}}},
	}
	o.Follow = func() (accel.Machine, <-chan struct{}) { return m, nil }
	o.Openers = func(context.Context, []accel.DeviceNode, func(string) bool) ([]host.Opener, error) {
		return nil, context.DeadlineExceeded
	}
	synctest.Test(t, func(t *testing.T) {
		looked := make(chan struct{})
		o.Changed = func() { close(looked) }
		a.usage = usage.New(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.usage.Run(ctx) }()
		<-looked
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		accs := a.usage.Enrich(m.Want.Kinds["example-npu"], slices.Clone(m.Have["example-npu"].Accelerators))
		if h := accs[0].Unrequested; h == nil || h.Unknown != context.DeadlineExceeded.Error() {
			t.Errorf("%+v", h)
		}
	})
	a.usage = usage.New(o)
	if accs := a.probes().Enrich(m.Want.Kinds["example-npu"], m.Have["example-npu"].Accelerators); accs[0].Unrequested != nil {
		t.Errorf("nobody has looked, and it says %+v", accs[0].Unrequested)
	}
}
