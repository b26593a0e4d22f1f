// Package bench measures what the scheduler waits for: filter of the controller's extender over mTLS on loopback, for
// nodes with eight cards, beside a responder that does nothing but decode the question and encode an answer of the same
// form. Three processes: the API server is in memory here and the load comes from here, one keep-alive connection and
// one request at a time, as the scheduler does it; the controller is its program. Nothing is asserted but that answers
// are right.
package bench

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/bench/usage"
	"github.com/acceld/acceld/test/fleet"
)

const (
	nodes = 5000
	cards = 8
	// others are pods without accelerators, in the second start.
	others = 60000
	// warm-up requests before those that count.
	warmup = 20
)

// TestMain is the responder when it is started as one.
func TestMain(m *testing.M) {
	if address := os.Getenv("ACCELD_FLOOR"); address != "" {
		fmt.Fprintln(os.Stderr, floor(address, os.Getenv("ACCELD_FLOOR_CERT"), os.Getenv("ACCELD_FLOOR_KEY")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// floor answers each question with all names as fitting, or all as not, as the path says.
func floor(address, cert, key string) error {
	pem, err := os.ReadFile(cert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args struct {
			Pod       *corev1.Pod
			NodeNames []string
		}
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := result{}
		if r.URL.Path == "/fits" {
			answer.NodeNames = args.NodeNames
		} else {
			answer.FailedNodes = make(map[string]string, len(args.NodeNames))
			for _, n := range args.NodeNames {
				answer.FailedNodes[n] = "not enough room on any one accelerator card"
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	server := &http.Server{Addr: address, Handler: handler, TLSConfig: &tls.Config{
		ClientCAs:  roots,
		ClientAuth: tls.RequireAndVerifyClientCert,
	}}
	return server.ListenAndServeTLS(cert, key)
}

// result is ExtenderFilterResult as the scheduler decodes it.
type result struct {
	NodeNames                               []string
	FailedNodes, FailedAndUnresolvableNodes map[string]string
	Error                                   string
}

// contender is one server.
type contender struct {
	name string
	cmd  *exec.Cmd
	url  map[string]string // by case
}

// cpu is the time that the process has run.
func (c *contender) cpu(t *testing.T) time.Duration {
	used, err := usage.Processor(c.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// memory is what is resident and was at most, in MB.
func (c *contender) memory(t *testing.T) (now, most float64) {
	now, most, err := usage.Memory(c.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return now / 1e6, most / 1e6
}

// rig is what all contenders share.
type rig struct {
	dir, cert, key string
	client         *http.Client
}

func (r *rig) ask(url string, body []byte, into any) (int, error) {
	answer, err := r.client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}
	return answer.StatusCode, json.NewDecoder(answer.Body).Decode(into)
}

func address(t *testing.T) string {
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *rig) start(t *testing.T, c *contender, env ...string) {
	c.cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	c.cmd.Stderr = &errs
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(t, c, &errs) })
}

func (r *rig) stop(t *testing.T, c *contender, errs *bytes.Buffer) {
	if c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Wait()
	if t.Failed() {
		t.Logf("%s: %s", c.name, errs)
	}
}

func newRig(t *testing.T) *rig {
	r := &rig{dir: t.TempDir()}
	var err error
	if r.cert, r.key, err = fleet.Certificate(r.dir, "both"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(r.cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	r.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		MaxIdleConnsPerHost: 16, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}
	return r
}

// controller builds and starts the program, and returns when its first right answer came.
func (r *rig) controller(t *testing.T, api, program string, question []byte) (*contender, time.Duration) {
	listen, watched := address(t), address(t)
	config := fmt.Sprintf(
		"listen: %q\nwatched: %q\ntls: {cert: %q, key: %q, clientCA: %q}\nresources: {prefix: %s, cards: [shares]}\n",
		listen, watched, r.cert, r.key, r.cert, fleet.Prefix)
	if err := os.WriteFile(r.dir+"/config.yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fleet.Kubeconfig(r.dir+"/kubeconfig", api); err != nil {
		t.Fatal(err)
	}
	c := &contender{name: "acceld-controller", cmd: exec.Command(program, "--config", r.dir+"/config.yaml",
		"--kubeconfig", r.dir+"/kubeconfig")}
	began := time.Now()
	r.start(t, c)
	url := "https://" + listen + "/scheduler/"
	c.url = map[string]string{"A": url + "filter", "B": url + "filter", "bind": url + "bind"}
	for time.Since(began) < time.Minute {
		var got result
		status, err := r.ask(c.url["B"], question, &got)
		if err != nil || status != http.StatusOK {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if len(got.NodeNames) > 0 || len(got.FailedNodes) == 0 {
			t.Fatalf("the first answer is wrong: %d nodes pass", len(got.NodeNames))
		}
		return c, time.Since(began)
	}
	t.Fatal("the controller has no answer within a minute")
	return nil, 0
}

// question is what the scheduler asks about one pod and the first k nodes.
func question(t *testing.T, p *corev1.Pod, k int) []byte {
	names := make([]string, k)
	for i := range names {
		names[i] = nodeName(i)
	}
	b, err := json.Marshal(map[string]any{"Pod": p, "NodeNames": names})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d.cluster.example", i) }

func asking(name, cores string) *corev1.Pod {
	return fleet.Pod(name, "", "", fleet.Amounts{"shares": "1", "millicores": cores, "memory": "16Gi"})
}

func TestFilter(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	r := newRig(t)
	program := filepath.Join(r.dir, "acceld-controller")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program,
		"../../../cmd/acceld-controller").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	api := newFleet()
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Cut()
		server.CloseClientConnections()
		server.Close()
	})
	// Each card has a pod with 600 of its 1000 millicores: 300 more fit on the first one, 500 on none.
	fits, not := asking("fits", "300"), asking("not", "500")
	ours, first := r.controller(t, server.URL, program, question(t, not, 500))
	lists, _ := api.Counts()
	rss, peak := ours.memory(t)
	t.Logf(
		"%d nodes with %d cards and a pod on each card: first right answer %v after the start, with %d lists; RSS %.0f MB, peak %.0f MB",
		nodes, cards, first.Round(time.Millisecond), lists, rss, peak)
	least := &contender{name: "floor", cmd: exec.Command(os.Args[0])}
	at := address(t)
	r.start(t, least, "ACCELD_FLOOR="+at, "ACCELD_FLOOR_CERT="+r.cert, "ACCELD_FLOOR_KEY="+r.key)
	least.url = map[string]string{"A": "https://" + at + "/fits", "B": "https://" + at + "/not"}
	t.Log("   K case          p50 ms        p99 ms     CPU ms/request   (acceld-controller/floor, ratio)")
	for _, k := range []int{100, 500, 1000, 5000} {
		for _, c := range []string{"A", "B"} {
			pod := map[string]*corev1.Pod{"A": fits, "B": not}[c]
			r.compare(t, k, c, question(t, pod, k), ours, least)
		}
	}
	rss, peak = ours.memory(t)
	t.Logf("after that: RSS %.0f MB, peak %.0f MB", rss, peak)
	r.binds(t, api, ours)
	r.stop(t, ours, &bytes.Buffer{})
	for i := range others {
		api.SetPod(other(i))
	}
	ours, first = r.controller(t, server.URL, program, question(t, not, 500))
	rss, peak = ours.memory(t)
	t.Logf("with %d other pods: first right answer %v after the start; RSS %.0f MB, peak %.0f MB", others,
		first.Round(time.Millisecond), rss, peak)
}

func newFleet() *fleet.Server {
	var all []*corev1.Node
	var pods []*corev1.Pod
	for i := range nodes {
		all = append(all, fleet.Node(nodeName(i), cards, fleet.Amounts{
			"shares": "80", "millicores": "8000",
			"memory": "512Gi",
		}))
		for c := range cards {
			pods = append(pods, fleet.Pod(fmt.Sprintf("job-%d-%d", i, c), nodeName(i), fmt.Sprint("card", c),
				fleet.Amounts{"shares": "1", "millicores": "600", "memory": "16Gi"}))
		}
	}
	return fleet.New(all, pods)
}

// other is a pod without accelerators.
func other(i int) *corev1.Pod {
	p := fleet.Pod(fmt.Sprint("other-", i), nodeName(i%nodes), "")
	p.Spec.Containers = []corev1.Container{{
		Name: "c", Image: "registry.example.com/some/image:v1.2.3",
		Args: []string{strings.Repeat("x", 500)},
	}}
	return p
}

// compare asks the contenders in turns.
func (r *rig) compare(t *testing.T, k int, which string, body []byte, all ...*contender) {
	requests := map[int]int{100: 300, 500: 200, 1000: 100, 5000: 40}[k]
	took, cpu := make([][]time.Duration, len(all)), make([]time.Duration, len(all))
	const turns = 4
	for turn := range turns {
		for i, c := range all {
			before := c.cpu(t)
			n := requests / turns
			if turn == 0 {
				n += warmup
			}
			for j := range n {
				began := time.Now()
				var got result
				status, err := r.ask(c.url[which], body, &got)
				if err != nil || status != http.StatusOK {
					t.Fatalf("%s: status %d, %v", c.name, status, err)
				}
				if want := map[string]int{"A": k}[which]; len(got.NodeNames) != want || len(got.FailedNodes) != k-want {
					t.Fatalf("%s: %d nodes pass, want %d", c.name, len(got.NodeNames), want)
				}
				if turn == 0 && j < warmup {
					before = c.cpu(t)
					continue
				}
				took[i] = append(took[i], time.Since(began))
			}
			cpu[i] += c.cpu(t) - before
		}
	}
	at := func(i int, q float64) float64 {
		slices.Sort(took[i])
		return float64(took[i][min(len(took[i])-1, int(q*float64(len(took[i]))))]) / 1e6
	}
	each := func(i int) float64 { return float64(cpu[i]) / 1e6 / float64(len(took[i])) }
	t.Logf("%4d  %s   %6.2f/%6.2f %.1f  %6.2f/%6.2f %.1f  %6.3f/%6.3f %.1f", k, which,
		at(0, .5), at(1, .5), at(0, .5)/at(1, .5), at(0, .99), at(1, .99), at(0, .99)/at(1, .99), each(0), each(1),
		each(0)/each(1))
}

// binds measures how many pods a second are bound while the API server takes 5 ms for each.
func (r *rig) binds(t *testing.T, api *fleet.Server, c *contender) {
	api.Delay = 5 * time.Millisecond
	number := 0
	for _, flight := range []int{1, 16} {
		const pods = 320
		var bodies [][]byte
		for range pods {
			number++
			p := asking(fmt.Sprint("bind-", number), "300")
			api.SetPod(p)
			b, err := json.Marshal(map[string]any{
				"PodName": p.Name, "PodNamespace": p.Namespace, "PodUID": p.UID,
				"Node": nodeName(number % nodes),
			})
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, b)
		}
		_, before := api.Counts()
		began := time.Now()
		var workers sync.WaitGroup
		for w := range flight {
			workers.Go(func() {
				for i := w; i < pods; i += flight {
					var got result
					if status, err := r.ask(c.url["bind"], bodies[i], &got); err != nil || status != http.StatusOK ||
						got.Error != "" {
						t.Errorf("bind: status %d, %v, %s", status, err, got.Error)
						return
					}
				}
			})
		}
		workers.Wait()
		took := time.Since(began)
		_, after := api.Counts()
		t.Logf("binds, %2d in flight, the pod read first: %.0f/s, %.1f writes each", flight, pods/took.Seconds(),
			float64(after-before)/pods)
	}
}
