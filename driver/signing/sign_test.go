package signing

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// testSignature signs some content: the tests that parse signatures need no more.
func testSignature(t testing.TB, hash string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := Signer{key: key, certificate: ko.Certificate(t, key, ko.Name()), hash: hashes()[hash]}
	message, err := s.Message(strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// TestSignLikeTheKernel compares with the kernel's own scripts/sign-file: RSA byte by byte, ECDSA through openssl.
func TestSignLikeTheKernel(t *testing.T) {
	tools, _ := filepath.Glob("/usr/lib/linux-kbuild-*/scripts/sign-file")
	found, _ := filepath.Glob("/lib/modules/*/build/scripts/sign-file")
	tools = append(tools, found...)
	openssl, err := exec.LookPath("openssl")
	if err != nil && len(tools) == 0 {
		t.Skip("neither scripts/sign-file nor openssl is installed")
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := ko.NewMachine(t)
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey, "ECDSA": ecKey} {
		for hash := range hashes() {
			t.Run(name+" "+hash, func(t *testing.T) {
				def := ko.Definition()
				def.Driver.Sign = ko.KeyFiles(t, m.Root, key)
				def.Driver.Sign.Hash = hash
				s, problem := Open(m.Host, def)
				if problem != nil {
					t.Fatal(problem)
				}
				plain := ko.Edu().Bytes()
				m.Write("/m/edu.ko", string(plain))
				for range 2 { // signing a signed module replaces its signature
					if problem := Sign(m.Host, s, "/m/edu.ko"); problem != nil {
						t.Fatal(problem)
					}
				}
				ours := []byte(m.Read("/m/edu.ko"))
				i := Read(bytes.NewReader(ours), int64(len(ours)))
				if i == nil || i.Damaged != "" || i.Hash != hash || i.Issuer != "test: signer" ||
					i.hexID() != "01:23:45:67:89:AB:CD:EF" {
					t.Fatalf("%+v", i)
				}
				for _, tool := range tools {
					theirs := filepath.Join(t.TempDir(), "edu.ko")
					if err := os.WriteFile(theirs, plain, 0o600); err != nil {
						t.Fatal(err)
					}
					out, err := exec.CommandContext(t.Context(), tool, hash, m.Path("/etc/keys/key.pem"),
						m.Path("/etc/keys/cert.der"), theirs).CombinedOutput()
					if err != nil {
						t.Fatalf("%s: %v %s", tool, err, out)
					}
					b, err := os.ReadFile(theirs)
					if err != nil {
						t.Fatal(err)
					}
					if name == "RSA" && !bytes.Equal(b, ours) {
						t.Errorf("%s writes %d bytes, we %d, and not the same", tool, len(b), len(ours))
					}
				}
				if openssl == "" {
					return
				}
				start, end, err := signatureStart(bytes.NewReader(ours), int64(len(ours)))
				if err != nil || start != int64(len(plain)) {
					t.Fatal(start, err)
				}
				m.Write("/m/message", string(ours[start:end]))
				m.Write("/m/content", string(plain))
				out, err := exec.CommandContext(t.Context(), openssl, "cms", "-verify", "-binary", "-inform", "DER",
					"-in", m.Path("/m/message"),
					"-content", m.Path("/m/content"), "-certfile", m.Path("/etc/keys/cert.pem"), "-noverify",
					"-nointern", "-out", os.DevNull).CombinedOutput()
				if err != nil {
					t.Errorf("openssl: %v: %s", err, out)
				}
			})
		}
	}
}

// TestSignerRefused has a row for each defect of a signer.
func TestSignerRefused(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*ko.Machine, *accel.Signer)
		says   string
	}{
		{"good", func(*ko.Machine, *accel.Signer) {}, ""},
		{"DER", func(_ *ko.Machine, s *accel.Signer) { s.Certificate = "/etc/keys/cert.der" }, ""},
		{"hash", func(_ *ko.Machine, s *accel.Signer) { s.Hash = "md5" }, `hash "md5"`},
		{"no key", func(_ *ko.Machine, s *accel.Signer) { s.Key = "/nowhere" }, "/nowhere"},
		{"open key", func(m *ko.Machine, s *accel.Signer) { _ = os.Chmod(m.Path(s.Key), 0o640) }, "root alone"},
		{"no PEM", func(m *ko.Machine, s *accel.Signer) { m.Write(s.Key, "x") }, "no private key"},
		{"encrypted", func(m *ko.Machine, s *accel.Signer) {
			m.Write(s.Key, string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}})))
		}, "encrypted"},
		{"no certificate", func(m *ko.Machine, s *accel.Signer) {
			m.Write(s.Certificate, "x")
		}, `certificate "/etc/keys/cert.pem"`},
		{"another's certificate", func(m *ko.Machine, s *accel.Signer) {
			m.Write(s.Certificate, string(ko.Certificate(m.T, other, ko.Name()).Raw))
		}, "is not of the key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := ko.NewMachine(t)
			def := ko.Definition()
			def.Driver.Sign = ko.KeyFiles(t, m.Root, key)
			c.change(m, def.Driver.Sign)
			s, problem := Open(m.Host, def)
			if c.says == "" {
				if problem != nil || s == nil {
					t.Fatal(problem)
				}
				return
			}
			if problem == nil || problem.Reason != accel.SigningFailed || !strings.Contains(problem.Message, c.says) {
				t.Fatal(problem)
			}
		})
	}
}

// TestSignatureDamaged changes every byte of a signature: no panic, and no module that claims to be unsigned although
// its magic is there.
func TestSignatureDamaged(t *testing.T) {
	x := ko.Edu()
	plain := len(x.Bytes())
	x.Signature = testSignature(t, "sha256")
	whole := x.Bytes()
	for i := plain; i < len(whole)-len(signatureMagic); i++ {
		for _, to := range []byte{0, 1, 0x7f, 0xff} {
			b := bytes.Clone(whole)
			b[i] = to
			if Read(bytes.NewReader(b), int64(len(b))) == nil && b[i] != whole[i] {
				t.Fatalf("byte %d as %#x: unsigned", i-plain, to)
			}
		}
	}
	for n := range len(signatureMagic) + trailerSize {
		b := whole[len(whole)-len(signatureMagic)-n:]
		s := Read(bytes.NewReader(b), int64(len(b)))
		if s == nil || s.Damaged == "" {
			t.Errorf("the last %d bytes: %+v", n, s)
		}
	}
}

func FuzzSignature(f *testing.F) {
	f.Add(testSignature(f, "sha256"))
	f.Add([]byte(signatureMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseSignature(b); (s == nil) == (err == nil) {
			t.Fatal("both or neither of a signature and an error")
		}
		_ = Read(bytes.NewReader(b), int64(len(b)))
		_, _ = parseKeys(string(b))
		for _, der := range signatureListCertificates(b) {
			_, _ = x509.ParseCertificate(der)
		}
	})
}
