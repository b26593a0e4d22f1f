package growth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/bench/usage"
	"github.com/acceld/acceld/test/fleet"
)

// TestMain is the server that only decodes and encodes when it is started as one.
func TestMain(m *testing.M) {
	if address := os.Getenv("ACCELD_FLOOR"); address != "" {
		fmt.Fprintln(os.Stderr, serveFloor(address, os.Getenv("ACCELD_FLOOR_CERT"), os.Getenv("ACCELD_FLOOR_KEY")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveFloor decodes each request and encodes the answer that it was given before, with encoding/json alone.
func serveFloor(address, cert, key string) error {
	pem, err := os.ReadFile(cert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	var primed sync.Map
	mux := http.NewServeMux()
	mux.HandleFunc("/prime/{verb}", func(w http.ResponseWriter, r *http.Request) {
		answer, err := prime(r.PathValue("verb"), r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		primed.Store(r.PathValue("verb"), answer)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var args filterArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, _ := primed.Load(path.Base(r.URL.Path))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	s := &http.Server{Addr: address, Handler: mux, TLSConfig: &tls.Config{
		ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
	}}
	return s.ListenAndServeTLS(cert, key)
}

// address is a free one.
func (r *rig) address() string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(r.t, err)
	defer l.Close()
	return l.Addr().String()
}

// client asks as the scheduler does: over TLS with its certificate, on one connection that stays open.
func (r *rig) httpClient() *http.Client {
	r.t.Helper()
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	check(r.t, err)
	pem, err := os.ReadFile(r.cert)
	check(r.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}
}

// begin starts a program that ends with the test; its words are shown when the test fails.
func (r *rig) begin(cmd *exec.Cmd) (stop func()) {
	r.t.Helper()
	var words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &words, &words
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(r.t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait() // the signal is its error
		if text := words.Bytes(); r.t.Failed() {
			r.t.Logf("%s: …%s", cmd.Path, text[max(0, len(text)-4000):])
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// floor starts the server that only decodes and encodes.
func (r *rig) floor() *server {
	r.t.Helper()
	at := r.address()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ACCELD_FLOOR="+at, "ACCELD_FLOOR_CERT="+r.cert, "ACCELD_FLOOR_KEY="+r.key)
	r.begin(cmd)
	return &server{name: "decode and encode", url: "https://" + at + "/", pid: cmd.Process.Pid, http: r.httpClient()}
}

// program is the controller's name.
const program = "acceld-controller"

// lease is the default of the configuration.
const lease = 15 * time.Second

// controller is a running one.
type controller struct {
	*server
	r       *rig
	cmd     *exec.Cmd
	metrics string // the URL of its metrics
	began   time.Time
	stop    func()
}

func (r *rig) controller() *controller {
	r.t.Helper()
	at, watched := r.address(), r.address()
	config := r.write("controller.yaml", fmt.Sprintf(`listen: %q
watched: %q
tls: {cert: %q, key: %q, clientCA: %q}
resources: {prefix: %s, cards: [shares]}
lease: {seconds: %.0f}
`, at, watched, r.cert, r.key, r.cert, fleet.Prefix, lease.Seconds()))
	c := &controller{
		server: &server{name: program, url: "https://" + at + "/scheduler/", http: r.httpClient()}, r: r,
		cmd:     exec.Command(r.program, "--config="+config, "--kubeconfig="+r.kubeconfig),
		metrics: "http://" + watched + "/metrics",
	}
	c.began = time.Now()
	c.stop = r.begin(c.cmd)
	c.pid = c.cmd.Process.Pid
	return c
}

// memory is what is resident and was at most, in MB.
func (c *controller) memory() (now, most float64) {
	c.r.t.Helper()
	now, most, err := usage.Memory(c.pid)
	check(c.r.t, err)
	return now / 1e6, most / 1e6
}

// file is the part of memory that holds pages of the program, in MB.
func (c *controller) file() float64 {
	c.r.t.Helper()
	mb, err := usage.FileMemory(c.pid)
	check(c.r.t, err)
	return mb / 1e6
}

// scraping is how often Prometheus reads the metrics.
const scraping = 15 * time.Second

// scraped reads the metrics as Prometheus does, until the returned function is called.
func (c *controller) scraped() (stop func()) {
	c.r.t.Helper()
	ctx, cancel := context.WithCancel(c.r.t.Context())
	done := make(chan error, 1)
	go func() {
		for {
			answer, err := http.Get(c.metrics)
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				err = errors.Join(err, answer.Body.Close())
			}
			if err != nil {
				done <- err
				return
			}
			select {
			case <-time.After(scraping):
			case <-ctx.Done():
				done <- nil
				return
			}
		}
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			c.r.t.Errorf("cannot read the metrics: %v", err)
		}
	}
}

// until waits for something that happens within minutes of the start, and returns how long after the start it did.
func (c *controller) until(what string, done func() bool) time.Duration {
	c.r.t.Helper()
	for !done() {
		if time.Since(c.began) > 5*time.Minute {
			c.r.t.Fatalf("%s: not after 5 minutes", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(c.began)
}

// firstRight asks about some nodes until there is an answer, and then about all n. An answer that is not the model's
// fails the test: what the controller does not know yet, it must not answer.
func (c *controller) firstRight(n int) time.Duration {
	c.r.t.Helper()
	var some []int
	for i := 0; i < n; i += max(1, n/50) {
		some = append(some, i)
	}
	ask := func(nodes []int) bool {
		var names []string
		for _, i := range nodes {
			names = append(names, fleet.WholeName(i))
		}
		status, answer, err := c.ask("filter", question(c.r.t, middle, names))
		if err != nil || status != http.StatusOK {
			return false
		}
		var got filterResult
		if err := json.Unmarshal(answer, &got); err != nil || !got.right(nodes, middle) {
			c.r.t.Fatalf("a wrong answer about %d nodes: %v, %.500s", len(nodes), err, answer)
		}
		return true
	}
	return c.until("the first right answer", func() bool { return ask(some) && ask(upTo(n)) })
}

// precede runs a controller before those that are measured, so that none of them is the first of its cluster: while
// nobody has ever led, the first leader waits for as long as a lease lasts.
func (r *rig) precede() {
	r.t.Helper()
	c := r.controller()
	defer c.stop()
	took := c.until("an answer of the first controller of the cluster", func() bool {
		status, _, err := c.ask("filter", question(r.t, middle, []string{}))
		return err == nil && status == http.StatusOK
	})
	r.t.Logf("the first controller of the cluster answers after %.1f s, a lease of %v included", took.Seconds(), lease)
}

// policed waits until the policy counts n nodes.
func (c *controller) policed(n int) time.Duration {
	c.r.t.Helper()
	return c.until("the status of the policy", func() bool {
		text, err := c.r.client.RESTClient().Get().AbsPath("/apis/acceld.dev/v1alpha1/acceleratorpolicies/fleet").
			SetHeader("Accept", "application/json").DoRaw(context.Background())
		var p struct {
			Status struct{ Nodes struct{ Matched, Ready int } }
		}
		if err != nil || json.Unmarshal(text, &p) != nil {
			return false
		}
		return p.Status.Nodes.Matched == n && p.Status.Nodes.Ready == n
	})
}

// wholeNodes is what a scheduler is told that sends whole nodes instead of names.
func (c *controller) wholeNodes() string {
	c.r.t.Helper()
	args := filterArgs{Pod: asking(middle)}
	args.Nodes = &corev1.NodeList{Items: []corev1.Node{*fleet.WholeNode(0)}}
	status, answer, err := c.ask("filter", encoded(c.r.t, args))
	check(c.r.t, err)
	var got filterResult
	if err := json.Unmarshal(answer, &got); err != nil || got.Error == "" || got.NodeNames != nil {
		c.r.t.Errorf("status %d, %v: no refusal: %.300s", status, err, answer)
	}
	return "refused: " + got.Error
}
