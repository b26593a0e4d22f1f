package replicas

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// witness is the way of one replica to the API server. It keeps every write that comes by.
type witness struct {
	// config is how the replica finds it: a client sends its token by TLS alone.
	config rest.Config

	mu     sync.Mutex
	writes []write
}

// write is one write of a replica, and when it came by.
type write struct {
	at           time.Time
	method, path string
	status       int
}

// ofLease reports whether it is one of the lease, which is the proof; ofSecret, whether it is one of the certificates,
// which every replica keeps.
func (w write) ofLease() bool  { return strings.Contains(w.path, "/leases") }
func (w write) ofSecret() bool { return strings.Contains(w.path, "/secrets") }
func (w write) taken() bool    { return w.status >= 200 && w.status < 300 }

// watch returns a witness in front of an API server. The token of a replica passes through it.
func watch(t *testing.T, to *rest.Config) *witness {
	t.Helper()
	target, err := url.Parse(to.Host)
	check(t, err)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(to))
	check(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	x := &witness{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			proxy.ServeHTTP(w, r)
			return
		}
		at, answer := time.Now(), &answered{ResponseWriter: w}
		proxy.ServeHTTP(answer, r)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.writes = append(x.writes, write{at, r.Method, r.URL.Path, answer.status})
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	x.config.Host = server.URL
	x.config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return x
}

// answered keeps the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(status int) { a.status = status; a.ResponseWriter.WriteHeader(status) }

// Unwrap lets the proxy flush.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// all returns the writes since a time.
func (w *witness) all(since time.Time) (all []write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.writes {
		if !x.at.Before(since) {
			all = append(all, x)
		}
	}
	return all
}

// onTheWay is how long a write may take from its proof to the witness, on a busy machine.
const onTheWay = time.Second

// proven judges every write of the replicas: it must be covered by a version of the lease that the API server took from
// the same replica at most half of the lease before, and nobody else's came in between.
func (r *rig) proven() {
	r.t.Helper()
	n, last := 0, time.Duration(0)
	for _, x := range r.replicas {
		for _, w := range x.witness.all(time.Time{}) {
			if w.ofLease() || w.ofSecret() {
				continue
			}
			n++
			age := r.proofOf(x, w.at)
			if last = max(last, age); age > lease/2+onTheWay {
				r.t.Errorf("%s wrote %s %s (%d) %v after its last proof", x.name, w.method, w.path, w.status, age)
			}
		}
	}
	r.t.Logf("%d writes, each at most %v after the lease was renewed", n, last.Round(time.Millisecond))
}

// proofOf returns how long before a time the lease was last written by a replica; a year if another one wrote it since.
// If the lease was edited, another one that has it must not have written anything else either.
func (r *rig) proofOf(x *replica, at time.Time) time.Duration {
	const never = 365 * 24 * time.Hour
	var own, others, acted time.Time
	for _, y := range r.replicas {
		for _, w := range y.witness.all(time.Time{}) {
			switch {
			case !w.taken() || w.ofSecret() || w.at.After(at):
			case y == x && w.ofLease():
				own = w.at
			case y != x && w.ofLease() && w.at.After(others):
				others = w.at
			case y != x && !w.ofLease() && w.at.After(acted):
				acted = w.at
			}
		}
	}
	if own.IsZero() || others.After(own) && (!r.edited || acted.After(own)) {
		return never
	}
	return at.Sub(own)
}
