package transfer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Time limits for single steps at a server. A transfer has no time limit of its own, but must not stall.
const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second
)

// Access says how a server is reached.
type Access struct {
	// CA is a PEM file of the host with the certificate authority of the server; empty means those of the system.
	CA string
	// Proxy is the URL of an HTTP proxy; empty means the one of the environment.
	Proxy string
	// Plain allows HTTP without TLS.
	Plain bool
	// Stall is how long an answer may make no progress, which is less than 64 KiB.
	Stall time.Duration
}

// Transport sends requests over connections of its own.
type Transport struct {
	guard
	http *http.Transport
}

// Open prepares access to servers without sending anything. The caller closes the result.
func Open(h *host.Host, a Access) (*Transport, *accel.Problem) {
	pool, problem := authorities(h, a.CA)
	if problem != nil {
		return nil, problem
	}
	proxy := http.ProxyFromEnvironment
	if a.Proxy != "" {
		u, err := url.Parse(a.Proxy)
		if err != nil || u.Host == "" {
			// do not quote it: it may contain a password
			return nil, accel.Problemf(accel.ConfigInvalid, "the proxy is not a URL")
		}
		proxy = http.ProxyURL(u)
	}
	tr := &http.Transport{
		Proxy: proxy, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true,
	}
	return &Transport{guard{tr, a.Plain, a.Stall}, tr}, nil
}

// Close closes the connections that no answer uses.
func (t *Transport) Close() { t.http.CloseIdleConnections() }

// guard blocks plain HTTP unless it is allowed: the registry library on its own would use it for private addresses. It
// aborts every answer that stalls.
type guard struct {
	next  http.RoundTripper
	plain bool
	stall time.Duration // how long an answer may make no progress
}

// ErrPlain is the error of a server that has no TLS although it must.
var ErrPlain = errors.New("it does not answer with TLS, and plainHTTP is not set")

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !g.plain {
		return nil, ErrPlain
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	answer, err := g.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	timer := time.AfterFunc(g.stall, func() { cancel(errStalled) })
	timer.Stop() // until the first Read
	answer.Body = &watched{
		ReadCloser: answer.Body, cause: func() error { return context.Cause(ctx) }, cancel: cancel, timer: timer,
		stall: g.stall,
	}
	return answer, nil
}

// leastProgress is how many bytes must come within the time for which a transfer may stall: 2 KiB a second by default.
// At that speed no driver comes within the time limit of a pull. A registry that sends less only keeps us busy.
const leastProgress = 64 << 10

// errStalled is the cause of an answer that was aborted because it made no progress.
var errStalled = errors.New("it stalled")

// watched aborts an answer that stalls. Only the time inside Read counts: a slow disk is no silent registry.
type watched struct {
	io.ReadCloser
	cause  func() error // why it was aborted
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	spent  time.Duration // inside Read, since the last progress
	got    int           // bytes since then
}

func (w *watched) Read(p []byte) (int, error) {
	began := time.Now()
	w.timer.Reset(w.stall - w.spent)
	n, err := w.ReadCloser.Read(p)
	w.timer.Stop()
	w.spent += time.Since(began)
	if w.got += n; w.got >= leastProgress {
		w.spent, w.got = 0, 0
	}
	cause := w.cause()
	switch {
	case err == nil || errors.Is(err, io.EOF) || cause == nil:
		return n, err
	case errors.Is(cause, errStalled) && w.got == 0:
		cause = fmt.Errorf("nothing came for %v", w.stall)
	case errors.Is(cause, errStalled):
		cause = fmt.Errorf("only %d bytes came in %v", w.got, w.stall)
	}
	return n, errors.Join(cause, io.ErrUnexpectedEOF)
}

func (w *watched) Close() error {
	w.timer.Stop()
	defer w.cancel(nil)
	return w.ReadCloser.Close()
}

// authorities returns the certificate authorities that may sign for a registry: those of this process; those of the
// machine, if its root is not the process's own, as in a container; and those of the file.
func authorities(h *host.Host, file string) (*x509.CertPool, *accel.Problem) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if h.Root() != "/" {
		// The bundles of Debian and Alpine, of Red Hat, and of SUSE (crypto/x509, root_linux.go).
		for _, name := range []string{
			"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
			"/etc/ssl/ca-bundle.pem",
		} {
			if pem, err := h.ReadFile(name); err == nil && pool.AppendCertsFromPEM(pem) {
				break
			}
		}
	}
	if file == "" {
		return pool, nil
	}
	pem, err := h.ReadFile(file)
	if err != nil {
		return nil, accel.Problemf(accel.RegistryUnreachable, "cannot read the certificate authority: %v", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, accel.Problemf(accel.RegistryUnreachable, "file %q has no certificate in PEM", file)
	}
	return pool, nil
}

// Temporary reports whether a retry may help after an error of the connection.
func Temporary(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var name *net.DNSError
	return !errors.As(err, &certificate) && !errors.As(err, &record) && (!errors.As(err, &name) || !name.IsNotFound)
}
