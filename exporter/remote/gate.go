// Package remote lets scrapers on other machines in, only over TLS and only with a client certificate or a bearer
// token. It reads its files again when they change. It may not serve anything itself, and knows no secrets except
// those it is given.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Options are the settings of a [Gate].
type Options struct {
	// Files is the file system of the files below: the process's own.
	Files *host.Host
	// Certificate and Key are PEM files. Without them the gate creates a self-signed certificate, which clients
	// cannot verify.
	Certificate, Key string
	// ClientCA is a PEM file with the authorities of client certificates; if empty, none are accepted.
	ClientCA string
	// Clients are the accepted names in client certificates, as the common name or one of the DNS names. Empty
	// accepts any.
	Clients []string
	// Review reports whether a token is known and whether its owner may get the path. If nil, no token is accepted.
	// An error means that it cannot be found out now.
	Review func(ctx context.Context, token, path string) (known, allowed bool, err error)
	// Name is the host's name, for a self-signed certificate.
	Name string
	// Log gets a line when the files become unusable or usable again. If nil, nothing is logged.
	Log *slog.Logger
}

// Gate decides which clients may come in.
type Gate struct {
	o       Options
	current atomic.Pointer[tls.Config]
}

// New returns a gate with the files as they are now. A problem has the reason ConfigInvalid.
func New(o Options) (*Gate, *accel.Problem) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gate{o: o}
	c, err := g.load()
	if err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "endpoint.remote: %v", err)
	}
	g.current.Store(c)
	return g, nil
}

// TLS returns the configuration for a listener. A connection is verified against the files as they are when it
// starts. Sessions are not resumed, so that a client that earlier files let in is verified again.
func (g *Gate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.current.Load(), nil },
	}
}

// Handler authenticates the client and passes allowed requests to next. It answers 401 to unknown clients, 403 to
// those who are not allowed, and 503 while a token cannot be reviewed.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := g.judge(r)
		if status == http.StatusOK {
			next.ServeHTTP(w, r)
			return
		}
		if status == http.StatusUnauthorized && g.o.Review != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		w.Header().Set("Connection", "close") // who may not ask does not keep a connection either
		http.Error(w, text, status)
	})
}

// judge returns 200 if the request is allowed, otherwise the status and the sentence of the refusal.
func (g *Gate) judge(r *http.Request) (status int, text string) {
	if r.TLS == nil {
		return http.StatusUnauthorized, "this endpoint is for TLS"
	}
	certified := len(r.TLS.VerifiedChains) > 0
	if certified && g.named(r.TLS.VerifiedChains[0][0]) {
		return http.StatusOK, ""
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch token = strings.TrimSpace(token); {
	case bearer && token != "" && g.o.Review != nil:
	case certified:
		return http.StatusForbidden, "the name in the client certificate is not one that may ask"
	default:
		return http.StatusUnauthorized, "a client certificate or a bearer token is needed"
	}
	known, allowed, err := g.o.Review(r.Context(), token, r.URL.Path)
	switch {
	case err != nil:
		g.o.Log.Debug("token not reviewed", "error", err)
		return http.StatusServiceUnavailable, "nobody can tell now who that is"
	case !known:
		return http.StatusUnauthorized, "the bearer token is nobody's"
	case !allowed:
		return http.StatusForbidden, "whose bearer token that is may not get this path"
	}
	return http.StatusOK, ""
}

// named reports whether a certificate has an accepted name.
func (g *Gate) named(c *x509.Certificate) bool {
	if len(g.o.Clients) == 0 {
		return true
	}
	return slices.ContainsFunc(append([]string{c.Subject.CommonName}, c.DNSNames...), func(name string) bool {
		return slices.Contains(g.o.Clients, name)
	})
}

// Follow reads the files again whenever their directories change, until ctx ends. Files that cannot be used change
// nothing and are reported once.
func (g *Gate) Follow(ctx context.Context) error {
	var dirs []string
	for _, name := range []string{g.o.Certificate, g.o.Key, g.o.ClientCA} {
		if dir := filepath.Dir(name); name != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	events, err := g.o.Files.Watch(ctx, dirs...)
	if err != nil {
		return err
	}
	guard.Go(func() {
		said := ""
		guard.Keep(ctx, "files of the remote endpoint", func(context.Context) error {
			for range events {
				said = g.renew(said)
			}
			return nil
		})
	})
	return nil
}

// renew reads the files again. It takes and returns the last reported error about them.
func (g *Gate) renew(said string) string {
	c, err := g.load()
	switch {
	case err != nil && err.Error() != said:
		g.o.Log.Warn("files of the remote endpoint not taken over", "error", err)
		return err.Error()
	case err != nil:
		return said
	case said != "":
		g.o.Log.Info("files of the remote endpoint taken over")
	}
	g.current.Store(c)
	return ""
}
