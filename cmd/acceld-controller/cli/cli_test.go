package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/fleet"
)

// process is one running controller.
type process struct {
	scheduler, watched string
	client             *http.Client
	stop               context.CancelFunc
	ended              chan error
	log                *bytes.Buffer
}

// free returns an unused address.
func free(t *testing.T) string {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, api, identity string) *process {
	t.Helper()
	dir := t.TempDir()
	cert, key, err := fleet.Certificate(dir, "server")
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Kubeconfig(dir+"/kubeconfig", api); err != nil {
		t.Fatal(err)
	}
	r := &process{scheduler: free(t), watched: free(t), ended: make(chan error, 1), log: &bytes.Buffer{}}
	config := fmt.Sprintf(
		"listen: %q\nwatched: %q\ntls: {cert: %q, key: %q, clientCA: %q}\nresources: {prefix: %s, cards: [shares]}\n",
		r.scheduler, r.watched, cert, key, cert, fleet.Prefix)
	if err := os.WriteFile(dir+"/config.yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	r.client = &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}},
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	command := New(new(bool))
	command.SetArgs([]string{
		"--config", dir + "/config.yaml", "--kubeconfig", dir + "/kubeconfig", "--identity",
		identity,
	})
	command.SetErr(r.log)
	go func() { r.ended <- command.ExecuteContext(ctx) }()
	t.Cleanup(stop)
	return r
}

// await polls until the probe has this status.
func (r *process) await(t *testing.T, path string, want int) string {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get("http://" + r.watched + path)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = string(body); err == nil && answer.StatusCode == want {
			return last
		}
	}
	t.Fatalf("%s has no status %d: %s", path, want, last)
	return ""
}

func (r *process) post(t *testing.T, verb string, body any) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.client.Post("https://"+r.scheduler+"/scheduler/"+verb, "application/json", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (r *process) passes(t *testing.T, p *corev1.Pod) bool {
	status, body := r.post(t, "filter", map[string]any{"Pod": p, "NodeNames": []string{"n1"}})
	return status == http.StatusOK && strings.Contains(body, `"NodeNames":["n1"]`)
}

// answers waits until the replica is the leader and knows the cluster.
func (r *process) answers(t *testing.T, p *corev1.Pod) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		status, body := r.post(t, "filter", map[string]any{"Pod": p, "NodeNames": []string{"n1"}})
		if status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("status %d: %s", status, body)
		}
	}
}

func (r *process) bind(t *testing.T, p *corev1.Pod) string {
	status, body := r.post(t, "bind", map[string]any{
		"PodName": p.Name, "PodNamespace": p.Namespace, "PodUID": p.UID,
		"Node": "n1",
	})
	if status == http.StatusOK && body == `{"Error":""}` {
		return ""
	}
	return body
}

// TestTwoReplicas runs two replicas with an API server: two cards of 8 GB and pods of 5 GB. In between, the leader is
// ended and the watches are cut.
func TestTwoReplicas(t *testing.T) {
	pods := map[string]*corev1.Pod{}
	api := fleet.New([]*corev1.Node{fleet.Node("n1", 2, fleet.Amounts{"shares": "20", "memory": "16G"})}, nil)
	for _, name := range []string{"p1", "p2", "p3"} {
		pods[name] = fleet.Pod(name, "", "", fleet.Amounts{"shares": "1", "memory": "5G"})
		api.SetPod(pods[name])
	}
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Cut()
		server.CloseClientConnections()
		server.Close()
	})
	a := start(t, server.URL, "a")
	a.await(t, "/readyz", http.StatusOK)
	b := start(t, server.URL, "b")
	b.await(t, "/readyz", http.StatusOK) // it can become the leader at any time
	if page := b.await(t, "/metrics", http.StatusOK); !strings.Contains(page, "\nacceld_controller_leader 0\n") {
		t.Errorf("the second replica is the leader:\n%s", page)
	}
	b.await(t, "/healthz", http.StatusOK)
	if status, _ := b.post(t, "filter",
		map[string]any{"Pod": pods["p1"], "NodeNames": []string{"n1"}}); status != http.StatusServiceUnavailable {
		t.Errorf("a replica that does not lead answers with status %d", status)
	}
	if !a.passes(t, pods["p1"]) {
		t.Fatal("p1 does not pass")
	}
	_, before := api.Counts()
	if err := a.bind(t, pods["p1"]); err != "" {
		t.Fatal(err)
	}
	if _, after := api.Counts(); after != before+1 {
		t.Errorf("a binding took %d writes", after-before)
	}
	if got := api.Pod("default", "p1").Annotations; got["gas-container-cards"] != "card0" || got["gas-ts"] == "" {
		t.Errorf("annotations %v", got)
	}
	began := time.Now()
	a.stop()
	if err := <-a.ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
	if holder := api.Lease("acceld-system", "acceld-controller").Spec.HolderIdentity; *holder == "a" {
		t.Error("the lease was not given back")
	}
	b.answers(t, pods["p2"])
	if err := b.bind(t, pods["p2"]); err != "" {
		t.Fatal(err)
	}
	if got := api.Pod("default", "p2").Annotations["gas-container-cards"]; got != "card1" {
		t.Errorf("p2 got %q", got)
	}
	api.Cut()
	if b.passes(t, pods["p3"]) || b.bind(t, pods["p3"]) == "" || api.Pod("default", "p3").Spec.NodeName != "" {
		t.Error("p3 is placed, and there is no room for it")
	}
	api.DeletePod("default", "p1")
	for deadline := time.Now().Add(30 * time.Second); !b.passes(t, pods["p3"]); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a deletion while the watches were cut frees no card")
		}
	}
	if page := b.await(t, "/metrics", http.StatusOK); !strings.Contains(page, "\nacceld_controller_leader 1\n") {
		t.Errorf("the one replica is not the leader:\n%s", page)
	}
	b.stop()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Main([]string{"--colour"}, &out, &errs); code != 2 {
		t.Errorf("an unknown flag: %d", code)
	}
	if code := Main([]string{"--config", t.TempDir() + "/none", "--check"}, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "cannot read the configuration") {
		t.Errorf("no configuration: %d, %s", code, errs.String())
	}
}
