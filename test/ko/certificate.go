package ko

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// Certificate makes a certificate of a key that signs itself.
func Certificate(t testing.TB, key crypto.Signer, subject pkix.Name) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0x0123456789abcdef), Subject: subject, SubjectKeyId: []byte{0xde, 0xad, 0xbe, 0xef},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Name is whose the certificates are.
func Name() pkix.Name {
	return pkix.Name{CommonName: "signer", Organization: []string{"test"}}
}

// KeyFiles writes a key and its certificate below root and returns the signer that names them.
func KeyFiles(t testing.TB, root string, key crypto.Signer) *accel.Signer {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := Certificate(t, key, Name())
	dir := filepath.Join(root, "etc/keys")
	err = os.MkdirAll(dir, 0o755)
	for name, text := range map[string][]byte{
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}),
		"cert.der": c.Raw,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &accel.Signer{Key: "/etc/keys/key.pem", Certificate: "/etc/keys/cert.pem"}
}
