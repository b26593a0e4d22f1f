package packages

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/acceld/acceld/accel"
)

// An rpm is a lead, a header with signatures, a header that says what it is, and a payload (rpm's manual, "RPM V4
// package format"). A header is an intro, an index and a store.
const (
	leadSize     = 96
	introSize    = 16
	entrySize    = 16
	entriesLimit = 16 << 10
	storeLimit   = 64 << 20
)

// The tags that are read, of the signatures and of the package (include/rpm/rpmtag.h of rpm 6.0).
const (
	tagSignDSA    = 267  // over the header: DSA, and EdDSA
	tagSignRSA    = 268  // over the header
	tagSignatures = 278  // over the header: base64, several
	tagSignPGP    = 1002 // over header and payload: RSA
	tagSignGPG    = 1005 // over header and payload: DSA

	tagName          = 1000
	tagVersion       = 1001
	tagRelease       = 1002
	tagEpoch         = 1003
	tagArch          = 1022
	tagPayload       = 1124 // format
	tagSource        = 1044 // a source package has none
	tagPayloadDigest = 5092
	tagPayloadHash   = 5093 // algorithm, as of OpenPGP: 8 is SHA-256, 10 SHA-512
)

// The types of values (lib/rpmtag.h).
const (
	typeInt32   = 4
	typeString  = 6
	typeBytes   = 7
	typeStrings = 8
	typeI18N    = 9
)

// rpmFile is an rpm up to its payload.
type rpmFile struct {
	name, version, architecture string

	header        []byte // what is signed
	digest        string // of the payload, in hexadecimal; empty if the header has none
	algorithm     int
	overHeader    [][]byte // signatures
	overAll       [][]byte
	payloadFormat string
}

// readRPM reads an rpm up to its payload, which the reader has next. The error blames the file.
func readRPM(r io.Reader) (rpmFile, error) {
	var out rpmFile
	lead := make([]byte, leadSize)
	if _, err := io.ReadFull(r, lead); err != nil || !bytes.HasPrefix(lead, []byte("\xed\xab\xee\xdb")) {
		return out, errors.New("it is no rpm")
	}
	signatures, size, err := readHeader(r)
	if err != nil {
		return out, fmt.Errorf("its signatures cannot be read: %w", err)
	}
	if _, err := io.CopyN(io.Discard, r, (8-size%8)%8); err != nil {
		return out, io.ErrUnexpectedEOF
	}
	h, _, err := readHeader(r)
	if err != nil {
		return out, fmt.Errorf("its header cannot be read: %w", err)
	}
	for _, tag := range []int32{tagSignRSA, tagSignDSA} {
		if raw := signatures.bytes(tag); raw != nil {
			out.overHeader = append(out.overHeader, raw)
		}
	}
	for _, text := range signatures.strings(tagSignatures) {
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			out.overHeader = append(out.overHeader, raw)
		}
	}
	for _, tag := range []int32{tagSignPGP, tagSignGPG} {
		if raw := signatures.bytes(tag); raw != nil {
			out.overAll = append(out.overAll, raw)
		}
	}
	epoch := ""
	if n, ok := h.number(tagEpoch); ok {
		epoch = fmt.Sprint(n)
	}
	out.header, out.name, out.architecture = h.raw, h.string(tagName), h.string(tagArch)
	out.version = evr(epoch, h.string(tagVersion), h.string(tagRelease))
	out.digest, out.payloadFormat = h.string(tagPayloadDigest), h.string(tagPayload)
	n, _ := h.number(tagPayloadHash)
	out.algorithm = int(n)
	switch {
	case !packageName.MatchString(out.name) || !versionForm.MatchString(out.version):
		return out, errors.New("its header names no package and version")
	case h.string(tagSource) == "":
		return out, errors.New("it is a package of source code")
	case out.payloadFormat != "" && out.payloadFormat != "cpio":
		return out, fmt.Errorf("its payload is %.32q, not cpio", out.payloadFormat)
	}
	return out, nil
}

// rpmHeader is a header of an rpm.
type rpmHeader struct {
	raw     []byte
	entries map[int32]rpmEntry
	store   []byte
}

type rpmEntry struct{ kind, offset, count int32 }

