package artifact

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
)

// The names that cosign uses for what it stores (sigstore/cosign specs/SIGNATURE_SPEC.md and sigstore/cosign
// specs/BUNDLE_SPEC.md, 2025).
const (
	simpleSigning    = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	simpleAnnotation = "dev.cosignproject.cosign/signature"
	simpleType       = "cosign container image signature"
	bundleType       = "application/vnd.dev.sigstore.bundle.v0.3+json"
	statementType    = "application/vnd.in-toto+json"
	signPredicate    = "https://sigstore.dev/cosign/sign/v1"
)

// signatureLimit is how many signatures of one artifact are checked.
const signatureLimit = 64

// signatureTag is the tag under which cosign stores the signatures of a manifest.
func signatureTag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

// authentic checks that one of keys signed the manifest with the digest. The check is offline: it uses no
// transparency log and no certificate. No signature, or no good one, is SignatureInvalid.
func authentic(ctx context.Context, from place, digest v1.Hash, keys []crypto.PublicKey, limits Limits) error {
	seen := 0
	for _, find := range []func(context.Context, place, v1.Hash) ([]v1.Descriptor, error){tagged, referred} {
		layers, err := find(ctx, from, digest)
		if err != nil {
			return err
		}
		for _, d := range layers {
			if d.MediaType != simpleSigning && string(d.MediaType) != bundleType {
				continue
			}
			if seen++; seen > signatureLimit {
				return accel.Problemf(accel.SignatureInvalid, "has more than %d signatures", signatureLimit)
			}
			good, err := signedBy(ctx, from, d, digest, keys, limits)
			if good || err != nil {
				return err
			}
		}
	}
	if seen == 0 {
		return accel.Problemf(accel.SignatureInvalid, "%s is not signed", digest)
	}
	return accel.Problemf(accel.SignatureInvalid, "no signature of %s is by one of the wanted keys (%d looked at)",
		digest, seen)
}

// tagged lists the signatures under cosign's tag.
func tagged(ctx context.Context, from place, digest v1.Hash) ([]v1.Descriptor, error) {
	return layersOf(ctx, from, signatureTag(digest))
}

// referred lists the signatures that name the manifest as their subject.
func referred(ctx context.Context, from place, digest v1.Hash) ([]v1.Descriptor, error) {
	all, err := from.referrers(ctx, digest)
	if err != nil {
		if explain(err).Reason == accel.ArtifactNotFound {
			return nil, nil
		}
		return nil, err
	}
	var out []v1.Descriptor
	for _, d := range all[:min(len(all), signatureLimit)] { // of any type: registries disagree about what to list
		layers, err := layersOf(ctx, from, d.Digest.String())
		if err != nil {
			return nil, err
		}
		out = append(out, layers...)
	}
	return out, nil
}

func layersOf(ctx context.Context, from place, ref string) ([]v1.Descriptor, error) {
	m, err := from.manifest(ctx, ref)
	if err != nil {
		if explain(err).Reason == accel.ArtifactNotFound {
			return nil, nil
		}
		return nil, err
	}
	parsed, err := decode[v1.Manifest](m)
	return parsed.Layers, err
}

// signedBy reports whether one layer holds a good signature. An invalid layer is not a signature; a layer that cannot
// be fetched is an error.
func signedBy(ctx context.Context, from place, d v1.Descriptor, digest v1.Hash, keys []crypto.PublicKey,
	limits Limits,
) (bool, error) {
	text, err := readBlob(ctx, from, d, limits.Manifest)
	if err != nil {
		if reason := explain(err).Reason; reason != accel.RegistryUnreachable && reason != accel.RegistryDenied {
			return false, nil
		}
		return false, err
	}
	payload, message, signatures, names := text, text, []string{d.Annotations[simpleAnnotation]}, simpleNames
	if string(d.MediaType) == bundleType {
		payload, message, signatures = envelope(text)
		names = statementNames
	}
	for _, s := range signatures {
		signature, err := base64.StdEncoding.DecodeString(s)
		if err != nil || len(signature) == 0 {
			continue
		}
		if slices.ContainsFunc(keys, func(k crypto.PublicKey) bool {
			return verifies(k, message, signature)
		}) && names(payload, digest) {
			return true, nil
		}
	}
	return false, nil
}

// simplePayload is what cosign signs (containers/image docs/containers-signature.5.md).
type simplePayload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// simpleNames reports whether a payload is about the manifest. It does not compare the reference: mirrors have other
// names.
func simpleNames(payload []byte, digest v1.Hash) bool {
	var p simplePayload
	return json.Unmarshal(payload, &p) == nil && p.Critical.Type == simpleType &&
		p.Critical.Image.Digest == digest.String()
}

// sigstoreBundle has the fields that are needed of a Sigstore bundle with a DSSE envelope.
type sigstoreBundle struct {
	Envelope struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig string `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// envelope returns what a bundle says, the message that was signed (DSSE v1, pre-authentication encoding) and its
// signatures.
func envelope(text []byte) (payload, message []byte, signatures []string) {
	var b sigstoreBundle
	if json.Unmarshal(text, &b) != nil || b.Envelope.PayloadType != statementType {
		return nil, nil, nil
	}
	for _, s := range b.Envelope.Signatures {
		signatures = append(signatures, s.Sig)
	}
	return b.Envelope.Payload, encoded(b.Envelope.Payload), signatures
}

func encoded(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementType), statementType, len(payload), payload)
}

// statementNames reports whether a bundle's statement says that the manifest is signed. A statement of another type,
// such as an SBOM, is not a signature.
func statementNames(payload []byte, digest v1.Hash) bool {
	var statement struct {
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if json.Unmarshal(payload, &statement) != nil || statement.PredicateType != signPredicate {
		return false
	}
	for _, s := range statement.Subject {
		if s.Digest[digest.Algorithm] == digest.Hex {
			return true
		}
	}
	return false
}

// signature creates the image that holds a signature of the manifest with the digest, as cosign does.
func signature(k *Key, reference string, digest v1.Hash) (assembled, error) {
	var p simplePayload
	p.Critical.Identity.Reference, p.Critical.Image.Digest, p.Critical.Type = reference, digest.String(), simpleType
	payload, err := json.Marshal(p)
	if err != nil {
		return assembled{}, err
	}
	signed, err := k.sign(payload)
	if err != nil {
		return assembled{}, accel.Problemf(accel.SigningFailed, "cannot sign %s: %v", digest, err)
	}
	config := memoryBlob(types.OCIConfigJSON,
		[]byte(`{"architecture":"","os":"","rootfs":{"type":"layers","diff_ids":["`+newManifest(payload,
			"").digest.String()+`"]},"config":{}}`))
	layer := memoryBlob(simpleSigning, payload)
	layer.Annotations = map[string]string{simpleAnnotation: base64.StdEncoding.EncodeToString(signed)}
	return assemble(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}, config, layer)
}
