package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/exporter/holders"
	"github.com/acceld/acceld/host"
)

// follower follows the pods of the kubelet on a machine whose directory of logs is not this one's.
func follower(t *testing.T) (f *holders.Follower, logs string) {
	t.Helper()
	root, err := os.MkdirTemp("", "ho") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	seen, logs := filepath.Join(root, "var/lib/kubelet"), filepath.Join(root, "var/log/pods")
	for _, dir := range []string{seen, logs, "/var/lib/kubelet"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("/var/lib/kubelet", seen, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(seen, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	f = holders.New(holders.Options{
		Host: h, Root: func() string { return "/var/lib/kubelet" }, Active: func() bool { return true },
		Device:  func(resource, id string) (string, bool) { return deviceplugin.DeviceOf(id), resource == thing },
		Claimed: func(string, string) (string, bool) { return "", false }, Claims: func() []holders.Hold { return nil },
	})
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
	return f, logs
}

// held is who is shown to hold devices, with the UIDs.
func held(f *holders.Follower) string {
	text := ""
	for id, all := range f.Holdings().By {
		for _, h := range all {
			text += fmt.Sprintf("%s: %s/%s/%s %s\n", id, h.Namespace, h.Pod, h.Container, h.UID)
		}
	}
	return text
}

// TestHolders: a pod is shown from soon after its admission until soon after its end, and is the same over restarts of
// the kubelet, restarts of the plugin, and while the kubelet's limit refuses to answer.
func TestHolders(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	p := startPlugin()
	defer func() { p.stop() }()
	whole := func() bool { return k.Allocatable(thing) == 2 && p.right() }
	wait(t, "2 devices", whole)
	f, logs := follower(t)
	admit := func(name string) {
		t.Helper()
		began := time.Now()
		if err := k.Admit(name, thing, 1); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(logs, "test_"+name+"_uid-of-"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		wait(t, name+" to be shown", func() bool { return len(f.Holdings().By) == 1 })
		t.Logf("admitted -> shown %v", time.Since(began))
	}
	admit("first")
	pods.End("first")
	began := time.Now()
	for len(f.Holdings().By) > 0 {
		if time.Since(began) > 25*time.Second {
			t.Fatalf("a pod that has ended is shown: %s", held(f))
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("ended -> shown no more %v", time.Since(began))
	admit("second")
	want := held(f)
	if want == "" || f.Holdings().By[firstOf(f)][0].UID != "uid-of-second" {
		t.Fatalf("shown: %q", want)
	}
	same := func(what string, d time.Duration) {
		t.Helper()
		for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			if now := held(f); now != want {
				t.Fatalf("%s: shown is %q, before %q", what, now, want)
			}
		}
	}
	for i := range *restarts {
		k.Stop()
		same("the kubelet is away", 20*time.Millisecond)
		k = startKubelet(t, pods)
		same(fmt.Sprintf("restart %d of the kubelet", i), 20*time.Millisecond)
	}
	wait(t, "2 devices", whole)
	p.stop()
	p = startPlugin()
	wait(t, "2 devices", whole)
	same("the plugin has restarted", 20*time.Millisecond)
	refused := 0
	for range 400 {
		if _, err := resources(t).List(t.Context(), &podresourcesapi.ListPodResourcesRequest{}); err != nil {
			refused++
		}
		f.Poke()
		if now := held(f); now != want {
			t.Fatalf("while others ask: shown is %q, before %q", now, want)
		}
	}
	if refused == 0 {
		t.Error("the kubelet's limit was not met, so that nothing is known about it")
	}
	same("after that", 3*time.Second)
}

// firstOf is one of the devices that are held.
func firstOf(f *holders.Follower) string {
	for id := range f.Holdings().By {
		return id
	}
	return ""
}
