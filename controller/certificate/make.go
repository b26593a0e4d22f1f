package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Keys of the Secret. The names of the controller's keys are those of cert-manager and of kubectl create secret tls.
const (
	authorityCertificate = "ca.crt"
	authorityKey         = "ca.key"
	serverCertificate    = "tls.crt"
	serverKey            = "tls.key"
	clientCertificate    = "client.crt"
	clientKey            = "client.key"
)

// How long certificates are valid. The scheduler's certificate, and the authority with which it verifies the
// controller, are copied by hand to the hosts of the control plane, so they last as long as a cluster. The
// controller's own is renewed after two thirds of its life.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	serverLife    = 90 * 24 * time.Hour
	// early allows for differences between clocks.
	early = time.Hour
)

// made creates everything: an authority for this purpose only, and the certificates that it signs.
func made(now time.Time, names []string) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "acceld-controller"}, NotBefore: now.Add(-early),
		NotAfter: now.Add(authorityLife),
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	data := map[string][]byte{}
	if data[authorityCertificate], data[authorityKey], err = sign(template, key, template, key); err != nil {
		return nil, err
	}
	if err := signServer(data, now, names); err != nil {
		return nil, err
	}
	return data, signClient(data, now)
}

// signServer creates the controller's certificate and key, signed by the authority in data.
func signServer(data map[string][]byte, now time.Time, names []string) error {
	return issue(data, serverCertificate, serverKey, &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: now.Add(-early),
		NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func signClient(data map[string][]byte, now time.Time) error {
	return issue(data, clientCertificate, clientKey, &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-scheduler"}, NotBefore: now.Add(-early), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func issue(data map[string][]byte, certificate, key string, template *x509.Certificate) error {
	authority, err := tls.X509KeyPair(data[authorityCertificate], data[authorityKey])
	if err != nil {
		return fmt.Errorf("cannot use %s with %s: %w", authorityCertificate, authorityKey, err)
	}
	signer, ok := authority.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("cannot use %s: it is another kind of key than was made", authorityKey)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	data[certificate], data[key], err = sign(template, private, authority.Leaf, signer)
	return err
}

// sign returns a certificate and its key in PEM.
func sign(template *x509.Certificate, private *ecdsa.PrivateKey, authority *x509.Certificate,
	signer *ecdsa.PrivateKey,
) (certificate, key []byte, err error) {
	der, err := x509.CreateCertificate(rand.Reader, template, authority, private.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}

// usable builds the TLS configuration from the content of a Secret. Without ca.crt it is not usable: whoever reaches
// the port could bind pods.
func usable(data map[string][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(data[serverCertificate], data[serverKey])
	if err != nil {
		return nil, fmt.Errorf("cannot use %s with %s: %w", serverCertificate, serverKey, err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(data[authorityCertificate]) {
		return nil, errors.New("cannot use " + authorityCertificate + ": there is no certificate in it, " +
			"and without one anybody could bind pods")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

// due returns when a certificate that was created here is renewed: after two thirds of its life, or at once if the
// names have changed.
func due(leaf *x509.Certificate, names []string) time.Time {
	if !slices.Equal(leaf.DNSNames, names) {
		return leaf.NotBefore
	}
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
}
