package signing

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes that modules are signed with
	_ "crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// hashAlgorithm is one hash that kernels accept, with its identifiers (RFC 5754).
type hashAlgorithm struct {
	hash       crypto.Hash
	oid, ecdsa asn1.ObjectIdentifier
}

func hashes() map[string]hashAlgorithm {
	oid := func(last int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, last} }
	withECDSA := func(last int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, last} }
	return map[string]hashAlgorithm{
		"sha256": {crypto.SHA256, oid(1), withECDSA(2)},
		"sha384": {crypto.SHA384, oid(2), withECDSA(3)},
		"sha512": {crypto.SHA512, oid(3), withECDSA(4)},
	}
}

// Signer signs modules like the kernel's scripts/sign-file, with the same bytes if the algorithm is deterministic.
// The message has no signed attributes and no certificates, and names its key by issuer and serial number.
type Signer struct {
	key         crypto.Signer
	certificate *x509.Certificate
	hash        hashAlgorithm
	// id identifies the signer in the identity of a build: hash and certificate, so that a renewed key makes another
	// driver.
	id string
}

// Identity is the id of a signer, empty if s is nil.
func (s *Signer) Identity() string {
	if s == nil {
		return ""
	}
	return s.id
}

// Open reads the definition's signer, nil if it has none. It refuses a key that anyone but its owner can read:
// whoever has the key can make this kernel run anything.
func Open(h *host.Host, def *accel.Definition) (*Signer, *accel.Problem) {
	s := def.Driver.Sign
	if s == nil {
		return nil, nil
	}
	bad := func(format string, args ...any) (*Signer, *accel.Problem) {
		return nil, accel.Problemf(accel.SigningFailed, "cannot sign the driver of %q: %s", def.Kind,
			fmt.Sprintf(format, args...))
	}
	name := cmp.Or(s.Hash, "sha256")
	hash, ok := hashes()[name]
	if !ok {
		return bad("hash %q is not one of sha256, sha384, sha512", name)
	}
	st, err := h.Stat(s.Key)
	if err != nil {
		return bad("key: %v", err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 || ok &&
		sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return bad("key %q has mode %v: it must be a file that root alone can read (chown root, chmod 0600)", s.Key,
			st.Mode())
	}
	text, err := h.ReadFile(s.Key)
	if err != nil {
		return bad("key: %v", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return bad("key %q: %v", s.Key, err)
	}
	if text, err = h.ReadFile(s.Certificate); err != nil {
		return bad("certificate: %v", err)
	}
	certificate, err := parseCertificate(text)
	if err != nil {
		return bad("certificate %q: %v", s.Certificate, err)
	}
	public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return bad("certificate %q is not of the key %q", s.Certificate, s.Key)
	}
	sum := hash.hash.New()
	_, _ = sum.Write(certificate.Raw) // a hash never fails
	return &Signer{key: key, certificate: certificate, hash: hash, id: name + ":" +
		hex.EncodeToString(sum.Sum(nil))[:32]}, nil
}

// parseKey reads a private key in PEM: PKCS #8, PKCS #1 or SEC 1.
func parseKey(text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("no private key in PEM")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("it is encrypted: nobody is there to be asked for the passphrase")
		default:
			continue // curve parameters, or a certificate
		}
		if err != nil {
			return nil, err
		}
		switch key.(type) {
		case *rsa.PrivateKey, *ecdsa.PrivateKey:
			return key.(crypto.Signer), nil
		}
		return nil, errors.New("neither RSA nor ECDSA, which are what kernels know")
	}
}

// parseCertificate reads a certificate in PEM or DER.
func parseCertificate(text []byte) (*x509.Certificate, error) {
	for rest := text; ; {
		block, more := pem.Decode(rest)
		if block == nil {
			return x509.ParseCertificate(text)
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
		rest = more
	}
}

// Message returns the signature of the content, as PKCS #7.
func (s *Signer) Message(content io.Reader) ([]byte, error) {
	sum := s.hash.hash.New()
	if _, err := io.Copy(sum, content); err != nil {
		return nil, err
	}
	signed, err := s.key.Sign(rand.Reader, sum.Sum(nil), s.hash.hash)
	if err != nil {
		return nil, err
	}
	who, err := asn1.Marshal(issuerAndSerial{
		asn1.RawValue{FullBytes: s.certificate.RawIssuer},
		s.certificate.SerialNumber,
	})
	if err != nil {
		return nil, err
	}
	algorithm := pkix.AlgorithmIdentifier{Algorithm: s.hash.ecdsa}
	if _, ok := s.key.(*rsa.PrivateKey); ok {
		algorithm = pkix.AlgorithmIdentifier{
			Algorithm:  asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1},
			Parameters: asn1.NullRawValue,
		}
	}
	hash := pkix.AlgorithmIdentifier{Algorithm: s.hash.oid}
	data, err := asn1.Marshal(signedData{
		Version: 1, Algorithms: []pkix.AlgorithmIdentifier{hash}, Content: signedMessage{Type: asn1.ObjectIdentifier{
			1,
			2, 840, 113549, 1, 7, 1,
		}},
		Signers: []signerInfo{{
			Version: 1, Key: asn1.RawValue{FullBytes: who}, Hash: hash, Algorithm: algorithm,
			Signature: signed,
		}},
	})
	if err != nil {
		return nil, err
	}
	content0 := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: data}
	return asn1.Marshal(signedMessage{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, Content: content0})
}

// Sign appends the signature to the module file, replacing any signatures it has.
func Sign(h *host.Host, s *Signer, file string) *accel.Problem {
	if s == nil {
		return nil
	}
	if err := signFile(h, s, file); err != nil {
		return accel.Problemf(accel.ReasonForError(err, accel.SigningFailed), "cannot sign module file %q: %v", file,
			err)
	}
	return nil
}

func signFile(h *host.Host, s *Signer, file string) error {
	f, err := h.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size, err := unsignedSize(f, st.Size())
	if err != nil {
		return err
	}
	message, err := s.Message(io.NewSectionReader(f, 0, size))
	if err != nil {
		return err
	}
	body := make([]byte, size, size+int64(len(message)+trailerSize+len(signatureMagic)))
	if _, err := f.ReadAt(body, 0); err != nil {
		return err
	}
	body = append(append(body, message...), 0, 0, pkcs7Type, 0, 0, 0, 0, 0)
	body = binary.BigEndian.AppendUint32(body, uint32(len(message)))
	return h.WriteFile(file, append(body, signatureMagic...), 0o600)
}

// unsignedSize returns the size of a module file without its signatures. The kernel's own tool would append a second
// signature to the first, and the kernel would then treat the first as part of the module.
func unsignedSize(r io.ReaderAt, size int64) (int64, error) {
	for {
		start, end, err := signatureStart(r, size)
		if err != nil || start == end {
			return size, err
		}
		size = start
	}
}
