package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
)

// shelf is a place in memory.
type shelf struct {
	manifests map[string]manifest                    // by tag or digest
	content   func(v1.Descriptor) (io.Reader, error) // of a blob
	opened    int                                    // blobs
}

func (s *shelf) manifest(_ context.Context, ref string) (manifest, error) {
	m, there := s.manifests[ref]
	if !there {
		return m, accel.Problemf(accel.ArtifactNotFound, "has no %q", ref)
	}
	return m, nil
}

func (s *shelf) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	s.opened++
	r, err := s.content(d)
	return io.NopCloser(r), err
}

func (*shelf) referrers(context.Context, v1.Hash) ([]v1.Descriptor, error) { return nil, nil }

// flood returns zeros almost without end: a test that reads all of it must still finish.
type flood struct{ given int }

func (f *flood) Read(p []byte) (int, error) {
	if f.given += len(p); f.given > 8<<20 {
		return 0, errors.New("too much was read")
	}
	clear(p)
	return len(p), nil
}

// TestBlob: a blob must match its descriptor. Reading stops once its size, as declared or as sent, is too large.
func TestBlob(t *testing.T) {
	const limit = 1000
	good, large := bytes.Repeat([]byte("x"), limit), bytes.Repeat([]byte("x"), limit+1)
	of := func(data []byte) v1.Descriptor { return memoryBlob(types.OCILayer, data).Descriptor }
	otherSize, otherHash, negative := of(good), of(good), of(good)
	otherSize.Size, otherHash.Digest.Algorithm, negative.Size = 10, "sha512", -1
	for name, c := range map[string]struct {
		d      v1.Descriptor
		sent   io.Reader
		want   accel.Reason
		unread bool // not even requested
	}{
		"as large as allowed": {d: of(good), sent: bytes.NewReader(good)},
		"a byte too large": {
			d: of(large), sent: bytes.NewReader(large), want: accel.ArtifactInvalid,
			unread: true,
		},
		"of another hash": {
			d: otherHash, sent: bytes.NewReader(good), want: accel.ArtifactInvalid,
			unread: true,
		},
		"less than nothing": {
			d: negative, sent: bytes.NewReader(good), want: accel.ArtifactInvalid,
			unread: true,
		},
		"less than its descriptor": {d: of(good), sent: bytes.NewReader(good[1:]), want: accel.DigestMismatch},
		"more than its descriptor": {d: otherSize, sent: bytes.NewReader(good), want: accel.DigestMismatch},
		"other than its descriptor": {
			d: of(good), sent: bytes.NewReader(append([]byte("y"), good[1:]...)),
			want: accel.DigestMismatch,
		},
		"without an end": {d: of(good), sent: &flood{}, want: accel.DigestMismatch},
	} {
		s := &shelf{content: func(v1.Descriptor) (io.Reader, error) { return c.sent, nil }}
		got, err := readBlob(t.Context(), s, c.d, limit)
		if c.want == "" && (err != nil || !bytes.Equal(got, good)) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && (err == nil || explain(err).Reason != c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if c.unread != (s.opened == 0) {
			t.Errorf("%s: asked for %d times", name, s.opened)
		}
		if f, ok := c.sent.(*flood); ok && f.given > 64*limit {
			t.Errorf("%s: %d bytes were read", name, f.given)
		}
	}
}

// TestBounded: an image is refused because of its manifest, even if each of its layers alone would be allowed.
func TestBounded(t *testing.T) {
	c := New(nil, Options{Limits: Limits{Packed: 100, Layers: 3}})
	for name, row := range map[string]struct {
		layers []int64
		good   bool
	}{
		"no layer":                    {nil, true},
		"as large as allowed":         {[]int64{50, 50}, true},
		"as many as allowed":          {[]int64{1, 1, 1}, true},
		"one more":                    {[]int64{1, 1, 1, 1}, false},
		"too large":                   {[]int64{101}, false},
		"less than nothing":           {[]int64{-1}, false},
		"too large together":          {[]int64{50, 51}, false},
		"the second makes up for one": {[]int64{90, -50, 50}, false},
	} {
		var img v1.Manifest
		var sum int64
		for _, size := range row.layers {
			img.Layers, sum = append(img.Layers, v1.Descriptor{Size: size}), sum+size
		}
		total, err := c.bounded(img)
		if row.good && (err != nil || total != sum) || !row.good &&
			(err == nil || explain(err).Reason != accel.ArtifactInvalid) {
			t.Errorf("%s: %d bytes, %v", name, total, err)
		}
	}
}
