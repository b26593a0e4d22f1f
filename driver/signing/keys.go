package signing

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Keyrings is what can be known about the keys from which the running kernel accepts modules. For each key the kernel
// shows its owner and its identifier, but not the serial number by which a signature names it. The available
// certificates link the two.
type Keyrings struct {
	readable     bool // whether the kernel shows its keyrings
	verifies     bool // whether the kernel verifies signatures at all
	keys         []kernelKey
	certificates []certificate
	own          *Signature // of one of the kernel's own modules, whose key the kernel therefore has
}

// kernelKey is one asymmetric key of the kernel.
type kernelKey struct {
	serial  int32
	name    string // of its owner, see [fabricatedName]
	id      string // lower-case hexadecimal: the key's identifier, or the serial number if the certificate has none
	keyring string // empty if unknown
}

// certificate is an available certificate and its file.
type certificate struct {
	*x509.Certificate
	file string
	der  bool
}

// trustedKeyrings are the keyrings in which the kernel looks for a module's key: the compiled-in keys, those added to
// them and the machine owner's. Distributions add the platform's (the firmware's db; before Linux 5.18 also the
// owner's).
func trustedKeyrings() []string {
	return []string{".builtin_trusted_keys", ".secondary_trusted_keys", ".machine", ".platform"}
}

// enrolled is the list of the machine owner's keys that the boot loader passes on (since Linux 5.10).
const enrolled = "/sys/firmware/efi/mok-variables/MokListRT"

// verifying is a setting that only kernels have that verify the signatures of modules (CONFIG_MODULE_SIG).
const verifying = "/sys/module/module/parameters/sig_enforce"

// revokedKeyring holds what the kernel must not trust (security/integrity; since Linux 5.13 also certificates).
const revokedKeyring = ".blacklist"

// ReadKeyrings reads the kernel's keys and the available certificates.
func ReadKeyrings(h *host.Host, log *slog.Logger, def *accel.Definition, own *Signature) *Keyrings {
	k := &Keyrings{own: own, certificates: certificates(h, def), verifies: h.Exists(verifying)}
	text, err := h.ReadFile("/proc/keys")
	if err != nil {
		return k
	}
	rings, keys := parseKeys(string(text))
	_, k.readable = rings[trustedKeyrings()[0]]
	for _, name := range append([]string{revokedKeyring}, trustedKeyrings()...) {
		ring, there := rings[name]
		if !there {
			continue
		}
		members, err := h.Kernel().Keyring(ring)
		if err != nil {
			log.Debug("cannot read a keyring of the kernel", "keyring", name, "error", err)
			continue
		}
		for i := range keys {
			if slices.Contains(members, keys[i].serial) {
				keys[i].keyring = name
			}
		}
	}
	k.keys = keys
	return k
}

// parseKeys reads /proc/keys, which has one line for each key: serial number, flags, uses, timeout, permissions,
// owner, group, type and description. It returns the serial numbers of the keyrings by name, and the asymmetric keys.
func parseKeys(text string) (rings map[string]int32, keys []kernelKey) {
	rings = map[string]int32{}
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		const kind, description = 7, 8
		if len(fields) <= description {
			continue
		}
		serial, err := strconv.ParseUint(fields[0], 16, 32)
		if err != nil {
			continue
		}
		switch rest := strings.Join(fields[description:], " "); {
		case fields[kind] == "keyring":
			name, _, _ := strings.Cut(rest, ": ") // "<name>: <number of keys>" or "<name>: empty"
			rings[name] = int32(serial)
		case strings.HasPrefix(fields[kind], "asymmetri"): // the type is cut to nine characters
			// "<owner>: <identifier>: X509.rsa <end of the identifier> []"
			i := max(strings.LastIndex(rest, ": X509."), 0)
			if j := strings.LastIndex(rest[:i], ": "); j >= 0 {
				id := strings.ToLower(rest[j+2 : i])
				keys = append(keys, kernelKey{serial: int32(serial), name: rest[:j], id: id})
			}
		}
	}
	return rings, keys
}

// answer3 is the answer of a probe that may not know.
type answer3 int

