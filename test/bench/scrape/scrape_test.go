// Package scrape measures what a scrape costs, with few and with many devices, while a day's pods come and go, beside
// node_exporter in the same run. Figures and ratios are printed; only that memory does not grow with pods that have
// ended is asserted.
package scrape

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/test/bench/usage"
)

const (
	// scrapes is how often each contender is scraped; they take turns, so that a noisy moment hits all alike.
	scrapes = 600
	// lives is how many pods there are in a day on 64 devices, each of them for ten minutes.
	lives = 64 * 24 * 6
	// churn is how long that day takes here.
	churn = 90 * time.Second
)

// contender is a process that is scraped.
type contender struct {
	name string
	url  string
	pid  int

	took   []time.Duration
	series int
	bytes  int
	cpu    time.Duration
	rss    [2]int // KiB, before and after the day
}

func TestScrapeBesideNodeExporter(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	dir := t.TempDir()
	ours, peer := filepath.Join(dir, "ours"), filepath.Join(dir, "node_exporter")
	build(t, ".", ours, "./cmd")
	build(t, "../../vm/parts/nodeexporter", peer, "github.com/prometheus/node_exporter")
	var all []*contender
	var kubelets []*kubelet
	for _, devices := range []int{8, 64} {
		k := newKubelet(t, devices)
		kubelets = append(kubelets, k)
		address := free(t)
		all = append(all, start(t, fmt.Sprintf("acceld, %d devices", devices), "http://"+address+"/metrics", ours,
			"-devices", fmt.Sprint(devices), "-root", k.root, "-listen", address))
	}
	address := free(t)
	all = append(all, start(t, "node_exporter", "http://"+address+"/metrics", peer, "--web.listen-address="+address,
		"--log.level=error"))
	measure(t, all, scrapes/10) // warm
	for _, c := range all {
		c.took, c.cpu, c.rss[0] = nil, 0, rss(t, c.pid)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), churn)
	defer cancel()
	for _, k := range kubelets {
		go k.day(ctx)
	}
	measure(t, all, scrapes)
	<-ctx.Done()
	for _, c := range all {
		c.rss[1] = rss(t, c.pid)
	}
	report(t, all, kubelets, time.Since(begin))
}

// report prints the figures, each contender beside the last.
func report(t *testing.T, all []*contender, kubelets []*kubelet, took time.Duration) {
	t.Helper()
	peer := all[len(all)-1]
	t.Logf("%d and %d pods lived in %.0f s", kubelets[0].lived.Load(), kubelets[1].lived.Load(), took.Seconds())
	t.Logf("%-20s %7s %9s %9s %9s %9s %9s %9s   beside node_exporter: p50, cpu, RSS", "", "series", "KiB", "p50 ms",
		"p99 ms", "cpu ms", "RSS MiB", "grown KiB")
	for _, c := range all {
		p50, p99, cpu := c.quantile(0.5), c.quantile(0.99), c.cpu.Seconds()*1000/float64(len(c.took))
		t.Logf("%-20s %7d %9.0f %9.2f %9.2f %9.2f %9.1f %9d   %.2f %.2f %.2f", c.name, c.series, float64(c.bytes)/1024,
			p50, p99, cpu,
			float64(c.rss[1])/1024, c.rss[1]-c.rss[0], p50/peer.quantile(0.5),
			cpu/(peer.cpu.Seconds()*1000/float64(len(peer.took))), float64(c.rss[1])/float64(peer.rss[1]))
		if c != peer && c.rss[1]-c.rss[0] > 8<<10 {
			t.Errorf("%s has grown by %d KiB with pods that have ended", c.name, c.rss[1]-c.rss[0])
		}
	}
}

// quantile is a quantile of the times of a scrape, milliseconds.
func (c *contender) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(c.took))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Seconds() * 1000
}

// measure scrapes all in turns, as Prometheus does: one connection each, compressed.
func measure(t *testing.T, all []*contender, times int) {
	t.Helper()
	before := make([]time.Duration, len(all))
	for i, c := range all {
		before[i] = cpu(t, c.pid)
	}
	for range times {
		for _, c := range all {
			begin := time.Now()
			body := get(t, c.url)
			c.took = append(c.took, time.Since(begin))
			c.bytes, c.series = len(body), 0
			for line := range strings.Lines(body) {
				if !strings.HasPrefix(line, "#") {
					c.series++
				}
			}
		}
	}
	for i, c := range all {
		c.cpu = cpu(t, c.pid) - before[i]
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(body)
}

// cpu is the processor time of a process so far.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	used, err := usage.Processor(pid)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// rss is the resident memory of a process, KiB.
func rss(t *testing.T, pid int) int {
	t.Helper()
	now, _, err := usage.Memory(pid)
	if err != nil {
		t.Fatal(err)
	}
	return int(now / 1024)
}

func build(t *testing.T, dir, out, pkg string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", pkg, err, text)
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts a contender, which ends with the test, and waits until it answers.
func start(t *testing.T, name, url, program string, args ...string) *contender {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			return &contender{name: name, url: url, pid: cmd.Process.Pid}
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not answer", name)
		}
	}
}

// kubelet is a PodResources service whose pods come and go.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	root    string
	devices int
	lived   atomic.Int64
	pods    atomic.Pointer[[]string] // by device
}

func newKubelet(t *testing.T, devices int) *kubelet {
	t.Helper()
	root, err := os.MkdirTemp("", "sc") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	k := &kubelet{root: root, devices: devices}
	k.pods.Store(&[]string{})
	for _, dir := range []string{
		"var/lib/kubelet/pod-resources", "var/lib/kubelet/device-plugins",
		"var/lib/kubelet/pods", "var/log/pods",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(root, "var/lib/kubelet/pod-resources/kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return k
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse,
	error,
) {
	resp := &podresources.ListPodResourcesResponse{}
	for i, pod := range *k.pods.Load() {
		if pod != "" {
			resp.PodResources = append(resp.PodResources, &podresources.PodResources{
				Namespace: "ml", Name: pod,
				Containers: []*podresources.ContainerResources{{
					Name: "main", Devices: []*podresources.ContainerDevices{{
						ResourceName: "example.com/gpu",
						DeviceIds:    []string{fmt.Sprintf("0000:%02x:00.0", i+1)},
					}},
				}},
			})
		}
	}
	return resp, nil
}

// day lets a day's pods live, one after the other on each device, with what a kubelet leaves on the disk for each.
func (k *kubelet) day(ctx context.Context) {
	tick := time.NewTicker(churn / lives)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n := k.lived.Add(1)
		pods := make([]string, k.devices)
		copy(pods, *k.pods.Load())
		old := pods[i%k.devices]
		pods[i%k.devices] = fmt.Sprintf("train-%d", n)
		k.pods.Store(&pods)
		if old != "" {
			_ = os.Remove(k.file("var/log/pods", "ml_"+old+"_uid-of-"+old))
			_ = os.Remove(k.file("var/lib/kubelet/pods", "uid-of-"+old))
		}
		now := pods[i%k.devices]
		_ = os.Mkdir(k.file("var/lib/kubelet/pods", "uid-of-"+now), 0o755)
		_ = os.Mkdir(k.file("var/log/pods", "ml_"+now+"_uid-of-"+now), 0o755)
		_ = os.WriteFile(k.file("var/lib/kubelet/device-plugins", "kubelet_internal_checkpoint"), []byte("{}"), 0o600)
	}
}

func (k *kubelet) file(dir, name string) string { return filepath.Join(k.root, dir, name) }
