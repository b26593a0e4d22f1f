package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/driver/unpack"
)

// Content describes an artifact to create: its configuration, and where the files that it names are on the host.
type Content struct {
	Config Config
	// Paths are keyed by the file's name in the layer: "edu.ko", "firmware/edu.bin", "root/usr/lib64/libedu.so.1".
	Paths map[string]string
}

// PushOptions change how [Client.Push] works.
type PushOptions struct {
	// Keep leaves an existing artifact alone if it is for the same driver and kernel: somebody else was first.
	Keep bool
	// Key signs the artifact; nil leaves it unsigned.
	Key *trust.Key
}

// Pushed is an artifact in a registry.
type Pushed struct {
	// Reference includes tag and digest: "registry.example/edu:1.0.0-6.1.0-9-amd64-x86_64@sha256:…".
	Reference string
	Digest    string
	// Kept is true if the artifact already existed.
	Kept bool
	// UserSpace is how many files of a user space are in it; unknown if it was kept.
	UserSpace int
}

// Push creates the artifact of content and pushes it to the image that s names, not to its mirrors. It uses the tag
// of the image or, if that has none, all of w's tags. It packs into dir, which must exist.
func (c *Client) Push(ctx context.Context, s accel.Source, w Wanted, content Content, dir string,
	o PushOptions,
) (Pushed, *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	r, err := parseReference(s)
	if err != nil {
		return Pushed{}, explain(err)
	}
	if r.digest != "" {
		return Pushed{}, accel.Problemf(accel.ConfigInvalid, "cannot push to %q, which is pinned to a digest", s.Image)
	}
	repository := r.server + "/" + r.repository
	to, err := dial(ctx, c.h, s, repository, c.o.Stall, c.o.Limits)
	if err != nil {
		return Pushed{}, explain(err)
	}
	defer to.close()
	tags := r.refs(w)
	where := repository + ":" + tags[0]
	if o.Keep {
		if digest, there := c.present(ctx, to, tags[0], w); there {
			return Pushed{Reference: where + "@" + digest, Digest: digest, Kept: true}, nil
		}
	}
	made, err := c.prepare(content, dir)
	if err != nil {
		return Pushed{}, explain(err)
	}
	t := c.begin(accel.StagePush, where)
	err = c.send(ctx, t, to, repository, made, tags, o.Key)
	end(t, err)
	if err != nil {
		return Pushed{}, prefixed(repository, err)
	}
	return made.pushed(where), nil
}

// send uploads an artifact. The signature goes first, so that nobody finds the artifact without it.
func (c *Client) send(ctx context.Context, t *transfer.Meter, to *registry, repository string, a assembled,
	tags []string, key *trust.Key,
) error {
	if key == nil {
		t.Size("", a.size())
		return c.upload(ctx, t, to, a, tags...)
	}
	signed, err := signature(key, repository, a.manifest.digest)
	if err != nil {
		return err
	}
	t.Size("", signed.size()+a.size())
	if err := c.upload(ctx, t, to, signed, signatureTag(a.manifest.digest)); err != nil {
		return err
	}
	return c.upload(ctx, t, to, a, tags...)
}

func prefixed(where string, err error) *accel.Problem {
	p := explain(err)
	return accel.Problemf(p.Reason, "%s: %s", where, p.Message)
}

// present reports whether a tag has an artifact that matches w.
func (c *Client) present(ctx context.Context, at place, tag string, w Wanted) (digest string, there bool) {
	m, err := at.manifest(ctx, tag)
	if err != nil {
		return "", false
	}
	img, m, err := image(ctx, at, m, accel.GoArch(w.Arch))
	if err != nil {
		return "", false
	}
	config, err := c.config(ctx, at, img)
	return m.digest.String(), err == nil && w.mismatch(config) == nil
}

// blob is something to upload, with its descriptor.
type blob struct {
	v1.Descriptor
	open func() (io.ReadCloser, error)
}

