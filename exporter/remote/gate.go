// Package remote lets scrapers on other machines in: by TLS alone, whose files are read again when they change, and
// only those who prove who they are, by a client certificate or a bearer token. It may not serve anything itself, and
// knows no secret but those it is given.
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
	"github.com/acceld/acceld/host"
)

// Options of a [Gate].
type Options struct {
	// Files is the file system that the files below are in, the process's own.
	Files *host.Host
	// Certificate and Key are PEM files. Without both the gate makes a certificate for itself, which nobody can verify.
	Certificate, Key string
	// ClientCA is a PEM file with the authorities of client certificates; empty where none are let in.
	ClientCA string
	// Clients are the names that client certificates may have, as their common name or one of their DNS names; empty:
	// any.
	Clients []string
	// Review tells whether anybody is known by a token and may get the path. Nil where no token is let in. An error is
	// that nobody can tell now.
	Review func(ctx context.Context, token, path string) (known, allowed bool, err error)
	// Name is the host's, for a certificate of its own.
	Name string
	// Log gets a line when the files stop and start to be usable. Nil is silence.
	Log *slog.Logger
}

// Gate tells who may come in.
type Gate struct {
	o       Options
	current atomic.Pointer[tls.Config]
}

// New returns a gate with the files as they are now. The reason of a problem is ConfigInvalid.
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

// TLS is the configuration of a listener. A connection is verified by the files as they are when it begins; sessions
// are not resumed, so that one who was let in by earlier files is looked at again.
func (g *Gate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.current.Load(), nil },
	}
}

// Handler asks who it is, and hands what may be asked to next. It answers 401 to those whom nobody knows, 403 to those
// who may not, and 503 while nobody can tell.
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
		http.Error(w, text, status)
	})
}

// judge returns 200 for one who may ask, else the status and the sentence of the refusal.
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

// named reports whether a certificate has a name that may ask.
func (g *Gate) named(c *x509.Certificate) bool {
	if len(g.o.Clients) == 0 {
		return true
	}
	return slices.ContainsFunc(append([]string{c.Subject.CommonName}, c.DNSNames...), func(name string) bool {
		return slices.Contains(g.o.Clients, name)
	})
}

// Follow reads the files again whenever their directories change, until ctx ends. Files that cannot be used change
// nothing and are told once.
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
	go func() {
		said := ""
		for range events {
			said = g.renew(said)
		}
	}()
	return nil
}

// renew reads the files again. It takes and returns what was last said about them.
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
