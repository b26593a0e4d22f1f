package signing

import (
	"cmp"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
)

// signatureMagic ends a signed module (scripts/sign-file.c).
const signatureMagic = "~Module signature appended~\n"

// signatureTrailer is struct module_signature (include/linux/module_signature.h). It precedes the magic and follows
// the message, which has Size bytes, big-endian.
type signatureTrailer struct {
	Algorithm, Hash, Type, Signer, KeyID byte
	_                                    [3]byte
	Size                                 uint32
}

// trailerSize is the size of a signatureTrailer, and pkcs7Type the only Type that kernels since 4.3 accept.
const (
	trailerSize = 12
	pkcs7Type   = 2
)

// Signature says who signed a module. The kernel finds the key by issuer and serial number, or by the key's
// identifier.
type Signature struct {
	Issuer  string // as the kernel names it, see [fabricatedName]
	rawName []byte // DER
	serial  *big.Int
	keyID   []byte // empty unless the message names the key by its identifier
	Hash    string // "sha256"
	// Damaged says why the kernel would refuse the signature before looking for the key; empty if it would not.
	Damaged string
}

// signedMessage is a PKCS #7 ContentInfo with SignedData (RFC 2315, sections 7 and 9), or its successor CMS (RFC 5652).
type signedMessage struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"optional,tag:0"`
}

type signedData struct {
	Version      int
	Algorithms   []pkix.AlgorithmIdentifier `asn1:"set"`
	Content      signedMessage
	Certificates asn1.RawValue `asn1:"optional,tag:0"`
	Revoked      asn1.RawValue `asn1:"optional,tag:1"`
	Signers      []signerInfo  `asn1:"set"`
}

type signerInfo struct {
	Version    int
	Key        asn1.RawValue // an issuerAndSerial, or the key's identifier under tag 0
	Hash       pkix.AlgorithmIdentifier
	Attributes asn1.RawValue `asn1:"optional,tag:0"`
	Algorithm  pkix.AlgorithmIdentifier
	Signature  []byte
	Others     asn1.RawValue `asn1:"optional,tag:1"`
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

// signatureStart returns where the signature of a module of size bytes starts and ends; both are size if it has none.
// The error says what is wrong with a signature that is present.
func signatureStart(r io.ReaderAt, size int64) (start, end int64, err error) {
	magic := size - int64(len(signatureMagic))
	if magic < 0 {
		return size, size, nil
	}
	text := make([]byte, len(signatureMagic))
	if _, err := r.ReadAt(text, magic); err != nil {
		return 0, 0, err
	}
	if string(text) != signatureMagic {
		return size, size, nil
	}
	if magic < trailerSize {
		return 0, 0, errors.New("the file ends before it")
	}
	end = magic - trailerSize
	var t signatureTrailer
	if err := binary.Read(io.NewSectionReader(r, end, trailerSize), binary.BigEndian, &t); err != nil {
		return 0, 0, err
	}
	start = end - int64(t.Size)
	switch {
	case t.Type != pkcs7Type:
		return 0, 0, fmt.Errorf("it is of type %d, not PKCS #7", t.Type)
	case t.Algorithm != 0 || t.Hash != 0 || t.Signer != 0 || t.KeyID != 0:
		return 0, 0, errors.New("it has fields that PKCS #7 leaves empty")
	case start <= 0 || start == end:
		return 0, 0, fmt.Errorf("it claims %d bytes of a file of %d", t.Size, size)
	}
	return start, end, nil
}

// Read reads the signature of a module file, nil if it has none. It cannot verify the signature: only the kernel has
// the key.
func Read(r io.ReaderAt, size int64) *Signature {
	start, end, err := signatureStart(r, size)
	if err != nil {
		return &Signature{Damaged: err.Error()}
	}
	if start == end {
		return nil
	}
	const most = 1 << 20 // a message has some hundred bytes, with a certificate chain some thousand
	if end-start > most {
		return &Signature{Damaged: fmt.Sprintf("it has %d bytes", end-start)}
	}
	b := make([]byte, end-start)
	if _, err := r.ReadAt(b, start); err != nil {
		return &Signature{Damaged: err.Error()}
	}
	s, err := parseSignature(b)
	if err != nil {
		return &Signature{Damaged: err.Error()}
	}
	return s
}

// parseSignature reads the first signer of a signed message.
func parseSignature(der []byte) (*Signature, error) {
	var m signedMessage
	var d signedData
	if _, err := asn1.Unmarshal(der, &m); err != nil {
		return nil, fmt.Errorf("it is not PKCS #7: %w", err)
	}
	if _, err := asn1.Unmarshal(m.Content.Bytes, &d); err != nil {
		return nil, fmt.Errorf("it is not PKCS #7 signed data: %w", err)
	}
	if len(d.Signers) == 0 {
		return nil, errors.New("it has no signer")
	}
	signer := d.Signers[0]
	s := &Signature{Hash: hashName(signer.Hash.Algorithm)}
	if signer.Key.Class == asn1.ClassContextSpecific && signer.Key.Tag == 0 {
		s.keyID = signer.Key.Bytes
		return s, nil
	}
	var who issuerAndSerial
	if _, err := asn1.Unmarshal(signer.Key.FullBytes, &who); err != nil {
		return nil, fmt.Errorf("its signer cannot be read: %w", err)
	}
	var name pkix.RDNSequence
	if _, err := asn1.Unmarshal(who.Issuer.FullBytes, &name); err != nil {
		return nil, fmt.Errorf("its issuer cannot be read: %w", err)
	}
	s.Issuer, s.rawName, s.serial = fabricatedName(name), who.Issuer.FullBytes, who.Serial
	return s, nil
}

// fabricatedName is the kernel's name for a certificate in /proc/keys, made from its common name, organisation and
// e-mail address (x509_fabricate_name, crypto/asymmetric_keys/x509_cert_parser.c).
func fabricatedName(rdn pkix.RDNSequence) string {
	parts := map[string]string{}
	for _, set := range rdn {
		for _, a := range set {
			parts[a.Type.String()], _ = a.Value.(string)
		}
	}
	common, organisation := parts["2.5.4.3"], parts["2.5.4.10"]
	if common == "" || organisation == "" {
		return cmp.Or(common, organisation, parts["1.2.840.113549.1.9.1"])
	}
	// The organisation is not repeated if the common name starts with it, or if both have the same first seven bytes.
	if strings.HasPrefix(common, organisation) ||
		len(organisation) >= 7 && strings.HasPrefix(common, organisation[:7]) {
		return common
	}
	return organisation + ": " + common
}

// hexID formats a key's number for people, like modinfo.
func (s *Signature) hexID() string {
	b := s.keyID
	if len(b) == 0 && s.serial != nil {
		b = s.serial.Bytes()
	}
	return strings.ReplaceAll(fmt.Sprintf("% X", b), " ", ":")
}

// String names the signer: `"Build time autogenerated kernel key" (5A:C3:…)`.
func (s *Signature) String() string {
	if s.Issuer == "" {
		return "key " + s.hexID()
	}
	return fmt.Sprintf("%q (key %s)", s.Issuer, s.hexID())
}

// hashName is the kernel's name of a hash.
func hashName(oid asn1.ObjectIdentifier) string {
	for name, h := range hashes() {
		if h.oid.Equal(oid) {
			return name
		}
	}
	return oid.String()
}