func memoryBlob(kind types.MediaType, data []byte) blob {
	d := v1.Descriptor{MediaType: kind, Size: int64(len(data)), Digest: newManifest(data, "").digest}
	return blob{d, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// assembled is a manifest with all blobs that it names.
type assembled struct {
	manifest  manifest
	blobs     []blob
	userSpace int // files of a user space in it
}

// pushed describes a, which is in a place now.
func (a assembled) pushed(where string) Pushed {
	digest := a.manifest.digest.String()
	return Pushed{Reference: where + "@" + digest, Digest: digest, UserSpace: a.userSpace}
}

// size is the total size of all blobs.
func (a assembled) size() (n int64) {
	for _, b := range a.blobs {
		n += b.Size
	}
	return n
}

func assemble(m v1.Manifest, config blob, layers ...blob) (assembled, error) {
	m.Config = config.Descriptor
	for _, l := range layers {
		m.Layers = append(m.Layers, l.Descriptor)
	}
	raw, err := json.Marshal(m)
	return assembled{manifest: newManifest(raw, m.MediaType), blobs: append([]blob{config}, layers...)}, err
}

// prepare packs the layer into dir and creates the manifest.
func (c *Client) prepare(content Content, dir string) (assembled, error) {
	content.Config.Schema = Schema
	config, err := json.Marshal(content.Config)
	if err != nil {
		return assembled{}, err
	}
	if _, err := parseConfig(config); err != nil {
		return assembled{}, invalidf("cannot make an artifact: %v", err)
	}
	name := path.Join(dir, "layer-"+newManifest(config, "").digest.Hex[:16])
	if err := c.h.Remove(name); err != nil {
		return assembled{}, unpack.WriteProblem(err, name)
	}
	f, err := c.h.Create(name, 0o600)
	if err != nil {
		return assembled{}, unpack.WriteProblem(err, name)
	}
	sum := sha256.New()
	w := &unpack.Writing{W: f}
	err = pack(io.MultiWriter(w, sum), c.h, slices.Sorted(maps.Keys(content.Config.files())), content.Paths)
	size, seekErr := f.Seek(0, io.SeekCurrent)
	if failed := errors.Join(w.Err, seekErr, f.Close()); failed != nil {
		return assembled{}, unpack.WriteProblem(failed, name)
	}
	if err != nil {
		return assembled{}, accel.Problemf(accel.ReasonForError(err, accel.InternalError), "%v", err)
	}
	layer := blob{v1.Descriptor{MediaType: LayerType, Size: size, Digest: v1.Hash{
		Algorithm: "sha256",
		Hex:       hex.EncodeToString(sum.Sum(nil)),
	}}, func() (io.ReadCloser, error) { return c.h.Open(name) }}
	annotations := map[string]string{"org.opencontainers.image.title": content.Config.Profile}
	if t := content.Config.Created; !t.IsZero() {
		annotations["org.opencontainers.image.created"] = t.UTC().Format(time.RFC3339)
	}
	out, err := assemble(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: ArtifactType,
		Annotations: annotations,
	}, memoryBlob(ConfigType, config), layer)
	out.userSpace = len(content.Config.UserSpace)
	return out, err
}

// upload sends the blobs of a, then its manifest under every tag.
func (c *Client) upload(ctx context.Context, t *transfer.Meter, to *registry, a assembled, tags ...string) error {
	for _, b := range a.blobs {
		layer, err := partial.CompressedToLayer(layerOf{b, t})
		if err != nil {
			return err
		}
		if err := c.try(ctx, t, func() error { return to.pusher.Upload(ctx, to.repo, layer) }); err != nil {
			return err
		}
		t.Part(b.Size)
	}
	for _, text := range tags {
		if _, err := name.NewTag(to.repo.Name() + ":" + text); err != nil {
			return accel.Problemf(accel.ConfigInvalid, "%q cannot be a tag", text)
		}
		if err := c.try(ctx, t, func() error { return to.pusher.Put(ctx, to.repo.Tag(text), a.manifest) }); err != nil {
			return err
		}
	}
	return nil
}

// RawManifest and MediaType let a manifest be put under a tag.
func (m manifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m manifest) MediaType() (types.MediaType, error) { return m.kind, nil }

// layerOf adapts a blob to the registry library.
type layerOf struct {
	b blob
	t *transfer.Meter
}

func (l layerOf) Digest() (v1.Hash, error)            { return l.b.Descriptor.Digest, nil }
func (l layerOf) Size() (int64, error)                { return l.b.Descriptor.Size, nil }
func (l layerOf) MediaType() (types.MediaType, error) { return l.b.Descriptor.MediaType, nil }
func (l layerOf) Compressed() (io.ReadCloser, error) {
	r, err := l.b.open()
	if err != nil {
		return nil, err
	}
	return l.t.Reader(r), nil
}
