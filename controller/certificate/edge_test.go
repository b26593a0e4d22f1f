package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheirsRunsOut: a certificate that somebody else maintains is theirs to renew, even when it is long due.
func TestTheirsRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, err := made(time.Now(), names())
		if err != nil {
			t.Fatal(err)
		}
		s := &server{}
		s.edit(theirs, nil)
		keep(t, s, io.Discard)
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		if _, writes := s.get(); writes != 0 {
			t.Errorf("%d writes", writes)
		}
	})
}

// TestUses: the certificates are valid only for their purpose.
func TestUses(t *testing.T) {
	data, err := made(time.Now(), names())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[[2]string][]x509.ExtKeyUsage{
		{serverCertificate, serverKey}: {x509.ExtKeyUsageServerAuth},
		{clientCertificate, clientKey}: {x509.ExtKeyUsageClientAuth},
	} {
		pair, err := tls.X509KeyPair(data[name[0]], data[name[1]])
		if err != nil {
			t.Fatal(err)
		}
		if pair.Leaf.IsCA || !slices.Equal(pair.Leaf.ExtKeyUsage, want) {
			t.Errorf("%s: authority %t, uses %v", name[0], pair.Leaf.IsCA, pair.Leaf.ExtKeyUsage)
		}
	}
}

// TestNoAuthority: without the authority of the clients, nobody is let in: anybody could bind pods.
func TestNoAuthority(t *testing.T) {
	for _, authority := range []string{"", " \n", "no certificate"} {
		data, err := made(time.Now(), []string{"x"})
		if err != nil {
			t.Fatal(err)
		}
		data[authorityCertificate] = []byte(authority)
		if config, err := usable(data); err == nil || config != nil || !strings.Contains(err.Error(), "ca.crt") {
			t.Errorf("with %q: %v, %v", authority, config, err)
		}
	}
}
