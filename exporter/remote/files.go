package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// load reads the files and returns the TLS configuration.
func (g *Gate) load() (*tls.Config, error) {
	pair, err := g.pair()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:             tls.VersionTLS12,
		Certificates:           []tls.Certificate{pair},
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}
	if g.o.ClientCA == "" {
		return c, nil
	}
	pem, err := g.o.Files.ReadFile(g.o.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("cannot read clientCA: %v", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("clientCA: there is no certificate in %q", g.o.ClientCA)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if g.o.Review != nil {
		c.ClientAuth = tls.VerifyClientCertIfGiven // a token is enough
	}
	return c, nil
}

// pair returns the certificate with its key. A self-signed one is kept for the life of the gate.
func (g *Gate) pair() (tls.Certificate, error) {
	if g.o.Certificate == "" {
		if c := g.current.Load(); c != nil {
			return c.Certificates[0], nil
		}
		return ownPair(g.o.Name, time.Now())
	}
	certificate, err := g.o.Files.ReadFile(g.o.Certificate)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read certificate: %v", err)
	}
	key, err := g.o.Files.ReadFile(g.o.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read key: %v", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot use certificate %q with key %q: %v", g.o.Certificate, g.o.Key, err)
	}
	return pair, nil
}

// ownLife is how long a self-signed certificate is valid: the agent creates one at each start, and none while it
// runs.
const ownLife = 10 * 365 * 24 * time.Hour

// ownPair creates a self-signed certificate: it encrypts the connection, but proves nothing.
func ownPair(name string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot make a key: %v", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.Add(ownLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot make a certificate: %v", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
