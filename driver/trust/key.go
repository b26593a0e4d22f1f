package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Key signs artifacts and source trees: ECDSA, Ed25519 or RSA.
type Key struct{ signer crypto.Signer }

// NewKey returns the key of a signer.
func NewKey(s crypto.Signer) *Key { return &Key{s} }

// ReadKey reads an unencrypted private key in PEM, as `openssl genpkey` writes it. Name is a path on the host.
func ReadKey(h *host.Host, name string) (*Key, *accel.Problem) {
	text, err := h.ReadFile(name)
	if err != nil {
		return nil, accel.Problemf(accel.ReasonForError(err, accel.SigningFailed), "cannot read the key: %v", err)
	}
	signer, err := parsePrivate(text)
	if err != nil {
		return nil, accel.Problemf(accel.SigningFailed, "cannot use the key %q: %v", name, err)
	}
	return &Key{signer}, nil
}

func parsePrivate(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	var key any
	var err error
	switch {
	case strings.Contains(block.Type, "ENCRYPTED"):
		return nil,
			errors.New(
				"it is encrypted: decrypt it first, for instance with `cosign import-key-pair` the other way round or `openssl pkey`")
	case block.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case block.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, errors.New("not a private key") // the parser's error may contain part of the key
	}
	switch key.(type) {
	case *ecdsa.PrivateKey, ed25519.PrivateKey, *rsa.PrivateKey:
		return key.(crypto.Signer), nil
	}
	return nil, errors.New("neither ECDSA, Ed25519 nor RSA")
}

// Sign signs a message as cosign does with keys: over its SHA-256 with ECDSA (ASN.1) or RSA (PKCS #1 v1.5), or with
// plain Ed25519.
func (k *Key) Sign(message []byte) ([]byte, error) {
	if _, ok := k.signer.(ed25519.PrivateKey); ok {
		return k.signer.Sign(rand.Reader, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	return k.signer.Sign(rand.Reader, sum[:], crypto.SHA256)
}

func parsePublic(block *pem.Block) (crypto.PublicKey, error) {
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return nil, fmt.Errorf("it is a %q", block.Type)
	}
	if err != nil {
		return nil, err
	}
	return key, usable(key)
}

// usable returns why a public key cannot be used; nil if it can.
func usable(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 { // NIST SP 800-131A
			return fmt.Errorf("RSA with %d bits is too short", k.N.BitLen())
		}
		return nil
	}
	return errors.New("neither ECDSA, Ed25519 nor RSA")
}

// verifies reports whether signature is a valid signature of message by key.
func verifies(key crypto.PublicKey, message, signature []byte) bool {
	sum := sha256.Sum256(message)
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, sum[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(k, message, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], signature) == nil
	}
	return false
}
