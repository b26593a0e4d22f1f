package trust

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Signer is who signed something, in a form that is stored and judged again later. The key alone is known, or the name
// by which an authority certifies it.
type Signer struct {
	// Key is the SHA-256 of the public key in PKIX form, in hexadecimal; empty if an authority certifies the signer.
	Key string `json:"key,omitempty"`
	// Name is the certified name, Authority the SHA-256 of the authority's certificate.
	Name      string `json:"name,omitempty"`
	Authority string `json:"authority,omitempty"`
}

func (s Signer) String() string {
	if s.Key != "" {
		return "key sha256:" + s.Key
	}
	return fmt.Sprintf("%q, certified by sha256:%s", s.Name, s.Authority)
}

// Short names a signer in a table: the certified name, or the beginning of the key's digest.
func (s Signer) Short() string {
	return cmp.Or(s.Name, "sha256:"+s.Key[:min(12, len(s.Key))])
}

// Signers names signers for people.
func Signers(all []Signer) string {
	var out []string
	for _, s := range all {
		out = append(out, s.String())
	}
	return cmp.Or(strings.Join(out, " and "), "nobody")
}

// Anchors are the keys and the identities that somebody named.
type Anchors struct {
	keys       []crypto.PublicKey
	identities []identity
}

// identity is a name and the certificates of the authority that certifies it.
type identity struct {
	name        string
	authorities []*x509.Certificate
}

// Read reads the files of a policy. A file that cannot be used is a ConfigInvalid: with fewer anchors than were named,
// nobody could tell what is trusted.
func Read(h *host.Host, t accel.Trust) (Anchors, *accel.Problem) {
	var a Anchors
	for _, name := range t.Keys {
		keys, problem := readBlocks(h, name, "public key", parsePublic)
		if problem != nil {
			return Anchors{}, problem
		}
		a.keys = append(a.keys, keys...)
	}
	for _, id := range t.Identities {
		all, problem := readBlocks(h, id.Authority, "certificate authority", parseAuthority)
		if problem != nil {
			return Anchors{}, problem
		}
		a.identities = append(a.identities, identity{id.Name, all})
	}
	return a, nil
}

// readBlocks reads a PEM file in which every block is one of what.
func readBlocks[T any](h *host.Host, name, what string, parse func(*pem.Block) (T, error)) ([]T, *accel.Problem) {
	text, err := h.ReadFile(name)
	if err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "cannot read a %s: %v", what, err)
	}
	var out []T
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		one, err := parse(block)
		if err != nil {
			return nil, accel.Problemf(accel.ConfigInvalid, "cannot use the %s %q: %v", what, name, err)
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, accel.Problemf(accel.ConfigInvalid, "cannot use the %s %q: not PEM", what, name)
	}
	return out, nil
}

func parseAuthority(block *pem.Block) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(block.Bytes)
	if err == nil && !c.IsCA {
		err = fmt.Errorf("%q is not the certificate of an authority", c.Subject)
	}
	return c, err
}

// Empty reports whether nobody was named.
func (a Anchors) Empty() bool { return len(a.keys) == 0 && len(a.identities) == 0 }

// With returns the anchors of both.
func (a Anchors) With(b Anchors) Anchors {
	return Anchors{slices.Concat(a.keys, b.keys), slices.Concat(a.identities, b.identities)}
}

// Has reports whether one of the signers is an anchor.
func (a Anchors) Has(signers []Signer) bool {
	return slices.ContainsFunc(signers, func(s Signer) bool {
		return slices.ContainsFunc(a.keys, func(k crypto.PublicKey) bool { return s == Signer{Key: fingerprint(k)} }) ||
			slices.ContainsFunc(a.identities, func(id identity) bool {
				return slices.ContainsFunc(id.authorities, func(c *x509.Certificate) bool { return s == id.signer(c) })
			})
	})
}

// Signed returns which anchors a signature of a message is by. Certified are the certificates that came with it, the
// signer's first.
func (a Anchors) Signed(message, signature []byte, certified []*x509.Certificate) []Signer {
	var out []Signer
	for _, k := range a.keys {
		if verifies(k, message, signature) {
			out = append(out, Signer{Key: fingerprint(k)})
		}
	}
	if len(certified) == 0 || usable(certified[0].PublicKey) != nil ||
		!verifies(certified[0].PublicKey, message, signature) {
		return out
	}
	for _, id := range a.identities {
		if s, ok := id.certifies(certified); ok {
			out = append(out, s)
		}
	}
	return out
}

// signer is the signer that an authority certifies.
func (id identity) signer(authority *x509.Certificate) Signer {
	sum := sha256.Sum256(authority.Raw)
	return Signer{Name: id.name, Authority: hex.EncodeToString(sum[:])}
}

// certifies reports whether one of the authorities certifies now that the first certificate is for signing code by this
// name, if need be through the others.
func (id identity) certifies(chain []*x509.Certificate) (Signer, bool) {
	leaf := chain[0]
	names := slices.Concat(leaf.EmailAddresses, leaf.DNSNames)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	if !slices.Contains(names, id.name) {
		return Signer{}, false
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, authority := range id.authorities {
		roots := x509.NewCertPool()
		roots.AddCert(authority)
		if _, err := leaf.Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, CurrentTime: time.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		}); err == nil {
			return id.signer(authority), true
		}
	}
	return Signer{}, false
}

// fingerprint is the SHA-256 of a public key in PKIX form, in hexadecimal.
func fingerprint(k crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		panic(err) // it was parsed from that form
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// chainLimit is how many certificates may come with a signature.
const chainLimit = 8

// Chain parses the certificates that came with a signature, the signer's first, in PEM. It returns none if they cannot
// be used.
func Chain(text []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || len(out) == chainLimit {
			return nil
		}
		out = append(out, c)
	}
	return out
}