const (
	dontKnow answer3 = iota
	yes
	no
)

// trusts reports whether the kernel has the key of a signature, with a sentence that says how that is known.
func (k *Keyrings) trusts(s *Signature) (answer3, string) {
	if !k.readable {
		return dontKnow, "the kernel does not show its keyrings"
	}
	ids, known := k.identify(s)
	revoked := false
	for _, key := range k.keys {
		if !slices.Contains(ids, key.id) {
			continue
		}
		switch key.keyring {
		case revokedKeyring:
			revoked = true
		case "":
			return yes, "its key is among the kernel's"
		default:
			return yes, "its key is in " + key.keyring
		}
	}
	if revoked {
		return no, "its key is revoked: it is in " + revokedKeyring
	}
	if k.own != nil && k.own.Issuer == s.Issuer && k.own.hexID() == s.hexID() && s.hexID() != "" {
		return yes, "the kernel's own modules are signed with its key"
	}
	if !known && slices.ContainsFunc(k.keys,
		func(key kernelKey) bool { return key.name == s.Issuer && key.keyring != revokedKeyring }) {
		return dontKnow, "the kernel has a key of the same name"
	}
	return no, "its key is in none of " + strings.Join(trustedKeyrings(), ", ")
}

// identify returns the identifiers that the kernel may use for the key of a signature. Known is true if that is
// certain, because the signature itself or an available certificate says so.
func (k *Keyrings) identify(s *Signature) (ids []string, known bool) {
	if len(s.keyID) > 0 {
		return []string{hex.EncodeToString(s.keyID)}, true
	}
	if s.serial != nil {
		ids = append(ids, hex.EncodeToString(s.serial.Bytes())) // of a certificate without a key identifier
	}
	if c, ok := k.certificate(s); ok && len(c.SubjectKeyId) > 0 {
		return append(ids, hex.EncodeToString(c.SubjectKeyId)), true
	}
	return ids, false
}

// certificate returns the available certificate that belongs to a signature.
func (k *Keyrings) certificate(s *Signature) (certificate, bool) {
	i := slices.IndexFunc(k.certificates, func(c certificate) bool {
		if len(s.keyID) > 0 {
			return bytes.Equal(c.SubjectKeyId, s.keyID)
		}
		return s.serial != nil && c.SerialNumber.Cmp(s.serial) == 0 && bytes.Equal(c.RawIssuer, s.rawName)
	})
	if i < 0 {
		return certificate{}, false
	}
	return k.certificates[i], true
}

// enrol is the command with which an operator makes the kernel accept the key of a signature.
func (k *Keyrings) enrol(s *Signature) string {
	c, ok := k.certificate(s)
	switch {
	case ok && c.file == enrolled:
		return "mokutil --list-enrolled` (the key is enrolled, and this kernel does not take the machine owner's keys: boot one that does, or `mokutil --reset"
	case ok && c.der:
		return "mokutil --import " + c.file
	case ok:
		return fmt.Sprintf("openssl x509 -in %s -outform DER -out signer.der && mokutil --import signer.der", c.file)
	}
	return fmt.Sprintf("mokutil --import <the certificate of %s, as DER>", s)
}

// certificates reads the available certificates: the definition's, those that the distributions' tools make, and
// those that the machine's owner enrolled, as the boot loader passes them on.
func certificates(h *host.Host, def *accel.Definition) []certificate {
	var out []certificate
	var files []string
	if def.Driver.Sign != nil {
		files = append(files, def.Driver.Sign.Certificate)
	}
	for _, file := range append(files, "/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der",
		"/etc/pki/akmods/certs/public_key.der") {
		text, err := h.ReadFile(file)
		if err != nil {
			continue
		}
		if c, err := parseCertificate(text); err == nil {
			out = append(out, certificate{c, file, bytes.Equal(c.Raw, text)})
		}
	}
	if list, err := h.ReadFile(enrolled); err == nil {
		for _, der := range signatureListCertificates(list) {
			if c, err := x509.ParseCertificate(der); err == nil {
				out = append(out, certificate{c, enrolled, false})
			}
		}
	}
	return out
}

