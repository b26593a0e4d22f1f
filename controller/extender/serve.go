package extender

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/guard"
)

// Files are the files of TLS. They are read again at each handshake, so that new ones apply to the next connection.
// If new ones cannot be used, the previous ones stay in force.
type Files struct {
	// Cert is a PEM file with the certificate.
	Cert string `json:"cert,omitempty"`
	// Key is a PEM file with its key.
	Key string `json:"key,omitempty"`
	// ClientCA holds the authorities that may sign client certificates. Every client needs a certificate.
	ClientCA string `json:"clientCA,omitempty"`
}

// certificates holds what was last read from the files.
type certificates struct {
	files Files
	log   *slog.Logger

	mu       sync.Mutex
	contents [3][]byte
	config   *tls.Config
	bad      bool // the new files cannot be used, and that was logged
}

// TLS returns a configuration that follows the files. They must be usable now.
func (f Files) TLS(log *slog.Logger) (*tls.Config, error) {
	c := &certificates{files: f, log: log}
	if err := c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current(), nil
		},
	}, nil
}

// current reads the files and returns the configuration in force.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.load()
	if err != nil && !c.bad {
		c.log.Error("cannot use the new certificates, the previous ones stay in force", "error", err)
	}
	c.bad = err != nil
	return c.config
}

// load reads the files. If they have changed, it builds the configuration from them. mu is held, except at the first
// call.
func (c *certificates) load() error {
	var contents [3][]byte
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cannot read a file of TLS: %w", err)
		}
		contents[i] = data
	}
	if c.config != nil && slices.EqualFunc(contents[:], c.contents[:], bytes.Equal) {
		return nil
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("cannot use certificate %q with key %q: %w", c.files.Cert, c.files.Key, err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	if !config.ClientCAs.AppendCertsFromPEM(contents[2]) {
		return fmt.Errorf("cannot use %q: there is no certificate in it", c.files.ClientCA)
	}
	c.contents, c.config = contents, config
	return nil
}

// Timeouts of a connection. An answer takes milliseconds; a binding waits for the API server.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = 5 * time.Minute
	goodbye       = 2 * time.Second
)

// Serve answers on a listener until ctx ends, with TLS if config is set. Requests in progress then have two seconds.
// Only HTTP/1.1 is spoken: the scheduler sends one request at a time.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, config *tls.Config, log *slog.Logger) error {
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	if config != nil {
		l = tls.NewListener(l, config)
	}
	ended := make(chan error, 1)
	guard.Go(func() { ended <- guard.Try(func() error { return s.Serve(l) }) })
	select {
	case err := <-ended:
		return fmt.Errorf("cannot serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if err := s.Shutdown(limited); err != nil {
		if err := s.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("cannot close %s: %w", l.Addr(), err)
		}
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot end serving on %s: %w", l.Addr(), err)
	}
	return nil
}
