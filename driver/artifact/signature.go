package artifact

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/trust"
)

// The names that cosign uses for what it stores (sigstore/cosign specs/SIGNATURE_SPEC.md and sigstore/cosign
// specs/BUNDLE_SPEC.md, 2025).
const (
	simpleSigning    = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	simpleAnnotation = "dev.cosignproject.cosign/signature"
	// The certificate of the signer and those that lead from it to its authority, in PEM.
	certificateAnnotation = "dev.sigstore.cosign/certificate"
	chainAnnotation       = "dev.sigstore.cosign/chain"
	simpleType            = "cosign container image signature"
	bundleType            = "application/vnd.dev.sigstore.bundle.v0.3+json"
	statementType         = "application/vnd.in-toto+json"
	signPredicate         = "https://sigstore.dev/cosign/sign/v1"
)

// signatureLimit is how many signatures of one artifact are checked, and of one bundle.
const signatureLimit = 64

// signatureTag is the tag under which cosign stores the signatures of a manifest.
func signatureTag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

// signatures looks for signatures of one artifact by some anchors. The check is offline: it uses no transparency log.
type signatures struct {
	from    place
	anchors trust.Anchors
	limits  Limits
	seen    int // signatures that were looked at
	signers []trust.Signer
}

// find looks at the signatures of the manifest with the digest until enough signers are known.
func (s *signatures) find(ctx context.Context, digest v1.Hash, enough func() bool) error {
	for _, list := range []func(context.Context, place, v1.Hash) ([]v1.Descriptor, error){tagged, referred} {
		layers, err := list(ctx, s.from, digest)
		if err != nil {
			return err
		}
		for _, d := range layers {
			if d.MediaType != simpleSigning && string(d.MediaType) != bundleType {
				continue
			}
			if enough() {
				return nil
			}
			if s.seen++; s.seen > signatureLimit {
				return accel.Problemf(accel.SignatureInvalid, "has more than %d signatures", signatureLimit)
			}
			if err := s.look(ctx, d, digest); err != nil {
				return err
			}
		}
	}
	return nil
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

// look adds the signers of one layer. An invalid layer is not a signature; a layer that cannot be fetched is an error.
func (s *signatures) look(ctx context.Context, d v1.Descriptor, digest v1.Hash) error {
	text, err := readBlob(ctx, s.from, d, s.limits.Manifest)
	if err != nil {
		if reason := explain(err).Reason; reason != accel.RegistryUnreachable && reason != accel.RegistryDenied {
			return nil
		}
		return err
	}
	e, names := signedText{
		payload: text, message: text, signatures: []string{d.Annotations[simpleAnnotation]},
		chain: trust.Chain([]byte(d.Annotations[certificateAnnotation] + "\n" + d.Annotations[chainAnnotation])),
	}, simpleNames
	if string(d.MediaType) == bundleType {
		e, names = envelope(text), statementNames
	}
	if !names(e.payload, digest) {
		return nil
	}
	for _, text := range e.signatures[:min(len(e.signatures), signatureLimit)] {
		signature, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(signature) == 0 {
			continue
		}
		s.signers = append(s.signers, s.anchors.Signed(e.message, signature, e.chain)...)
	}
	return nil
}

// signedText is a signed text: what it says, what exactly was signed, and the certificates of the signer, if any.
type signedText struct {
	payload, message []byte
	signatures       []string // in base64
	chain            []*x509.Certificate
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
	Material struct {
		Certificate rawCertificate `json:"certificate"` // of version 0.3
		Chain       struct {
			Certificates []rawCertificate `json:"certificates"`
		} `json:"x509CertificateChain"` // of earlier versions
	} `json:"verificationMaterial"`
	Envelope struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig string `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

type rawCertificate struct {
	DER []byte `json:"rawBytes"`
}

// envelope returns what a bundle holds. The message that was signed is the pre-authentication encoding of DSSE v1.
func envelope(text []byte) signedText {
	var b sigstoreBundle
	if json.Unmarshal(text, &b) != nil || b.Envelope.PayloadType != statementType {
		return signedText{}
	}
	out := signedText{payload: b.Envelope.Payload, message: encoded(b.Envelope.Payload)}
	for _, s := range b.Envelope.Signatures {
		out.signatures = append(out.signatures, s.Sig)
	}
	var chain []byte
	for _, c := range append([]rawCertificate{b.Material.Certificate}, b.Material.Chain.Certificates...) {
		if len(c.DER) > 0 {
			chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.DER})...)
		}
	}
	out.chain = trust.Chain(chain)
	return out
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
func signature(k *trust.Key, reference string, digest v1.Hash) (assembled, error) {
	var p simplePayload
	p.Critical.Identity.Reference, p.Critical.Image.Digest, p.Critical.Type = reference, digest.String(), simpleType
	payload, err := json.Marshal(p)
	if err != nil {
		return assembled{}, err
	}
	signed, err := k.Sign(payload)
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
