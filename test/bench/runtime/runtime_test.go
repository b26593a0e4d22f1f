// Package runtime measures what a pass of the agent's loop costs at the container runtime: every kind is checked, those
// without a device too, and the configuration is that of the host, not of a kind.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/runtime/engine"
)

const (
	rounds = 201
	kinds  = 11 // as many as acceld brings
)

// runtimes are container runtimes with a configuration as long as a distribution's.
func runtimes() map[string]accel.ContainerEngine {
	return map[string]accel.ContainerEngine{
		"cri-o": {
			Name: "cri-o", Endpoint: "unix:///run/crio/crio.sock", Config: "/etc/crio/crio.conf", PID: os.Getpid(),
		},
		"containerd": {
			Name: "containerd", Version: "2.1.4", Config: "/etc/containerd/config.toml", PID: os.Getpid(),
		},
	}
}

// configuration returns a valid configuration of a runtime with about 250 keys.
func configuration(name string) string {
	var b strings.Builder
	if name == "containerd" {
		b.WriteString("version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\n" +
			"cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']\n")
		for i := range 60 {
			fmt.Fprintf(&b, "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.r%d]\nruntime_type = "+
				"'io.containerd.runc.v2'\nprivileged_without_host_devices = false\nsnapshotter = ''\n", i)
		}
		return b.String()
	}
	b.WriteString("[crio.runtime]\nhooks_dir = ['/usr/share/containers/oci/hooks.d']\n" +
		"cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']\n")
	for i := range 60 {
		fmt.Fprintf(&b, "[crio.runtime.runtimes.r%d]\nruntime_type = 'oci'\nruntime_path = '/usr/bin/crun'\n"+
			"allowed_annotations = ['io.containers.trace-syscall']\n", i)
	}
	return b.String()
}

// TestPassAgainstOneRead compares a pass over all kinds with what no agent can do without: reading the configuration
// once, and for CRI-O asking for it once.
func TestPassAgainstOneRead(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	for name, e := range runtimes() {
		t.Run(name, func(t *testing.T) { measure(t, e) })
	}
}

func measure(t *testing.T, e accel.ContainerEngine) {
	root, err := os.MkdirTemp("", "acceld") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	text := configuration(e.Name)
	if err := errors.Join(
		h.MkdirAll(filepath.Dir(e.Config), 0o755), h.WriteFile(e.Config, []byte(text), 0o644),
		h.MkdirAll("/run/crio", 0o755), h.MkdirAll("/usr/share/containers/oci/hooks.d", 0o755),
	); err != nil {
		t.Fatal(err)
	}
	asked := serve(t, filepath.Join(root, "run/crio/crio.sock"), text)

	var defs []*accel.Definition
	for i := range kinds {
		kind := fmt.Sprint("kind", i)
		defs = append(defs, &accel.Definition{Kind: kind, Resource: "example.com/" + kind})
	}
	accs := []accel.Accelerator{{
		ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/kind0", Major: 240, Minor: 0}},
		Health: accel.Health{State: accel.Healthy},
	}}
	r := runtime.New(h, runtime.Options{Engine: e})
	want := accel.Want{CDI: true}
	if have, p := r.Apply(defs[0], accs, want); p != nil || !have.Applied {
		t.Fatalf("%+v %v", have, p)
	}

	var passes, reads []time.Duration
	before := asked()
	for range rounds {
		began := time.Now()
		for i, def := range defs {
			of := accs
			if i > 0 {
				of = nil
			}
			if have, p := r.Check(def, of, want); p != nil || !have.Applied {
				t.Fatalf("%s: %+v %v", def.Kind, have, p)
			}
		}
		passes = append(passes, time.Since(began))
		between := asked()
		began = time.Now()
		if _, p := engine.Read(h, e); p != nil {
			t.Fatal(p)
		}
		if e.Name == "cri-o" {
			ask(t, filepath.Join(root, "run/crio/crio.sock"))
		}
		reads = append(reads, time.Since(began))
		before += asked() - between // that was not the agent
	}
	pass, read := median(passes), median(reads)
	t.Logf("%d kinds: %v; the configuration read once: %v; ratio %.2f; CRI-O asked %d times in %d passes", kinds, pass,
		read, pass.Seconds()/read.Seconds(), asked()-before, rounds)
	if asked() != before {
		t.Error("a pass asks CRI-O for what it has said before")
	}
	if pass > kinds*read {
		t.Errorf("a pass costs as much as reading the configuration for each kind: %v, %v once", pass, read)
	}
}

// serve answers as CRI-O does when it is asked for its configuration, and returns how often it was asked.
func serve(t *testing.T, socket, text string) func() int {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan int, 1)
	asked <- 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- 1 + <-asked
		_, _ = w.Write([]byte(text))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return func() int {
		n := <-asked
		asked <- n
		return n
	}
}

func ask(t *testing.T, socket string) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	answer, err := client.Get("http://crio/config")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}
