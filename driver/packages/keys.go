package packages

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// keyLimit is the size of a file of keys, in bytes; that of all keys of Debian has 60 KB.
const keyLimit = 4 << 20

// armored begins an OpenPGP text.
const armored = "-----BEGIN PGP "

// keyring has the keys, one of which must have signed.
type keyring struct{ keys openpgp.EntityList }

// readKeys reads files of the host; the last element of a name may be a pattern. Whoever could write to one could
// choose what the host runs.
func readKeys(h *host.Host, names []string) (keyring, *accel.Problem) {
	var k keyring
	var files []string
	for _, name := range names {
		if !strings.Contains(path.Base(name), "*") {
			files = append(files, name)
			continue
		}
		matches := h.Glob(path.Dir(name), path.Base(name))
		if len(matches) == 0 {
			return k, accel.Problemf(accel.ConfigInvalid, "no file matches %q, which stands for files with keys", name)
		}
		files = append(files, matches...)
	}
	for _, name := range files {
		if err := host.RootOwned(h, name); err != nil {
			return k, accel.Problemf(accel.ConfigInvalid, "the keys in %q are not trusted: %v", name, err)
		}
		text, err := readFile(h, name, keyLimit)
		if err != nil {
			return k, accel.Problemf(accel.ConfigInvalid, "cannot read the keys in %q: %v", name, err)
		}
		keys, err := parseKeys(text)
		if err != nil || len(keys) == 0 {
			return k, accel.Problemf(accel.ConfigInvalid, "file %q has no OpenPGP public keys: %v", name, err)
		}
		k.keys = append(k.keys, keys...)
	}
	return k, nil
}

// parseKeys reads keys, armored or not.
func parseKeys(text []byte) (openpgp.EntityList, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte(armored)) {
		return openpgp.ReadArmoredKeyRing(bytes.NewReader(text))
	}
	return openpgp.ReadKeyRing(bytes.NewReader(text))
}

// readFile reads a file of the host of at most most bytes.
func readFile(h *host.Host, name string, most int64) ([]byte, error) {
	f, err := h.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return text, err
}

// errUnknownKey is the error of a text that has no signature by a key of the ring.
var errUnknownKey = errors.New("no signature is by one of the wanted keys")

// errUnreadable is the error of a signature of another form than OpenPGP has today, such as those of version 3.
var errUnreadable = errors.New("the signature cannot be read")

// check returns the fingerprint of the key that signed a text. The signature, which may hold several, is armored or
// not. If none is by a key of the ring, the error is errUnknownKey.
func (k keyring) check(signed io.Reader, signature []byte) (fingerprint string, err error) {
	var raw io.Reader = bytes.NewReader(signature)
	if bytes.HasPrefix(bytes.TrimSpace(signature), []byte(armored)) {
		block, err := armor.Decode(raw)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errUnreadable, err)
		}
		raw = block.Body
	}
	return k.verify(signed, raw)
}

func (k keyring) verify(signed, signature io.Reader) (fingerprint string, err error) {
	// Another key may have made the first signature; that its form is unknown must not hide the others.
	config := &packet.Config{}
	details, err := openpgp.VerifyDetachedSignatureReader(k.keys, signed, signature, config)
	if errors.Is(err, pgperrors.ErrUnknownIssuer) {
		return "", errUnknownKey
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if _, err := io.Copy(io.Discard, details.UnverifiedBody); err != nil {
		return "", fmt.Errorf("the signature cannot be checked: %w", err)
	}
	if details.SignatureError == nil && details.SignedBy != nil && details.Signature != nil {
		id := details.SignedBy.PublicKey.KeyId
		if _, ok := details.SignedBy.Entity.SigningKeyById(time.Now(), id, config); !ok {
			return "", fmt.Errorf("key %x has expired or was revoked", details.SignedBy.PublicKey.Fingerprint)
		}
		return hex.EncodeToString(details.SignedBy.PublicKey.Fingerprint), nil
	}
	known := false
	for _, c := range details.SignatureCandidates {
		if c.SignedByEntity != nil && c.SignatureError != nil {
			known, err = true, c.SignatureError
		}
	}
	if !known {
		return "", errUnknownKey
	}
	return "", fmt.Errorf("the signature is not valid: %w", err)
}
