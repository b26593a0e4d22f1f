package artifact

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/trust"
)

// TestManySignatures: a good signature is found among others, up to a limit.
func TestManySignatures(t *testing.T) {
	b := newWorkbench(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b.public("/etc/k.pub", public)
	wanting, problem := b.c.pull(accel.Source{Keys: []string{"/etc/k.pub"}}, this(), "")
	if problem != nil {
		t.Fatal(problem)
	}
	digest := newManifest([]byte("the artifact"), "").digest
	good, err := signature(trust.NewKey(private), "registry.test/edu", digest)
	if err != nil {
		t.Fatal(err)
	}
	for before, found := range map[int]bool{0: true, signatureLimit - 1: true, signatureLimit: false, 10_000: false} {
		var all []blob
		for i := range before {
			all = append(all, memoryBlob(simpleSigning, fmt.Append(nil, "of somebody else, the ", i)))
		}
		signed, err := assemble(v1.Manifest{MediaType: types.OCIManifestSchema1}, good.blobs[0],
			append(all, good.blobs[1])...)
		if err != nil {
			t.Fatal(err)
		}
		blobs := map[v1.Hash]blob{}
		for _, b := range signed.blobs {
			blobs[b.Digest] = b
		}
		s := &shelf{
			manifests: map[string]manifest{signatureTag(digest): signed.manifest},
			content:   func(d v1.Descriptor) (io.Reader, error) { return blobs[d.Digest].open() },
		}
		_, err = wanting.signed(t.Context(), s, digest)
		if found && err != nil {
			t.Errorf("after %d others: %v", before, err)
		}
		if !found && (err == nil || explain(err).Reason != accel.SignatureInvalid ||
			!strings.Contains(err.Error(), "more than 64")) {
			t.Errorf("after %d others: %v", before, err)
		}
		if s.opened > signatureLimit {
			t.Errorf("of %d signatures %d were fetched", before+1, s.opened)
		}
	}
}
