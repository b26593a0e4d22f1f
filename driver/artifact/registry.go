package artifact

import (
	"context"
	"crypto/tls"
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
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/host"
)

// registry is one repository of a registry.
type registry struct {
	repo   name.Repository
	puller *remote.Puller
	pusher *remote.Pusher
	http   *transfer.Transport
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
	tr, problem := transfer.Open(h, transfer.Access{CA: s.CA, Proxy: s.Proxy, Plain: plain, Stall: stall})
	if problem != nil {
		return nil, problem
	}
	auth, err := credentials(h, s.Credentials, repo)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(tr), remote.WithAuth(auth),
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

// tagsLimit is how many tags of a repository are read.
const tagsLimit = 10_000

// tags returns the tags of the repository, as the registry sorts them.
func (r *registry) tags(ctx context.Context) (out []string, err error) {
	pages, err := r.puller.Lister(ctx, r.repo)
	if err != nil {
		return nil, err
	}
	for pages.HasNext() {
		page, err := pages.Next(ctx)
		if err != nil {
			return nil, err
		}
		if out = append(out, page.Tags...); len(out) > tagsLimit {
			return nil, invalidf("the repository has more than %d tags", tagsLimit)
		}
	}
	return out, nil
}

func (r *registry) close() { r.http.Close() }

// loopback reports whether a repository is on this machine.
func loopback(repository string) bool {
	server, _, _ := strings.Cut(repository, "/")
	hostname := (&url.URL{Host: server}).Hostname()
	return hostname == "localhost" || net.ParseIP(hostname).IsLoopback()
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
	return transfer.Temporary(err)
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
	case errors.Is(err, transfer.ErrPlain):
		err = transfer.ErrPlain
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
