package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"testing"
)

// TestVerifies: a signature is valid for one message and one key, for each type of key.
func TestVerifies(t *testing.T) {
	for name, generate := range map[string]func() (crypto.Signer, error){
		"ECDSA":   func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
		"Ed25519": func() (crypto.Signer, error) { _, k, err := ed25519.GenerateKey(rand.Reader); return k, err },
		"RSA":     func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	} {
		own, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		other, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		message := []byte("the message")
		signature, err := (&Key{own}).Sign(message)
		if err != nil {
			t.Fatal(err)
		}
		damaged := append([]byte{}, signature...)
		damaged[len(damaged)-1] ^= 1
		for what, got := range map[string]bool{
			"its signature":             !verifies(own.Public(), message, signature),
			"of another message":        verifies(own.Public(), []byte("another message"), signature),
			"by another key":            verifies(other.Public(), message, signature),
			"a damaged signature":       verifies(own.Public(), message, damaged),
			"a signature of no bytes":   verifies(own.Public(), message, nil),
			"a signature of only zeros": verifies(own.Public(), message, make([]byte, len(signature))),
		} {
			if got {
				t.Errorf("%s: %s is judged wrongly", name, what)
			}
		}
	}
}
