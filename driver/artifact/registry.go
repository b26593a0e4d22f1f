package artifact

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
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Time limits for single steps at a registry. A transfer has no time limit of its own, but must not stall.
const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second
)

// registry is one repository of a registry.
type registry struct {
	repo   name.Repository
	puller *remote.Puller
	pusher *remote.Pusher
	http   *http.Transport
	limits Limits
}

// dial prepares access to a repository without sending anything. The caller closes the result.
func dial(ctx context.Context, h *host.Host, s accel.Source, repository string, stall time.Duration,
	limits Limits,
) (*registry, error) {
	var opts []name.Option
	plain := s.PlainHTTP || loopback(repository)
	if plain {
		opts = append(opts, name.Insecure)
	}
	repo, err := name.NewRepository(repository, opts...)
	if err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "%q is not the name of a repository: %v", repository, err)
	}
	pool, err := authorities(h, s.CA)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if s.Proxy != "" {
		u, err := url.Parse(s.Proxy)
		if err != nil || u.Host == "" {
			return nil, accel.Problemf(accel.ConfigInvalid, "the proxy is not a URL") // do not quote it: it may contain a password
		}
		proxy = http.ProxyURL(u)
	}
	auth, err := credentials(h, s.Credentials, repo)
	if err != nil {
		return nil, err
	}
	tr := &http.Transport{
		Proxy: proxy, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true,
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(guard{tr, plain, stall}), remote.WithAuth(auth),
		remote.WithUserAgent("acceld"),
		// Client.try retries the whole operation.
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(),
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, err
	}
	pusher, err := remote.NewPusher(options...)
	if err != nil {
		return nil, err
	}
	return &registry{repo: repo, puller: puller, pusher: pusher, http: tr, limits: limits}, nil
}

func (r *registry) close() { r.http.CloseIdleConnections() }

// loopback reports whether a repository is on this machine.
func loopback(repository string) bool {
	server, _, _ := strings.Cut(repository, "/")
	hostname := (&url.URL{Host: server}).Hostname()
	return hostname == "localhost" || net.ParseIP(hostname).IsLoopback()
}

// guard blocks plain HTTP unless it is allowed: the registry library on its own would use it for private addresses. It
// aborts every answer that stalls.
type guard struct {
	next  http.RoundTripper
	plain bool
	stall time.Duration // how long an answer may make no progress
}

var errPlain = errors.New("it does not answer with TLS, and plainHTTP is not set")

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !g.plain {
		return nil, errPlain
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
func authorities(h *host.Host, file string) (*x509.CertPool, error) {
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

func (r *registry) manifest(ctx context.Context, ref string) (manifest, error) {
	if isDigest(ref) {
		return r.get(ctx, r.repo.Digest(ref))
	}
	if strings.Contains(ref, ":") { // no tag contains a colon
		return manifest{}, invalidf("its digest %q is not sha256", ref)
	}
	// HEAD does not count against rate limits. A GET by the returned digest then gets exactly that manifest.
	tag := r.repo.Tag(ref)
	d, err := r.puller.Head(ctx, tag)
	if err == nil {
		return r.get(ctx, r.repo.Digest(d.Digest.String()))
	}
	var answered *transport.Error
	if errors.As(err, &answered) && answered.StatusCode != http.StatusMethodNotAllowed {
		return manifest{}, err
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		return manifest{}, err
	}
	return r.get(ctx, tag) // the answer lacked a digest or a length
}

func (r *registry) get(ctx context.Context, ref name.Reference) (manifest, error) {
	want, byDigest := ref.(name.Digest)
	d, err := r.puller.Get(ctx, ref)
	if err != nil {
		if byDigest && !network(err) {
			return manifest{}, accel.Problemf(accel.DigestMismatch,
				"the registry has another manifest under its digest: %v", err)
		}
		return manifest{}, err
	}
	if int64(len(d.Manifest)) > r.limits.Manifest {
		return manifest{}, invalidf("its manifest has more than %d bytes", r.limits.Manifest)
	}
	m := newManifest(d.Manifest, d.MediaType)
	if byDigest && want.DigestStr() != m.digest.String() {
		return manifest{}, accel.Problemf(accel.DigestMismatch, "its manifest has digest %s", m.digest)
	}
	return m, nil
}

func (r *registry) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	layer, err := r.puller.Layer(ctx, r.repo.Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

func (r *registry) referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	index, err := remote.Referrers(r.repo.Digest(digest.String()), remote.WithContext(ctx), remote.Reuse(r.puller))
	if err != nil {
		return nil, err
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	return m.Manifests, nil
}

// network reports whether an error is about the connection or the registry's status, not about the content that it
// sent.
func network(err error) bool {
	var answered *transport.Error
	var failed *url.Error
	var broken net.Error
	return errors.As(err, &answered) || errors.As(err, &failed) || errors.As(err, &broken) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// temporary reports whether a retry may help.
func temporary(err error) bool {
	var p *accel.Problem
	if errors.As(err, &p) {
		return false
	}
	var answered *transport.Error
	if errors.As(err, &answered) {
		return answered.StatusCode >= 500 || answered.StatusCode == http.StatusTooManyRequests ||
			answered.StatusCode == http.StatusRequestTimeout
	}
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var name *net.DNSError
	return !errors.As(err, &certificate) && !errors.As(err, &record) && (!errors.As(err, &name) || !name.IsNotFound)
}

// explain gives a registry error its reason. It drops the URL, which may contain a signature, and keeps only what
// went wrong.
func explain(err error) *accel.Problem {
	var p *accel.Problem
	if errors.As(err, &p) {
		return p
	}
	var certificate *tls.CertificateVerificationError
	var answered *transport.Error
	var failed *url.Error
	switch {
	case errors.As(err, &certificate): // TLS and plain HTTP were tried; this error is more useful
		err = certificate
	case errors.Is(err, errPlain):
		err = errPlain
	case errors.As(err, &answered):
		reason := accel.RegistryUnreachable
		switch answered.StatusCode {
		case http.StatusNotFound:
			reason = accel.ArtifactNotFound
		case http.StatusUnauthorized, http.StatusForbidden:
			reason = accel.RegistryDenied
		}
		text := fmt.Sprintf("%d %s", answered.StatusCode, http.StatusText(answered.StatusCode))
		for _, d := range answered.Errors[:min(3, len(answered.Errors))] { // the registry chooses how many
			text += fmt.Sprintf(", %.64s", d.Code)
		}
		return accel.Problemf(reason, "the registry answers %s", strings.ToLower(text))
	case errors.As(err, &failed):
		err = failed.Err
	}
	return accel.Problemf(accel.RegistryUnreachable, "cannot ask the registry: %v", err)
}
