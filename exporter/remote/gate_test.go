package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	a.key, a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return a
}

func (a *authority) sign(template *x509.Certificate, by *authority) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()),
		time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, c
}

// files writes a certificate of this authority and its key.
func (a *authority) files(dir, name string) (certificate, key string) {
	a.t.Helper()
	k, c := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	write(a.t, certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	write(a.t, key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	return certificate, key
}

func (a *authority) file(dir, name string) string {
	file := filepath.Join(dir, name)
	write(a.t, file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	return file
}

// write replaces a file as `mv` does.
func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// reviews knows two tokens.
func reviews(_ context.Context, token, path string) (known, allowed bool, err error) {
	switch token {
	case "good":
		return true, path == "/metrics", nil
	case "weak":
		return true, false, nil
	case "when the API server is away":
		return false, false, errors.New("no route to host")
	}
	return false, false, nil
}

// serve serves a page behind a gate.
func serve(t *testing.T, o Options) (url string, g *Gate) {
	t.Helper()
	var err error
	if o.Files, err = host.New("/"); err != nil {
		t.Fatal(err)
	}
	g, problem := New(o)
	if problem != nil {
		t.Fatal(problem)
	}
	if err := g.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "page")
	})), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(tls.NewListener(l, g.TLS())) }()
	t.Cleanup(func() { server.Close() })
	return "https://" + l.Addr().String(), g
}

// ask requests a path and returns status and body; the status is 0 if TLS failed.
func ask(t *testing.T, c *tls.Config, url, token string) (int, string) {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// TestGate: which credentials let a client in.
func TestGate(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	certificate, key := ours.files(dir, "localhost")
	ca := ours.file(dir, "ca.crt")
	trust := x509.NewCertPool()
	trust.AddCert(ours.cert)
	client := func(by *authority, name string) *tls.Config {
		c := &tls.Config{RootCAs: trust, ServerName: "localhost"}
		if by != nil {
			pair, err := tls.LoadX509KeyPair(by.files(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c
	}
	both := Options{Certificate: certificate, Key: key, ClientCA: ca, Clients: []string{"prometheus"}, Review: reviews}
	certificates, tokens := both, both
	certificates.Review = nil
	tokens.ClientCA, tokens.Clients = "", nil
	anyone := certificates
	anyone.Clients = nil
	for _, c := range []struct {
		name   string
		gate   Options
		client *tls.Config
		token  string
		path   string
		status int
	}{
		{"a named client", both, client(ours, "prometheus"), "", "/metrics", 200},
		{"another client", both, client(ours, "somebody"), "", "/metrics", 403},
		{"another client with a token", both, client(ours, "somebody"), "Bearer good", "/metrics", 200},
		{"any client", anyone, client(ours, "somebody"), "", "/metrics", 200},
		{"a client of a stranger", anyone, client(theirs, "prometheus"), "", "/metrics", 0},
		{"no client certificate", certificates, client(nil, ""), "", "/metrics", 0},
		{"a token where none is let in", certificates, client(nil, ""), "Bearer good", "/metrics", 0},
		{"nothing", both, client(nil, ""), "", "/metrics", 401},
		{"a token", tokens, client(nil, ""), "Bearer good", "/metrics", 200},
		{"a token for another path", tokens, client(nil, ""), "Bearer good", "/metrics/other", 403},
		{"a token without the right", tokens, client(nil, ""), "Bearer weak", "/metrics", 403},
		{"nobody's token", tokens, client(nil, ""), "Bearer bad", "/metrics", 401},
		{"an empty token", tokens, client(nil, ""), "Bearer ", "/metrics", 401},
		{"a password", tokens, client(nil, ""), "Basic good", "/metrics", 401},
		{"nobody can tell", tokens, client(nil, ""), "Bearer when the API server is away", "/metrics", 503},
		{
			"old TLS", tokens, &tls.Config{RootCAs: trust, ServerName: "localhost", MaxVersion: tls.VersionTLS11},
			"Bearer good", "/metrics", 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := serve(t, c.gate)
			status, body := ask(t, c.client, url+c.path, c.token)
			if status != c.status || (body == "page") != (c.status == 200) {
				t.Errorf("%d %q, want %d", status, body, c.status)
			}
			if strings.Contains(body, "good") || strings.Contains(body, "weak") {
				t.Errorf("the answer tells the token: %s", body)
			}
		})
	}
}

// TestWithoutTLS: a gate that is served without TLS by mistake lets nobody in. Who is refused keeps no connection.
func TestWithoutTLS(t *testing.T) {
	g, problem := New(Options{Name: "node-a", Review: reviews})
	if problem != nil {
		t.Fatal(problem)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestOwnCertificate: without files there is still TLS, with a certificate that clients cannot verify.
func TestOwnCertificate(t *testing.T) {
	url, _ := serve(t, Options{Name: "node-a", Review: reviews})
	if status, body := ask(t, &tls.Config{InsecureSkipVerify: true}, url+"/metrics", "Bearer good"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask(t, &tls.Config{}, url+"/metrics", "Bearer good"); status != 0 ||
		!strings.Contains(body, "certificate") {
		t.Errorf("%d %s", status, body)
	}
}

// TestFilesChange: new files apply to the next connection; files that cannot be used change nothing.
func TestFilesChange(t *testing.T) {
	dir := t.TempDir()
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	certificate, key := first.files(dir, "localhost")
	ca := first.file(dir, "ca.crt")
	url, _ := serve(t, Options{Certificate: certificate, Key: key, ClientCA: ca})
	cert1, key1 := first.files(t.TempDir(), "client")
	cert2, key2 := second.files(t.TempDir(), "client")
	as := func(certificate, key string) int {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		status, _ := ask(t, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, url, "")
		return status
	}
	if a, b := as(cert1, key1), as(cert2, key2); a != 200 || b != 0 {
		t.Fatalf("at first: %d, %d", a, b)
	}
	write(t, ca, []byte("no certificate"))
	time.Sleep(200 * time.Millisecond)
	if a := as(cert1, key1); a != 200 {
		t.Errorf("with a file that cannot be used: %d", a)
	}
	second.file(dir, "ca.crt")
	second.files(dir, "localhost")
	for until := time.Now().Add(10 * time.Second); as(cert2, key2) != 200; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the new files are not taken over")
		}
	}
	if a := as(cert1, key1); a != 0 {
		t.Errorf("whom the new files do not know: %d", a)
	}
}

// TestBadFiles: an error names the option and the file.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t, "ours")
	certificate, key := a.files(dir, "localhost")
	_, otherKey := a.files(dir, "other")
	files, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"cannot read certificate": {Certificate: dir + "/none", Key: key},
		"cannot read key":         {Certificate: certificate, Key: dir + "/none"},
		"with key":                {Certificate: certificate, Key: otherKey},
		"cannot read clientCA":    {Certificate: certificate, Key: key, ClientCA: dir + "/none"},
		"no certificate in":       {Certificate: certificate, Key: key, ClientCA: key},
	} {
		o.Files = files
		if _, problem := New(o); problem == nil || problem.Reason != accel.ConfigInvalid ||
			!strings.Contains(problem.Message, want) {
			t.Errorf("%q: %v", want, problem)
		}
	}
}
