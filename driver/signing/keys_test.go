package signing

import (
	"crypto/x509/pkix"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// procKeys is /proc/keys of a Debian 12 with Secure Boot, shortened: two built-in keys and one of the platform's.
const procKeys = `0a4c0cd6 I------     1 perm 1f030000     0     0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1: X509.rsa bb419ea1 []
1231d2a4 I------     1 perm 1f0b0000     0     0 keyring   .builtin_trusted_keys: 2
18ac2f32 I------     1 perm 1f030000     0     0 asymmetri Microsoft Corporation: Windows UEFI CA: a92902398e16c49778cd90f99e4f9ae17c55af53: X509.rsa 7c55af53 []
2c3f9a11 I------     1 perm 0f0b0000     0     0 keyring   .blacklist: 77
30b472e8 I--Q---     2 perm 1f3f0000     0 65534 keyring   _uid.0: empty
3f3c9a01 I------     1 perm 1f0b0000     0     0 keyring   .platform: 1
`

func TestParseKeys(t *testing.T) {
	rings, keys := parseKeys(procKeys + "short\nzz I - 1 perm 1 0 0 asymmetri x: y: X509.rsa\n")
	if diff := cmp.Diff(map[string]int32{
		".builtin_trusted_keys": 0x1231d2a4, ".blacklist": 0x2c3f9a11,
		"_uid.0": 0x30b472e8, ".platform": 0x3f3c9a01,
	}, rings); diff != "" {
		t.Error(diff)
	}
	want := []kernelKey{
		{serial: 0x0a4c0cd6, name: "Debian Secure Boot CA", id: "6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1"},
		{
			serial: 0x18ac2f32, name: "Microsoft Corporation: Windows UEFI CA",
			id: "a92902398e16c49778cd90f99e4f9ae17c55af53",
		},
	}
	if diff := cmp.Diff(want, keys, cmp.AllowUnexported(kernelKey{})); diff != "" {
		t.Error(diff)
	}
}

func TestFabricatedName(t *testing.T) {
	for _, c := range []struct{ common, organisation, want string }{
		{"signer", "test", "test: signer"},
		{"Debian Secure Boot CA", "", "Debian Secure Boot CA"},
		{"", "Acme", "Acme"},
		{"Acme module key", "Acme", "Acme module key"},
		{"Microsoft Windows", "Microsoft Corporation", "Microsoft Windows"},
		{"", "", ""},
	} {
		n := pkix.Name{CommonName: c.common}
		if c.organisation != "" {
			n.Organization = []string{c.organisation}
		}
		if got := fabricatedName(n.ToRDNSequence()); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
