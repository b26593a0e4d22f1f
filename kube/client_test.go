package kube

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
)

// wire is the part of an API server that is needed to check the requests on the wire.
type wire struct {
	mu       sync.Mutex
	requests []string
	labels   map[string]any
	forbid   bool
	changed  chan struct{}
}

func (s *wire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	line := r.Method + " " + r.URL.Path
	for _, p := range []string{"fieldManager", "fieldSelector", "watch"} {
		if v := r.URL.Query().Get(p); v != "" {
			line += " " + p + "=" + v
		}
	}
	if r.Method != http.MethodGet {
		line += " " + r.Header.Get("Content-Type")
	}
	s.requests = append(s.requests, line)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`)
	case strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/default/events"):
		w.Write(body)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		select {
		case <-s.changed: // the watch ends
		case <-r.Context().Done():
		}
		s.mu.Lock()
	case r.Method == http.MethodPatch && s.forbid:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes \"node-a\" is forbidden: no rule","reason":"Forbidden","code":403}`)
	default:
		var patch struct {
			Metadata struct{ Labels map[string]any }
			Status   any
		}
		if len(body) > 0 {
			_ = json.Unmarshal(body, &patch)
		}
		for k, v := range patch.Metadata.Labels {
			s.labels[k] = v
		}
		json.NewEncoder(w).Encode(map[string]any{
			"kind": "Node", "apiVersion": "v1", "status": patch.Status,
			"metadata": map[string]any{
				"name": "node-a", "uid": "u",
				"resourceVersion": fmt.Sprint(10 + len(s.requests)), "labels": s.labels,
			},
		})
	}
}

func (s *wire) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.requests...)
}

func kubeconfig(t *testing.T, server string, cert []byte, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, base64.StdEncoding.EncodeToString(cert), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually waits for something that takes time over a real connection.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not %s in time", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// run starts a task that talks to the wire.
func (s *wire) run(t *testing.T, token string) *Kube {
	t.Helper()
	s.labels, s.changed = map[string]any{}, make(chan struct{})
	srv := httptest.NewTLSServer(s)
	t.Cleanup(srv.Close)
	// Credentials are sent only over TLS (clientcmd leaves them out otherwise).
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	client, err := NewClient(kubeconfig(t, srv.URL, cert, token))
	if err != nil {
		t.Fatal(err)
	}
	k := New(Config{Client: client, Node: "node-a"})
	done := make(chan error)
	ctx := t.Context()
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() { <-done })
	return k
}

func TestWire(t *testing.T) {
	s := &wire{}
	k := s.run(t, "secret")
	k.Publish(readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity error")))
	eventually(t, "labelled", func() bool {
		y := k.State()
		return y.Labelled && y.ClusterVersion == "v1.37.1" && len(s.sent()) == 6
	})
	want := map[string]bool{
		"GET /version":             true,
		"GET /api/v1/nodes/node-a": true,

		"GET /api/v1/nodes fieldSelector=metadata.name=node-a watch=true": true,

		"PATCH /api/v1/nodes/node-a fieldManager=acceld application/merge-patch+json":                  true,
		"PATCH /api/v1/nodes/node-a/status fieldManager=acceld application/strategic-merge-patch+json": true,
		"POST /apis/events.k8s.io/v1/namespaces/default/events fieldManager=acceld application/json":   true,
	}
	got := map[string]bool{}
	for _, r := range s.sent() {
		got[r] = true
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("requests -want +got:\n%s", d)
	}
	close(s.changed) // a watch that ends is followed by another
	eventually(t, "watched again", func() bool { return len(s.sent()) > 7 })
	if y := k.State(); y.Problem != nil || !y.Labelled {
		t.Errorf("state %+v", y)
	}
}

func TestWireRefusals(t *testing.T) {
	t.Run("token", func(t *testing.T) {
		k := (&wire{}).run(t, "wrong")
		eventually(t, "refused", func() bool { return k.State().Problem != nil })
		if p := k.State().Problem; p.Reason != accel.APIForbidden ||
			p.Message != `cannot get node "node-a": Unauthorized` {
			t.Errorf("problem %v", p)
		}
	})
	t.Run("rights", func(t *testing.T) {
		s := &wire{forbid: true}
		k := s.run(t, "secret")
		k.Publish(readyMachine())
		eventually(t, "refused", func() bool { return k.State().Problem != nil })
		if p := k.State().Problem; p.Reason != accel.APIForbidden ||
			p.Message != `cannot patch node "node-a": nodes "node-a" is forbidden: no rule` {
			t.Errorf("problem %v", p)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		client, err := NewClient(kubeconfig(t, "http://127.0.0.1:1", nil, "secret"))
		if err != nil {
			t.Fatal(err)
		}
		k := New(Config{Client: client, Node: "node-a"})
		ctx := t.Context()
		done := make(chan error)
		go func() { done <- k.Run(ctx) }()
		t.Cleanup(func() { <-done })
		eventually(t, "unreachable", func() bool { return k.State().Problem != nil })
		if p := k.State().Problem; p.Reason != accel.APIUnreachable {
			t.Errorf("problem %v", p)
		}
	})
}

func TestCredentials(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, want := range map[string]string{
		"":                 "cannot use the pod's service account: ",
		bad:                fmt.Sprintf("cannot use kubeconfig %q: ", bad),
		bad + "-not-there": fmt.Sprintf("cannot use kubeconfig %q: ", bad+"-not-there"),
	} {
		if _, err := NewClient(path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("NewClient(%q): %v, want %q…", path, err, want)
		}
	}
}
