package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/host"
)

// The files of an OCI image layout (image specification 1.1, image-layout.md).
const (
	layoutFile = "oci-layout"
	layoutText = `{"imageLayoutVersion":"1.0.0"}`
	indexFile  = "index.json"
	refName    = "org.opencontainers.image.ref.name"
)

// bundle is an OCI image layout in a directory or an uncompressed tar file.
type bundle struct {
	h     *host.Host
	name  string
	file  *os.File           // nil for a directory
	parts map[string]section // of the file, by name
	index v1.IndexManifest
	limit int64 // of a manifest
}

// section is the location of one file within the tar file.
type section struct{ offset, size int64 }

// openBundle opens a bundle. A missing file is ArtifactNotFound, a file that is not a bundle ArtifactInvalid.
func openBundle(h *host.Host, name string, limits Limits) (*bundle, error) {
	b := &bundle{h: h, name: name, limit: limits.Manifest}
	st, err := h.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, accel.Problemf(accel.ArtifactNotFound, "the bundle %q is not there", name).ToDo(
			"Put a bundle there, as `acceld driver bundle export` writes it, or correct the path.")
	}
	if err == nil && !st.IsDir() {
		if b.file, err = h.Open(name); err == nil {
			err = b.scan(limits)
		}
	}
	var text []byte
	if err == nil {
		if text, err = b.read(indexFile); err == nil {
			err = json.Unmarshal(text, &b.index)
		}
	}
	if err != nil {
		b.close()
		return nil, accel.Problemf(accel.ReasonForError(err, accel.ArtifactInvalid), "%q is no bundle: %v", name, err)
	}
	return b, nil
}

func (b *bundle) close() {
	if b.file != nil {
		_ = b.file.Close() // it was only read
	}
}

// scan notes where each file of a tar is. It reads none of their content.
func (b *bundle) scan(limits Limits) error {
	b.parts = map[string]section{}
	archive := tar.NewReader(b.file) // the reader seeks over unread content and buffers nothing
	for n := 0; ; n++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n > limits.Files {
			return fmt.Errorf("more than %d files", limits.Files)
		}
		offset, err := b.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		// What a sparse file has is not in one piece.
		if unpack.Oddity(header) == "" && len(header.Name) <= unpack.NameLimit {
			b.parts[strings.TrimPrefix(header.Name, "./")] = section{offset, header.Size}
		}
	}
}

func (b *bundle) open(name string) (io.ReadCloser, error) {
	if b.file == nil {
		return b.h.Open(path.Join(b.name, name))
	}
	s, ok := b.parts[name]
	if !ok {
		return nil, accel.Problemf(accel.ArtifactNotFound, "has no %q", name)
	}
	return io.NopCloser(io.NewSectionReader(b.file, s.offset, s.size)), nil
}

// read returns a small file.
func (b *bundle) read(name string) ([]byte, error) {
	r, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, b.limit+1))
	if err == nil && int64(len(text)) > b.limit {
		err = invalidf("its %q has more than %d bytes", name, b.limit)
	}
	return text, err
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func (b *bundle) manifest(_ context.Context, ref string) (manifest, error) {
	want, err := v1.NewHash(ref)
	kind := types.OCIManifestSchema1
	if err != nil {
		i := slices.IndexFunc(b.index.Manifests, func(d v1.Descriptor) bool { return d.Annotations[refName] == ref })
		if i < 0 {
			return manifest{}, accel.Problemf(accel.ArtifactNotFound, "has no %q", ref)
		}
		want = b.index.Manifests[i].Digest
	}
	if want.Algorithm != "sha256" {
		return manifest{}, invalidf("its digest %q is not sha256", want)
	}
	text, err := b.read(blobName(want))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return manifest{}, accel.Problemf(accel.ArtifactNotFound, "has no %s", want)
		}
		return manifest{}, err
	}
	var says struct {
		MediaType types.MediaType `json:"mediaType"`
	}
	if json.Unmarshal(text, &says) == nil && says.MediaType != "" {
		kind = says.MediaType
	}
	m := newManifest(text, kind)
	if m.digest != want {
		return m, accel.Problemf(accel.DigestMismatch, "its manifest %s has digest %s", want, m.digest)
	}
	return m, nil
}

func (b *bundle) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	r, err := b.open(blobName(d.Digest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, accel.Problemf(accel.ArtifactNotFound, "has no blob %s", d.Digest)
	}
	return r, err
}

func (b *bundle) referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	var out []v1.Descriptor
	for _, d := range b.index.Manifests {
		m, err := b.manifest(ctx, d.Digest.String())
		if err != nil {
			continue
		}
		var parsed v1.Manifest
		if json.Unmarshal(m.raw, &parsed) == nil && parsed.Subject != nil && parsed.Subject.Digest == digest {
			d.ArtifactType = parsed.ArtifactType
			out = append(out, d)
		}
	}
	return out, nil
}

