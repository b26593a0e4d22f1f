package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
)

// place is where artifacts are stored: one repository of a registry, or a bundle. Its errors are *accel.Problem if it
// knows the reason; a missing item is ArtifactNotFound.
type place interface {
	// manifest returns the manifest of a tag or a digest.
	manifest(ctx context.Context, ref string) (manifest, error)
	// blob opens a blob. Its content is not verified: callers read it through open.
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
	// referrers lists the manifests that name digest as their subject.
	referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error)
}

// manifest is an image manifest or an image index; its digest was computed here.
type manifest struct {
	raw    []byte
	digest v1.Hash
	kind   types.MediaType
}

func newManifest(raw []byte, kind types.MediaType) manifest {
	digest, _, _ := v1.SHA256(bytes.NewReader(raw)) // reading from memory never fails
	return manifest{raw: raw, digest: digest, kind: kind}
}

// open opens a blob for reading once. At the end, the reader fails with a DigestMismatch if the bytes do not match
// the descriptor.
func open(ctx context.Context, from place, d v1.Descriptor, limit int64) (io.ReadCloser, error) {
	if d.Digest.Algorithm != "sha256" || d.Size < 0 || d.Size > limit {
		return nil, invalidf("its blob %q of %d bytes is not one of sha256 and at most %d bytes", d.Digest, d.Size,
			limit)
	}
	r, err := from.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	return &checking{r: r, want: d, sum: sha256.New(), ended: ctx.Err}, nil
}

// checking compares what it reads with a descriptor.
type checking struct {
	r    io.ReadCloser
	want v1.Descriptor
	sum  hash.Hash
	n    int64
	// ended returns why the transfer was called off; nil if it was not.
	ended func() error
}

func (c *checking) Read(p []byte) (int, error) {
	if err := c.ended(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.sum.Write(p[:n])
	c.n += int64(n)
	if c.n > c.want.Size {
		return n, accel.Problemf(accel.DigestMismatch, "its blob %s has more than its %d bytes", c.want.Digest,
			c.want.Size)
	}
	var machine *fs.PathError
	if err == nil || errors.As(err, &machine) {
		return n, err
	}
	got := hex.EncodeToString(c.sum.Sum(nil))
	if c.n == c.want.Size && got == c.want.Digest.Hex {
		return n, io.EOF // all bytes arrived: how the connection ended does not matter
	}
	if errors.Is(err, io.EOF) || !network(err) { // the registry library compares the digest too
		return n, accel.Problemf(accel.DigestMismatch, "its blob %s is %d bytes with SHA-256 %s, wanted are %d",
			c.want.Digest, c.n, got, c.want.Size)
	}
	return n, err
}

func (c *checking) Close() error { return c.r.Close() }

// readBlob reads a small blob into memory.
func readBlob(ctx context.Context, from place, d v1.Descriptor, limit int64) ([]byte, error) {
	r, err := open(ctx, from, d, limit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// image resolves a manifest or index to the image manifest for an architecture (GOARCH).
func image(ctx context.Context, from place, m manifest, arch string) (v1.Manifest, manifest, error) {
	if m.kind.IsIndex() {
		index, err := decode[v1.IndexManifest](m)
		if err != nil {
			return v1.Manifest{}, m, err
		}
		i := slices.IndexFunc(index.Manifests, func(d v1.Descriptor) bool {
			return d.MediaType.IsImage() && (d.Platform == nil || d.Platform.Architecture == arch)
		})
		if i < 0 {
			return v1.Manifest{}, m, accel.Problemf(accel.ArchMismatch, "has no image for %s", arch)
		}
		if m, err = from.manifest(ctx, index.Manifests[i].Digest.String()); err != nil {
			return v1.Manifest{}, m, err
		}
	}
	if !m.kind.IsImage() {
		return v1.Manifest{}, m, invalidf("is no image but %q", m.kind)
	}
	out, err := decode[v1.Manifest](m)
	return out, m, err
}

func decode[T any](m manifest) (T, error) {
	var out T
	if err := json.Unmarshal(m.raw, &out); err != nil {
		return out, invalidf("its manifest cannot be read: %v", err)
	}
	return out, nil
}

// invalidf returns an ArtifactInvalid problem.
func invalidf(format string, args ...any) error {
	return accel.Problemf(accel.ArtifactInvalid, format, args...)
}
