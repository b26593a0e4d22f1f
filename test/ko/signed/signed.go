// Package signed makes module signatures for tests. It stands beside package ko because the tests of package signing
// use ko and must not import what imports them.
package signed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/acceld/acceld/driver/signing"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
)

// By returns a signature by a key, as a module has it.
func By(t testing.TB, key crypto.Signer, hash string) []byte {
	t.Helper()
	root := t.TempDir()
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	def := ko.Definition()
	def.Driver.Sign = ko.KeyFiles(t, root, key)
	def.Driver.Sign.Hash = hash
	s, problem := signing.Open(h, def)
	if problem != nil {
		t.Fatal(problem)
	}
	message, err := s.Message(strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// BySomebody returns a signature by a key that nobody keeps.
func BySomebody(t testing.TB, hash string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return By(t, key, hash)
}