// refs lists the digests of possible artifacts: everything that is not a signature.
func (b *bundle) refs() []string {
	var out []string
	for _, d := range b.index.Manifests {
		if !strings.HasSuffix(d.Annotations[refName], ".sig") && !slices.Contains(out, d.Digest.String()) {
			out = append(out, d.Digest.String())
		}
	}
	return out
}

// PullBundle is [Client.Pull] from the file or directory s.Path. It also honours s.Digest and s.Keys.
func (c *Client) PullBundle(ctx context.Context, s accel.Source, w Wanted, dir string) (Pulled, *accel.Problem) {
	p, problem := c.pull(s, w, dir)
	if problem != nil {
		return Pulled{}, problem
	}
	ctx, stop := p.time.share(ctx, 1)
	defer stop()
	p.pinned = s.Digest != ""
	b, err := openBundle(c.h, s.Path, c.o.Limits)
	if err != nil {
		return Pulled{}, explain(err)
	}
	defer b.close()
	refs := b.refs()
	if s.Digest != "" {
		refs = []string{s.Digest}
	}
	out, problem := p.place(ctx, b, s.Path, refs)
	if problem != nil {
		problem.Message = s.Path + ": " + problem.Message
	}
	return out, problem
}

// Bundled is one artifact of a bundle.
type Bundled struct {
	Digest string
	Config Config
}

// ListBundle lists the artifacts of a bundle. It omits images in a foreign layout, because they do not say what they
// are for.
func (c *Client) ListBundle(ctx context.Context, file string) ([]Bundled, *accel.Problem) {
	b, err := openBundle(c.h, file, c.o.Limits)
	if err != nil {
		return nil, explain(err)
	}
	defer b.close()
	var out []Bundled
	for _, ref := range b.refs() {
		m, err := b.manifest(ctx, ref)
		if err != nil {
			return nil, prefixed(file, err)
		}
		img, err := decode[v1.Manifest](m)
		if err != nil || img.ArtifactType != ArtifactType {
			continue
		}
		config, err := c.config(ctx, b, img)
		if err != nil {
			return nil, prefixed(file, err)
		}
		out = append(out, Bundled{Digest: ref, Config: config})
	}
	return out, nil
}

// Export writes a bundle of contents to file, which appears complete or not at all. It packs into dir. If key is not
// nil, it signs each artifact.
func (c *Client) Export(file string, contents []Content, dir string, key *trust.Key) ([]Pushed, *accel.Problem) {
	var all []assembled
	var names []string
	var out []Pushed
	for _, content := range contents {
		made, err := c.prepare(content, dir)
		if err != nil {
			return nil, explain(err)
		}
		config := content.Config
		w := Wanted{Version: config.version(), Arch: config.Arch, KernelRelease: config.KernelRelease}
		all, names = append(all, made), append(names, tag(config.Profile, w.Tags()[0]))
		out = append(out, made.pushed(file))
		if key != nil {
			signed, err := signature(key, config.Profile, made.manifest.digest)
			if err != nil {
				return nil, explain(err)
			}
			all, names = append(all, signed), append(names, signatureTag(made.manifest.digest))
		}
	}
	temporary := path.Join(path.Dir(file), "."+path.Base(file)+".tmp")
	if err := c.writeBundle(temporary, all, names); err != nil {
		_ = c.h.Remove(temporary) // the earlier error is the one that matters
		return nil, unpack.WriteProblem(err, file)
	}
	if err := c.h.Rename(temporary, file); err != nil {
		return nil, unpack.WriteProblem(err, file)
	}
	return out, nil
}

func (c *Client) writeBundle(file string, all []assembled, names []string) error {
	if err := c.h.Remove(file); err != nil {
		return err
	}
	f, err := c.h.Create(file, 0o644)
	if err != nil {
		return err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	archive, seen := tar.NewWriter(f), map[v1.Hash]bool{}
	err = addFile(archive, layoutFile, 0o644, int64(len(layoutText)), strings.NewReader(layoutText))
	for i, a := range all {
		own := memoryBlob(a.manifest.kind, a.manifest.raw)
		for _, b := range append(a.blobs, own) {
			if err != nil || seen[b.Digest] {
				continue
			}
			seen[b.Digest] = true
			err = addBlob(archive, b)
		}
		d := own.Descriptor
		d.Annotations = map[string]string{refName: names[i]}
		index.Manifests = append(index.Manifests, d)
	}
	text, marshalErr := json.Marshal(index)
	if err = errors.Join(err, marshalErr); err == nil {
		err = addFile(archive, indexFile, 0o644, int64(len(text)), bytes.NewReader(text))
	}
	return errors.Join(err, archive.Close(), f.Sync(), f.Close())
}

func addBlob(archive *tar.Writer, b blob) error {
	r, err := b.open()
	if err != nil {
		return err
	}
	defer r.Close()
	return addFile(archive, blobName(b.Digest), 0o644, b.Size, r)
}
