package agent

import (
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/detect"
)

// A file that comes and goes with every pod does not wake the loop; a file that a step reads or wrote does.
func TestRoutine(t *testing.T) {
	for name, want := range map[string]bool{
		"/var/lib/kubelet/allocated_pods_state":                       true,
		"/var/lib/kubelet/.dra_manager_state1234":                     true,
		"/var/lib/kubelet/config.yaml":                                false,
		"/var/lib/kubelet/kubeadm-flags.env":                          false,
		"/var/lib/kubelet/device-plugins":                             false,
		"/var/lib/kubelet":                                            false,
		"/var/run/cdi/acceld-claim-qemu-edu.acceld.dev-8f14e45f.json": true,
		"/var/run/cdi/.acceld-0123456789abcdef.tmp":                   true,
		"/var/run/cdi/qemu.org-edu.json":                              false,
		"/var/run/cdi":                                                false,
		"/dev/edu0":                                                   false,
		"/lib/modules/6.1.0-47-amd64/modules.dep":                     false,
	} {
		if got := routine(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A container runtime that is installed later is noticed when it creates its socket. From then on, changes of its
// files are noticed too.
func TestEngineAppears(t *testing.T) {
	root, err := os.MkdirTemp("", "watch") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	o := options(root, filepath.Join(t.TempDir(), "config.yaml"))
	save(t, o.ConfigFile, "logLevel: error\n")
	s, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	a := bare(t, o, s)
	look := func() accel.ContainerEngine { e, _ := detect.Engine(s.Host); return e }
	var looks atomic.Int32
	a.loop = loop.New(loop.Options{
		Log: s.Log, SampleEvery: time.Hour, Resync: time.Hour,
		Probes:  loop.Probes{Facts: func() accel.Facts { looks.Add(1); return accel.Facts{Runtime: look()} }},
		Effects: loop.Effects{Publish: func(m accel.Machine) { a.watcher.see(m.Facts) }},
	})
	if err := a.watcher.followSteps(a.ctx, s.Kinds, accel.Facts{}); err != nil {
		t.Fatal(err)
	}
	follow(t, a)
	<-a.loop.Ready()
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s is not seen", what)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "var/run/crio"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(root, "var/run/crio/crio.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil { // nothing may wait for an answer
		t.Fatal(err)
	}
	eventually("the socket", func() bool { return a.loop.Machine().Facts.Runtime.Name == "cri-o" })
	if err := os.MkdirAll(filepath.Join(root, "etc/crio"), 0o755); err != nil {
		t.Fatal(err)
	}
	eventually("a file of the runtime", func() bool { // the watches are set again concurrently
		time.Sleep(100 * time.Millisecond) // let the events of the socket pass
		before := looks.Load()
		if err := os.WriteFile(filepath.Join(root, "etc/crio/crio.conf"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		return looks.Load() > before
	})
}
