package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// issuer is a certificate with its key.
type issuer struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// certificate creates a certificate that by signs, or that signs itself.
func certificate(t *testing.T, by *issuer, change func(*x509.Certificate)) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
	}
	change(c)
	parent, signer := c, key
	if by != nil {
		parent, signer = by.Certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{parsed, key}
}

func authority(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }

// leaf is a certificate for signing code by a name.
func leaf(c *x509.Certificate) {
	c.EmailAddresses, c.ExtKeyUsage = []string{"ci@example.com"}, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
}

// files is a host with PEM files.
func files(t *testing.T, all map[string]string) *host.Host {
	t.Helper()
	root := t.TempDir()
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (i *issuer) text() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Raw}))
}

func (i *issuer) public(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(i.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestIdentities: a signer is an identity if one of its authorities certifies now that the key which signed is for
// signing code, by exactly that name. What is stored of it names both, so that either may lose the trust.
func TestIdentities(t *testing.T) {
	ours, theirs := certificate(t, nil, authority), certificate(t, nil, authority)
	between := certificate(t, ours, authority)
	good := certificate(t, ours, leaf)
	h := files(t, map[string]string{"ours": ours.text(), "theirs": theirs.text(), "both": theirs.text() + ours.text()})
	read := func(name, file string) Anchors {
		a, problem := Read(h, accel.Trust{Identities: []accel.Identity{{Name: name, Authority: "/" + file}}})
		if problem != nil {
			t.Fatal(problem)
		}
		return a
	}
	for _, c := range []struct {
		what   string
		chain  []*issuer
		signer *issuer
		want   bool
	}{
		{"good", []*issuer{good}, good, true},
		{"by an authority in between", []*issuer{certificate(t, between, leaf), between}, nil, true},
		{"without the authority in between", []*issuer{certificate(t, between, leaf)}, nil, false},
		{"by another authority", []*issuer{certificate(t, theirs, leaf), theirs}, nil, false},
		{"by itself", []*issuer{certificate(t, nil, leaf)}, nil, false},
		{"the certificate of somebody else", []*issuer{good}, theirs, false},
		{"no certificate", nil, good, false},
		{"of another name", []*issuer{certificate(t, ours, func(c *x509.Certificate) {
			leaf(c)
			c.EmailAddresses = []string{"ci@example.com.evil.example"}
			c.Subject.CommonName = "ci@example.com"
		})}, nil, false},
		{"by a URI", []*issuer{certificate(t, ours, func(c *x509.Certificate) {
			leaf(c)
			c.EmailAddresses, c.URIs = nil, []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/ci"}}
		})}, nil, false},
		{"expired", []*issuer{certificate(t, ours, func(c *x509.Certificate) {
			leaf(c)
			c.NotAfter = time.Now().Add(-time.Minute)
		})}, nil, false},
		{"for servers", []*issuer{certificate(t, ours, func(c *x509.Certificate) {
			leaf(c)
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})}, nil, false},
	} {
		var chain []*x509.Certificate
		for _, i := range c.chain {
			chain = append(chain, i.Certificate)
		}
		if c.signer == nil {
			c.signer = c.chain[0]
		}
		signature, err := NewKey(c.signer.key).Sign([]byte("the message"))
		if err != nil {
			t.Fatal(err)
		}
		got := read("ci@example.com", "ours").Signed([]byte("the message"), signature, chain)
		if (len(got) == 1) != c.want {
			t.Errorf("%s: signed by %v", c.what, got)
		}
		if !c.want {
			continue
		}
		for _, now := range []struct {
			name, file string
			want       bool
		}{
			{"ci@example.com", "ours", true},
			{"ci@example.com", "both", true},
			{"ci@example.com", "theirs", false},
			{"cd@example.com", "ours", false},
		} {
			if read(now.name, now.file).Has(got) != now.want {
				t.Errorf("%s: with %s by %s it is trusted: %t", c.what, now.name, now.file, !now.want)
			}
		}
	}
}

// TestAnchors: signers are found among several keys, and a file that cannot be used is no smaller list of keys.
func TestAnchors(t *testing.T) {
	one, two := certificate(t, nil, leaf), certificate(t, nil, leaf)
	h := files(t, map[string]string{
		"one": one.public(t), "two": two.public(t), "both": one.public(t) + two.public(t), "none": "",
		"half": one.public(t) + one.text(), "leaf": one.text(),
	})
	signature, err := NewKey(one.key).Sign([]byte("the message"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(names ...string) Anchors {
		a, problem := Read(h, accel.Trust{Keys: names})
		if problem != nil {
			t.Fatal(problem)
		}
		return a
	}
	signers := read("/both").Signed([]byte("the message"), signature, nil)
	if len(signers) != 1 || !read("/two", "/one").Has(signers) || read("/two").Has(signers) || read().Has(signers) ||
		read("/both").Has(nil) || !strings.HasPrefix(Signers(signers), "key sha256:") || Signers(nil) != "nobody" {
		t.Errorf("signed by %v", signers)
	}
	for _, c := range []accel.Trust{
		{Keys: []string{"/none"}},
		{Keys: []string{"/missing"}},
		{Keys: []string{"/one", "/half"}},
		{Identities: []accel.Identity{{Name: "x", Authority: "/leaf"}}},
		{Identities: []accel.Identity{{Name: "x", Authority: "/one"}}},
	} {
		if a, problem := Read(h, c); problem == nil || problem.Reason != accel.ConfigInvalid || !a.Empty() {
			t.Errorf("%+v: %v", c, problem)
		}
	}
}

// FuzzChain: certificates of a stranger are read within a bound, or not at all.
func FuzzChain(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		chain := Chain(text)
		if len(chain) > chainLimit {
			t.Errorf("%d certificates", len(chain))
		}
		a := Anchors{identities: []identity{{name: "x"}}}
		if got := a.Signed([]byte("the message"), []byte("a signature"), chain); len(got) > 0 {
			t.Errorf("signed by %v", got)
		}
	})
}
