package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/acceld/acceld/controller/leader"
	"github.com/acceld/acceld/kube"
)

// apiServer is an API server with one lease. It answers nothing else, so that a leader reads the cluster for as long
// as its term lasts.
type apiServer struct {
	taken chan time.Time // when the lease was taken
	began chan time.Time // when the leader sent its first request
	ended chan time.Time // when such a request was called off, which happens at the end of the term

	mu    sync.Mutex
	lease *coordinationv1.Lease // at first one that was released
	held  bool
	stuck bool // requests for the lease are not answered once it is held
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // a client that goes is noticed only after its body has been read
	if err != nil {
		return
	}
	if !strings.Contains(r.URL.Path, "/leases") {
		note(s.began)
		<-r.Context().Done()
		note(s.ended)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.held && s.stuck:
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return
	case r.Method != http.MethodGet:
		written := &coordinationv1.Lease{}
		if err := json.Unmarshal(body, written); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !s.held {
			note(s.taken)
		}
		s.lease, s.held = written, true
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(s.lease); err != nil {
		panic(err)
	}
}

// note notes the first time that something happens.
func note(when chan<- time.Time) {
	select {
	case when <- time.Now():
	default:
	}
}

// candidate runs a replica that stands for election at the server. The channel has its error.
func candidate(t *testing.T, s *apiServer) (stop context.CancelFunc, done <-chan error) {
	t.Helper()
	t.Setenv("POD_IP", "")
	s.taken, s.began, s.ended = make(chan time.Time, 1), make(chan time.Time, 1), make(chan time.Time, 1)
	none, second := "", int32(1)
	s.lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "acceld-controller", Namespace: "acceld-system"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &none, LeaseDurationSeconds: &second},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	access.ContentType = "application/json" // the server reads no protobuf
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := kube.NewClient(file, leader.Transport)
	if err != nil {
		t.Fatal(err)
	}
	config, err := ParseConfig([]byte("lease: {seconds: 10}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := &Replica{
		config: config, client: client, documents: narrow.Documents, log: slog.New(slog.DiscardHandler), identity: "a",
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	o.election = o.newElection()
	go func() { result <- o.election.Run(ctx) }()
	return stop, result
}

// at returns when something happened.
func at(t *testing.T, what string, when <-chan time.Time) time.Time {
	t.Helper()
	select {
	case x := <-when:
		return x
	case <-time.After(time.Minute):
		t.Fatal(what + ": not within a minute")
		return time.Time{}
	}
}

// TestLeaseNotRenewed: a leader whose API server no longer answers ends its term before its lease expires and another
// replica may lead.
func TestLeaseNotRenewed(t *testing.T) {
	s := &apiServer{stuck: true}
	stop, done := candidate(t, s)
	defer stop()
	since := at(t, "the lease is held", s.taken)
	if lasted := at(t, "the term ends", s.ended).Sub(since); lasted >= 10*time.Second {
		t.Errorf("the term lasted %s, the lease 10s", lasted)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLeaseReleased: a leader that stops ends its term and then releases its lease.
func TestLeaseReleased(t *testing.T) {
	s := &apiServer{}
	stop, done := candidate(t, s)
	defer stop()
	at(t, "the term begins", s.began)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := resourcelock.LeaseSpecToLeaderElectionRecord(&s.lease.Spec)
	if got.HolderIdentity != "" || got.LeaseDurationSeconds != 1 {
		t.Errorf("the next leader waits for the lease: %+v", got)
	}
}