// readHeader reads a header and returns the size of its store.
func readHeader(r io.Reader) (rpmHeader, int64, error) {
	h := rpmHeader{entries: map[int32]rpmEntry{}}
	intro := make([]byte, introSize)
	if _, err := io.ReadFull(r, intro); err != nil {
		return h, 0, err
	}
	if !bytes.HasPrefix(intro, []byte("\x8e\xad\xe8\x01")) {
		return h, 0, errors.New("it has no magic number")
	}
	count, size := int64(binary.BigEndian.Uint32(intro[8:])), int64(binary.BigEndian.Uint32(intro[12:]))
	if count > entriesLimit || size > storeLimit {
		return h, 0, fmt.Errorf("it has %d entries of %d bytes", count, size)
	}
	raw := bytes.NewBuffer(intro) // grows with what comes, not with what is promised
	if _, err := io.CopyN(raw, r, count*entrySize+size); err != nil {
		return h, 0, io.ErrUnexpectedEOF
	}
	h.raw = raw.Bytes()
	index := h.raw[introSize:][:count*entrySize]
	h.store = h.raw[introSize+len(index):]
	for ; len(index) > 0; index = index[entrySize:] {
		at := func(i int) int32 { return int32(binary.BigEndian.Uint32(index[4*i:])) }
		if _, twice := h.entries[at(0)]; twice {
			return h, 0, fmt.Errorf("it has tag %d twice", at(0))
		}
		h.entries[at(0)] = rpmEntry{kind: at(1), offset: at(2), count: at(3)}
	}
	return h, size, nil
}

// value returns the store from a value on, if the tag is there with one of the types.
func (h rpmHeader) value(tag int32, kinds ...int32) (store []byte, count int, ok bool) {
	e, ok := h.entries[tag]
	if !ok || !slices.Contains(kinds, e.kind) || e.offset < 0 || int64(e.offset) >= int64(len(h.store)) || e.count < 0 {
		return nil, 0, false
	}
	return h.store[e.offset:], int(e.count), true
}

func (h rpmHeader) bytes(tag int32) []byte {
	store, count, ok := h.value(tag, typeBytes)
	if !ok || count > len(store) {
		return nil
	}
	return store[:count]
}

func (h rpmHeader) number(tag int32) (uint32, bool) {
	store, count, ok := h.value(tag, typeInt32)
	if !ok || count < 1 || len(store) < 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(store), true
}

// strings returns the texts of a tag, up to as many as a package has signatures.
func (h rpmHeader) strings(tag int32) []string {
	const most = 64
	store, count, ok := h.value(tag, typeString, typeStrings, typeI18N)
	var out []string
	for ok && len(out) < min(count, most) {
		text, rest, ended := bytes.Cut(store, []byte{0})
		if !ended {
			break
		}
		out, store = append(out, string(text)), rest
	}
	return out
}

func (h rpmHeader) string(tag int32) string {
	if all := h.strings(tag); len(all) > 0 {
		return all[0]
	}
	return ""
}

// payloadHash is the algorithm of the digest of the payload; nil if it is none that is trusted.
func (r rpmFile) payloadHash() hash.Hash {
	switch r.algorithm {
	case 8:
		return sha256.New()
	case 10:
		return sha512.New()
	}
	return nil
}

// checkRPM verifies that an rpm is the wanted package and returns the fingerprint of the key that signed it. If a
// signed repository lists it, or if it comes from a trusted directory, it needs no signature of its own, but one that
// is there must not be wrong.
func (f *fetch) checkRPM(name string, want Package, listed bool) (key string, problem *accel.Problem) {
	in, err := f.h.Open(name)
	if err != nil {
		return "", accel.ProblemOf(err, "cannot read a package")
	}
	defer in.Close()
	r, err := readRPM(in)
	if err != nil {
		return "", accel.ProblemOr(err, accel.ArtifactInvalid, "package %q cannot be read", want.Name)
	}
	if r.name != want.Name || r.version != want.Version || r.architecture != want.Architecture {
		return "", accel.Problemf(accel.ArtifactInvalid, "package %q %s %s says that it is %q %s %s", want.Name,
			want.Version, want.Architecture, r.name, r.version, r.architecture)
	}
	key, err = f.keys.rpm(r, in)
	switch {
	case err == nil:
		return key, nil
	case listed && (errors.Is(err, errUnknownKey) || errors.Is(err, errUnreadable)):
		return "", nil
	}
	return "", accel.Problemf(accel.SignatureInvalid, "package %q %s: %v", want.Name, want.Version, err)
}

// errDigest is the error of a payload that is not the one of its signed header.
var errDigest = errors.New("the payload is not the one that its signed header names")

// rpm returns the fingerprint of the key that signed a package with this payload.
func (k keyring) rpm(r rpmFile, payload io.Reader) (key string, err error) {
	err = errUnknownKey
	for _, s := range r.overHeader {
		if key, err = k.check(bytes.NewReader(r.header), s); err == nil {
			break
		}
		if !errors.Is(err, errUnknownKey) {
			return "", err
		}
	}
	if sum := r.payloadHash(); err == nil && sum != nil && r.digest != "" {
		if _, err := io.Copy(sum, payload); err != nil {
			return "", err
		}
		if hex.EncodeToString(sum.Sum(nil)) != r.digest {
			return "", errDigest
		}
		return key, nil
	}
	// The header of packages before rpm 4.14 has no digest of the payload; a signature then covers both.
	err = errUnknownKey
	if len(r.overAll) > 0 {
		key, err = k.check(io.MultiReader(bytes.NewReader(r.header), payload), r.overAll[0])
	}
	return key, err
}