// signatureListCertificates returns the X.509 certificates of the EFI_SIGNATURE_LISTs in b (UEFI 2.10, section 32.4.1):
// a GUID, the sizes of the list, of its header and of each entry; an entry starts with its owner's GUID.
func signatureListCertificates(b []byte) [][]byte {
	const guid, head = 16, 28
	x509List := []byte{0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72}
	var out [][]byte
	for len(b) >= head {
		size := uint64(binary.LittleEndian.Uint32(b[guid:]))
		header := uint64(binary.LittleEndian.Uint32(b[guid+4:]))
		entry := uint64(binary.LittleEndian.Uint32(b[guid+8:]))
		if size < head || size > uint64(len(b)) || header > size-head || entry <= guid {
			return out
		}
		for list := b[head+header : size]; bytes.Equal(b[:guid], x509List) &&
			uint64(len(list)) >= entry; list = list[entry:] {
			out = append(out, list[guid:entry])
		}
		b = b[size:]
	}
	return out
}

// Judge predicts what the kernel k, with these keys, does with a module of this signature (nil if unsigned), and says
// why.
func Judge(k accel.Kernel, keys func() *Keyrings, module, file string, s *Signature) (string, *accel.Problem) {
	asks, boot := "", ""
	if k.SecureBoot {
		boot = ", Secure Boot is on"
	}
	switch {
	case k.SigEnforce:
		asks = "the kernel enforces signatures (sig_enforce" + boot + ")"
	case k.Lockdown != "" && k.Lockdown != "none":
		asks = "the kernel is locked down (" + k.Lockdown + boot + ")"
	}
	if k.ModulesDisabled {
		return "", accel.Problemf(accel.ModulesDisabled,
			"kernel.modules_disabled is 1: module %q cannot be loaded until the next boot", module)
	}
	if s == nil {
		if asks == "" {
			if k.LockdownUnknown {
				return "unsigned, and it is not known whether this kernel takes unsigned modules: it does not tell its lockdown",
					nil
			}
			return "unsigned, and this kernel takes unsigned modules", nil
		}
		reason := accel.LockedDown
		if k.SigEnforce {
			reason = accel.Unsigned
		}
		return "", accel.Problemf(reason, "module file %q is unsigned and %s: sign it with an enrolled key (driver.sign)",
			file, asks)
	}
	if s.Damaged != "" {
		// The kernel refuses it even if it does not require signatures (kernel/module/signing.c).
		return "", accel.Problemf(accel.ModuleInvalid, "the signature of module file %q is damaged: %s", file,
			s.Damaged)
	}
	answer, why := keys().trusts(s)
	if answer != no {
		return fmt.Sprintf("signed by %s; %s", s, why), nil
	}
	if asks == "" {
		return fmt.Sprintf("signed by %s; %s, and this kernel does not ask", s, why), nil
	}
	return "", accel.Problemf(accel.KeyUnknown,
		"module file %q is signed by %s, %s, and %s: run `%s`, reboot and confirm", file, s, why, asks, keys().enrol(s))
}

// Demand refuses a module for which only its own signature speaks, unless the kernel will verify that: the kernel has
// the key, or loads nothing else. What cannot be known is refused.
func Demand(k accel.Kernel, keys func() *Keyrings, file string, s *Signature) *accel.Problem {
	const required = "and this host requires a trusted signature (trust.require)"
	switch {
	case s == nil:
		return accel.Problemf(accel.SignatureInvalid, "module file %q is unsigned, %s", file, required)
	case s.Damaged != "":
		return accel.Problemf(accel.SignatureInvalid, "the signature of module file %q is damaged: %s", file, s.Damaged)
	case k.SigEnforce:
		return nil
	}
	all := keys()
	if !all.verifies {
		return accel.Problemf(accel.SignatureInvalid, "module file %q is signed by %s, which this kernel does not verify, %s",
			file, s, required)
	}
	if answer, why := all.trusts(s); answer != yes {
		return accel.Problemf(accel.SignatureInvalid, "module file %q is signed by %s, %s, %s", file, s, why, required)
	}
	return nil
}
