package driver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/test/ko"
	"github.com/acceld/acceld/test/ko/signed"
)

// procKeys is /proc/keys of a Debian 12 with Secure Boot, shortened: two built-in keys and one of the platform's.
const procKeys = `0a4c0cd6 I------     1 perm 1f030000     0     0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1: X509.rsa bb419ea1 []
1231d2a4 I------     1 perm 1f0b0000     0     0 keyring   .builtin_trusted_keys: 2
18ac2f32 I------     1 perm 1f030000     0     0 asymmetri Microsoft Corporation: Windows UEFI CA: a92902398e16c49778cd90f99e4f9ae17c55af53: X509.rsa 7c55af53 []
2c3f9a11 I------     1 perm 0f0b0000     0     0 keyring   .blacklist: 77
30b472e8 I--Q---     2 perm 1f3f0000     0 65534 keyring   _uid.0: empty
3f3c9a01 I------     1 perm 1f0b0000     0     0 keyring   .platform: 1
`

// TestPolicy is injection 11: acceld knows what the kernel's policy will answer before it asks the kernel.
func TestPolicy(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := ko.Certificate(t, key, ko.Name())
	mine := procKeys +
		"11111111 I------     1 perm 1f030000     0     0 asymmetri test: signer: deadbeef: X509.id-ecPub deadbeef []\n"
	sameName := procKeys +
		"11111111 I------     1 perm 1f030000     0     0 asymmetri test: signer: 00c0ffee: X509.rsa 00c0ffee []\n"
	dkms := func(m *testMachine) { m.Write("/var/lib/dkms/mok.pub", string(c.Raw)) }
	enforce := func(k *accel.Kernel) { k.SigEnforce = true }
	lock := func(k *accel.Kernel) { k.Lockdown, k.SecureBoot = "integrity", true }
	free := func(*accel.Kernel) {}
	for _, row := range []struct {
		name    string
		signed  bool
		keys    string
		prepare func(*testMachine)
		policy  func(*accel.Kernel)
		want    accel.Reason
		says    string
	}{
		{"free, unsigned", false, procKeys, dkms, free, "", ""},
		{"free, unknown", true, procKeys, dkms, free, "", ""},
		{"enforced, unsigned", false, procKeys, dkms, enforce, accel.Unsigned, "driver.sign"},
		{"locked down, unsigned", false, procKeys, dkms, lock, accel.LockedDown, "Secure Boot is on"},
		{"enforced, known", true, mine, dkms, enforce, "", ""},
		{"locked down, known", true, mine, dkms, lock, "", ""},
		{"enforced, unknown", true, procKeys, dkms, enforce, accel.KeyUnknown, "key 01:23:45:67:89:AB:CD:EF"},
		{
			"locked down, unknown", true, procKeys, dkms, lock, accel.KeyUnknown,
			"`mokutil --import /var/lib/dkms/mok.pub`",
		},
		{"another key of the same name", true, sameName, dkms, enforce, accel.KeyUnknown, "mokutil --import"},
		{"the same name and no certificate", true, sameName, func(*testMachine) {}, enforce, "", ""},
		{
			"unknown and no certificate", true, procKeys, func(*testMachine) {}, enforce, accel.KeyUnknown,
			`mokutil --import <the certificate of "test: signer"`,
		},
		{"no keyrings to be seen", true, "", dkms, enforce, "", ""},
		{"signed as the kernel's own", true, procKeys, func(m *testMachine) {
			m.Install("kernel/own.ko", ko.Module{Name: "own", Signature: signed.By(t, key, "sha256")})
		}, enforce, "", ""},
		{"enrolled by the owner", true, procKeys, func(m *testMachine) {
			m.Write("/sys/firmware/efi/mok-variables/MokListRT", string(signatureList(c)))
		}, enforce, accel.KeyUnknown, "does not take the machine owner's keys"},
		{"modules are switched off", true, mine, dkms, func(k *accel.Kernel) {
			k.ModulesDisabled = true
		}, accel.ModulesDisabled, "next boot"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMachine(t)
			x := ko.Edu()
			if row.signed {
				x.Signature = signed.By(t, key, "sha256")
			}
			m.Install("updates/edu.ko", x)
			if row.keys != "" {
				m.Write("/proc/keys", row.keys)
			}
			row.prepare(m)
			facts := m.Facts()
			row.policy(&facts.Kernel)
			_, problem := m.driver(Options{}).Ensure(t.Context(), ko.Definition(), facts, m.accs())
			if row.want == "" {
				if problem != nil {
					t.Fatal(problem)
				}
				return
			}
			if problem == nil || problem.Reason != row.want || !strings.Contains(problem.Message, row.says) {
				t.Fatal(problem)
			}
			if len(m.loads) != 0 {
				t.Error("the kernel was asked", m.loads)
			}
		})
	}
}

// signatureList is an EFI_SIGNATURE_LIST with one certificate, preceded by a list of hashes.
func signatureList(c *x509.Certificate) []byte {
	list := func(guid []byte, entry []byte) []byte {
		b := binary.LittleEndian.AppendUint32(guid, uint32(28+16+len(entry)))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(16+len(entry)))
		return append(append(b, make([]byte, 16)...), entry...)
	}
	x509List := []byte{0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72}
	return append(list(make([]byte, 16), make([]byte, 32)), list(x509List, c.Raw)...)
}

// TestBuildSigns: a build is signed in the store, and its signer is part of the entry's identity.
func TestBuildSigns(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkshop(t, goodMake)
	m := newMachine(t)
	def := w.definition()
	def.Driver.Sign = ko.KeyFiles(t, m.Root, key)
	def.Driver.Sign.Key, def.Driver.Sign.Certificate = m.Path(def.Driver.Sign.Key), m.Path(def.Driver.Sign.Certificate)
	d := New(w.h, Options{StateDir: w.state})
	plain, problem := d.sources.Build(t.Context(), w.definition(), w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	signed, problem := d.sources.Build(t.Context(), def, w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	if signed.Key == plain.Key || !strings.HasPrefix(signed.Signer, "sha256:") || plain.Signer != "" {
		t.Errorf("%q signed by %q, %q by %q", signed.Key, signed.Signer, plain.Key, plain.Signer)
	}
	i, problem := kmod.Open(w.h, filepath.Join(signed.Path, signed.Modules[0].File))
	if problem != nil {
		t.Fatal(problem)
	}
	defer i.Close()
	if i.Signature == nil || i.Signature.Damaged != "" {
		t.Errorf("%+v", i.Signature)
	}
	if err := os.Chmod(def.Driver.Sign.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	w.write(w.source, "edu.c", "int z;\n")
	if _, problem := d.sources.Build(t.Context(), def, w.facts()); problem == nil ||
		problem.Reason != accel.SigningFailed {
		t.Error(problem)
	}
	if w.runs() != 2 {
		t.Errorf("%d runs of make: a signer that cannot be used must be known before", w.runs())
	}
}
