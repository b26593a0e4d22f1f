package artifact

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/trust"
)

// TestRequire: with trust.require a key of the host must have signed, whatever keys a source names; and a source that
// names keys needs one of them, whatever the host trusts. Who signed is returned.
func TestRequire(t *testing.T) {
	b := newWorkbench(t)
	keys := map[string]*trust.Key{"nobody": nil}
	for _, name := range []string{"host", "source"} {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = trust.NewKey(private)
		b.public("/etc/"+name, private.Public())
	}
	for _, c := range []struct {
		by      string
		source  bool // names a key
		trust   bool // the host names a key
		require bool
		good    bool
		signers int
	}{
		{"nobody", false, false, false, true, 0},
		{"nobody", false, true, false, true, 0},
		{"nobody", false, true, true, false, 0},
		{"nobody", true, false, false, false, 0},
		{"host", false, false, false, true, 0},
		{"host", false, true, false, true, 1},
		{"host", false, true, true, true, 1},
		{"host", true, true, true, false, 0},
		{"source", true, false, false, true, 1},
		{"source", true, true, false, true, 1},
		{"source", true, true, true, false, 0},
		{"source", false, true, true, false, 0},
	} {
		s := accel.Source{Image: serve(t, newRegistry()) + "/edu"}
		b.push(s, PushOptions{Key: keys[c.by]})
		bundled := accel.Source{Type: accel.SourceBundle, Path: "/tmp/b.tar"}
		if _, problem := b.c.Export(bundled.Path, []Content{content()}, b.empty(), keys[c.by]); problem != nil {
			t.Fatal(problem)
		}
		if c.source {
			s.Keys, bundled.Keys = []string{"/etc/source"}, []string{"/etc/source"}
		}
		b.c.o.Trust = accel.Trust{Require: c.require}
		if c.trust {
			b.c.o.Trust.Keys = []string{"/etc/host"}
		}
		dir := b.empty()
		one, problem := b.c.Pull(t.Context(), s, this(), dir)
		other, also := b.c.PullBundle(t.Context(), bundled, this(), b.empty())
		if (problem == nil) != c.good || (also == nil) != c.good || len(one.Signers) != c.signers ||
			len(other.Signers) != c.signers {
			t.Errorf("%+v: signed by %v (%v), in a bundle by %v (%v)", c, one.Signers, problem, other.Signers, also)
		}
		for _, problem := range []*accel.Problem{problem, also} {
			if problem != nil && problem.Reason != accel.SignatureInvalid {
				t.Errorf("%+v: %v", c, problem)
			}
		}
		if left := b.tree(dir); !c.good && len(left) > 0 {
			t.Errorf("%+v: left are %v", c, left)
		}
	}
}

// TestCertifiedSigner: the certificate of a signer comes with the signature, as cosign stores it beside a signature and
// in a bundle. The host names the signer, not its key.
func TestCertifiedSigner(t *testing.T) {
	root, rootKey := certify(t, nil, nil, "")
	signer, key := certify(t, root, rootKey, "ci@example.com")
	b := newWorkbench(t)
	text := func(c *x509.Certificate) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	b.write("/etc/root.pem", text(root))
	for name, sign := range map[string]func(v1.Hash) (assembled, error){
		"beside a signature": func(digest v1.Hash) (assembled, error) {
			a, err := signature(trust.NewKey(key), "registry.test/edu", digest)
			if err != nil {
				return a, err
			}
			layer := a.blobs[1]
			layer.Annotations[certificateAnnotation], layer.Annotations[chainAnnotation] = text(signer), text(root)
			return assemble(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}, a.blobs[0], layer)
		},
		"in a bundle": func(digest v1.Hash) (assembled, error) {
			statement, _ := json.Marshal(map[string]any{
				"predicateType": signPredicate,
				"subject":       []any{map[string]any{"digest": map[string]string{"sha256": digest.Hex}}},
			})
			signed, err := trust.NewKey(key).Sign(encoded(statement))
			if err != nil {
				return assembled{}, err
			}
			text, _ := json.Marshal(map[string]any{
				"verificationMaterial": map[string]any{"certificate": map[string]any{"rawBytes": signer.Raw}},
				"dsseEnvelope": map[string]any{
					"payload": statement, "payloadType": statementType,
					"signatures": []any{map[string]string{"sig": base64.StdEncoding.EncodeToString(signed)}},
				},
			})
			return assemble(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1},
				memoryBlob(types.OCIConfigJSON, []byte("{}")), memoryBlob(bundleType, text))
		},
	} {
		s := accel.Source{Image: serve(t, newRegistry()) + "/edu"}
		pushed := b.push(s, PushOptions{})
		digest, err := v1.NewHash(pushed.Digest)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := sign(digest)
		if err != nil {
			t.Fatal(err)
		}
		b.upload(s, signed, signatureTag(digest))
		for who, good := range map[string]bool{"ci@example.com": true, "cd@example.com": false} {
			b.c.o.Trust = accel.Trust{
				Identities: []accel.Identity{{Name: who, Authority: "/etc/root.pem"}}, Require: true,
			}
			pulled, problem := b.c.Pull(t.Context(), s, this(), b.empty())
			if (problem == nil) != good || good && (len(pulled.Signers) != 1 || pulled.Signers[0].Name != who) ||
				problem != nil && !strings.Contains(problem.Message, "trust.require") {
				t.Errorf("%s, %s: %v %v", name, who, pulled.Signers, problem)
			}
		}
	}
}

// certify creates a certificate of an authority, or one for signing code by a name.
func certify(t *testing.T, by *x509.Certificate, byKey *ecdsa.PrivateKey, name string) (*x509.Certificate,
	*ecdsa.PrivateKey,
) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: name == "",
	}
	if by == nil {
		by, byKey = c, key
	} else {
		c.EmailAddresses, c.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), byKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}
