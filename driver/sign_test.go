package driver

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

// testSignature signs something: the tests of what is read of a signature need no more.
func testSignature(t testing.TB, hash string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := signer{key: key, certificate: ko.Certificate(t, key, ko.Name()), hash: hashes()[hash]}
	message, err := s.message(strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// TestSignLikeTheKernel compares with the kernel's own scripts/sign-file: RSA to the byte, ECDSA by openssl.
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
	m := newMachine(t)
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey, "ECDSA": ecKey} {
		for hash := range hashes() {
			t.Run(name+" "+hash, func(t *testing.T) {
				def := ko.Definition()
				def.Driver.Sign = ko.KeyFiles(t, m.root, key)
				def.Driver.Sign.Hash = hash
				s, problem := openSigner(m.h, def)
				if problem != nil {
					t.Fatal(problem)
				}
				plain := ko.Edu().Bytes()
				m.write("/m/edu.ko", string(plain))
				for range 2 { // what is signed already is signed anew
					if problem := sign(m.h, s, "/m/edu.ko"); problem != nil {
						t.Fatal(problem)
					}
				}
				ours := []byte(m.read("/m/edu.ko"))
				i, problem := openImage(m.h, "/m/edu.ko")
				if problem != nil || i.signature == nil || i.signature.damaged != "" || i.signature.hash != hash || i.signature.issuer != "test: signer" || i.signature.hexID() != "01:23:45:67:89:AB:CD:EF" {
					t.Fatalf("%v %+v", problem, i.signature)
				}
				i.close()
				for _, tool := range tools {
					theirs := filepath.Join(t.TempDir(), "edu.ko")
					if err := os.WriteFile(theirs, plain, 0o600); err != nil {
						t.Fatal(err)
					}
					out, err := exec.CommandContext(t.Context(), tool, hash, m.path("/etc/keys/key.pem"), m.path("/etc/keys/cert.der"), theirs).CombinedOutput()
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
				m.write("/m/message", string(ours[start:end]))
				m.write("/m/content", string(plain))
				out, err := exec.CommandContext(t.Context(), openssl, "cms", "-verify", "-binary", "-inform", "DER", "-in", m.path("/m/message"),
					"-content", m.path("/m/content"), "-certfile", m.path("/etc/keys/cert.pem"), "-noverify", "-nointern", "-out", os.DevNull).CombinedOutput()
				if err != nil {
					t.Errorf("openssl: %v: %s", err, out)
				}
			})
		}
	}
}

// TestSignerRefused has a row for each way in which a signer is wrong.
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
		change func(*testMachine, *accel.Signer)
		says   string
	}{
		{"good", func(*testMachine, *accel.Signer) {}, ""},
		{"DER", func(_ *testMachine, s *accel.Signer) { s.Certificate = "/etc/keys/cert.der" }, ""},
		{"hash", func(_ *testMachine, s *accel.Signer) { s.Hash = "md5" }, `hash "md5"`},
		{"no key", func(_ *testMachine, s *accel.Signer) { s.Key = "/nowhere" }, "/nowhere"},
		{"open key", func(m *testMachine, s *accel.Signer) { _ = os.Chmod(m.path(s.Key), 0o640) }, "root alone"},
		{"no PEM", func(m *testMachine, s *accel.Signer) { m.write(s.Key, "x") }, "no private key"},
		{"encrypted", func(m *testMachine, s *accel.Signer) {
			m.write(s.Key, string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}})))
		}, "encrypted"},
		{"no certificate", func(m *testMachine, s *accel.Signer) { m.write(s.Certificate, "x") }, `certificate "/etc/keys/cert.pem"`},
		{"another's certificate", func(m *testMachine, s *accel.Signer) {
			m.write(s.Certificate, string(ko.Certificate(m.t, other, ko.Name()).Raw))
		}, "is not of the key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			def := ko.Definition()
			def.Driver.Sign = ko.KeyFiles(t, m.root, key)
			c.change(m, def.Driver.Sign)
			s, problem := openSigner(m.h, def)
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

// TestSignatureDamaged changes every byte of a signature: never a panic, never a module that claims to be unsigned
// while its magic is there.
func TestSignatureDamaged(t *testing.T) {
	x := ko.Edu()
	plain := len(x.Bytes())
	x.Signature = testSignature(t, "sha256")
	whole := x.Bytes()
	for i := plain; i < len(whole)-len(signatureMagic); i++ {
		for _, to := range []byte{0, 1, 0x7f, 0xff} {
			b := bytes.Clone(whole)
			b[i] = to
			if readSignature(bytes.NewReader(b), int64(len(b))) == nil && b[i] != whole[i] {
				t.Fatalf("byte %d as %#x: unsigned", i-plain, to)
			}
		}
	}
	for n := range len(signatureMagic) + trailerSize {
		b := whole[len(whole)-len(signatureMagic)-n:]
		s := readSignature(bytes.NewReader(b), int64(len(b)))
		if s == nil || s.damaged == "" {
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
		_ = readSignature(bytes.NewReader(b), int64(len(b)))
		for _, der := range signatureListCertificates(b) {
			_, _ = x509.ParseCertificate(der)
		}
	})
}

// TestBuildSigns: what is built is signed in the store, and the signer is a part of what it is.
func TestBuildSigns(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkshop(t, goodMake)
	m := newMachine(t)
	def := w.definition()
	def.Driver.Sign = ko.KeyFiles(t, m.root, key)
	def.Driver.Sign.Key, def.Driver.Sign.Certificate = m.path(def.Driver.Sign.Key), m.path(def.Driver.Sign.Certificate)
	d := New(w.h, Options{StateDir: w.state})
	plain, problem := d.Build(t.Context(), w.definition(), w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	signed, problem := d.Build(t.Context(), def, w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	if signed.Key == plain.Key || !strings.HasPrefix(signed.Signer, "sha256:") || plain.Signer != "" {
		t.Errorf("%q signed by %q, %q by %q", signed.Key, signed.Signer, plain.Key, plain.Signer)
	}
	i, problem := openImage(w.h, filepath.Join(signed.Path, signed.Modules[0].File))
	if problem != nil {
		t.Fatal(problem)
	}
	defer i.close()
	if i.signature == nil || i.signature.damaged != "" {
		t.Errorf("%+v", i.signature)
	}
	if err := os.Chmod(def.Driver.Sign.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	w.write(w.source, "edu.c", "int z;\n")
	if _, problem := d.Build(t.Context(), def, w.facts()); problem == nil || problem.Reason != accel.SigningFailed {
		t.Error(problem)
	}
	if w.runs() != 2 {
		t.Errorf("%d runs of make: a signer that cannot be used must be known before", w.runs())
	}
}
