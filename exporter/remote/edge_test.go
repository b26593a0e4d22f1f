package remote

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNobodysToken: an unknown token lets nobody in, even if the review says that it is allowed.
func TestNobodysToken(t *testing.T) {
	g, problem := New(Options{Name: "node-a", Review: func(context.Context, string, string) (known, allowed bool,
		err error,
	) {
		return false, true, nil
	}})
	if problem != nil {
		t.Fatal(problem)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.TLS = &tls.ConnectionState{}
	r.Header.Set("Authorization", "Bearer x")
	if status, text := g.judge(r); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, text)
	}
}

// TestNoSessionIsResumed: each connection is verified again, so that a client that earlier files let in does not
// stay in.
func TestNoSessionIsResumed(t *testing.T) {
	g, problem := New(Options{Name: "node-a"})
	if problem != nil {
		t.Fatal(problem)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config := g.TLS()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				s := tls.Server(c, config)
				_, _ = io.WriteString(s, "hello")
				_ = s.Close()
			}()
		}
	}()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		// The certificate is self-signed.
		client := &tls.Config{
			InsecureSkipVerify: true, ServerName: "node-a", MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(8),
		}
		for i := range 3 {
			c, err := tls.Dial("tcp", l.Addr().String(), client)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(c) // session tickets would come with it
			if err != nil || string(text) != "hello" || c.ConnectionState().DidResume {
				t.Errorf("connection %d: %q, %v, resumed %t", i, text, err, c.ConnectionState().DidResume)
			}
			_ = c.Close()
		}
	}
}
