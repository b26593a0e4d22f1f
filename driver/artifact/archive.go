package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/host"
)

// Limits bound what one artifact may make this host read, hold and write. They are far above the largest known driver
// (an accelerator's open kernel modules and firmware: 95 MB with debug information) and far below what harms a host.
type Limits struct {
	Manifest int64 // bytes of a manifest, a configuration or a signature
	Packed   int64 // compressed bytes of all layers
	Unpacked int64 // uncompressed bytes of all layers
	Files    int
	Layers   int
}

func defaultLimits() Limits {
	return Limits{Manifest: 4 << 20, Packed: 1 << 30, Unpacked: 4 << 30, Files: 10_000, Layers: 128}
}

// extraction unpacks layers into an empty directory.
type extraction struct {
	*unpack.Extraction
	h   *host.Host
	dir string
}

func newExtraction(ctx context.Context, h *host.Host, dir string, limits Limits) *extraction {
	return &extraction{
		unpack.New(ctx, h, dir, unpack.Bounds{Bytes: limits.Unpacked, Files: limits.Files}), h, dir,
	}
}

// native unpacks the only layer of an artifact. It must contain exactly the files that the configuration names, with
// their digests.
func (x *extraction) native(r io.Reader, c Config) error {
	want := c.files()
	err := x.Each(r, func(header *tar.Header, name string, content io.Reader) error {
		if odd := unpack.Oddity(header); odd != "" {
			return invalidf("its layer has %q, which is %s", name, odd)
		}
		if header.Typeflag == tar.TypeDir {
			return nil // directories are created when a file needs them
		}
		digest, known := want[name]
		if !known {
			return invalidf("its layer has the file %q, which its configuration does not name or has twice", name)
		}
		delete(want, name)
		got, err := x.Write(name, header.Size, content)
		if err != nil {
			return err
		}
		if got != digest {
			return accel.Problemf(accel.DigestMismatch, "its file %q has SHA-256 %s, its configuration says %s", name,
				got, digest)
		}
		return nil
	})
	if err == nil && len(want) > 0 {
		err = invalidf("its layer lacks the file %q", slices.Sorted(maps.Keys(want))[0])
	}
	for _, f := range c.UserSpace {
		if err == nil && f.Link != "" {
			err = x.link(f.Path, f.Link)
		}
	}
	return err
}

// link makes a symbolic link below "root", once all files are in place.
func (x *extraction) link(name, text string) error {
	to := path.Join(x.dir, rootDir, name)
	if err := errors.Join(x.h.MkdirAll(path.Dir(to), 0o700), x.h.Symlink(text, to)); err != nil {
		return unpack.WriteProblem(err, to)
	}
	return nil
}

// pack writes the layer of an artifact; the same files always yield the same bytes. The paths map says where to read
// each file.
func pack(w io.Writer, h *host.Host, names []string, paths map[string]string) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return err
	}
	archive := tar.NewWriter(z)
	for _, name := range names {
		if err := packFile(archive, h, name, paths[name]); err != nil {
			return fmt.Errorf("cannot pack %q: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), z.Close())
}

func packFile(archive *tar.Writer, h *host.Host, name, from string) error {
	f, err := h.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return addFile(archive, name, 0o600, st.Size(), io.LimitReader(f, st.Size()))
}

// addFile adds a file to an archive. It has no owner and no time: the same content always yields the same bytes.
func addFile(archive *tar.Writer, name string, mode, size int64, r io.Reader) error {
	if err := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, Format: tar.FormatPAX,
	}); err != nil {
		return err
	}
	_, err := io.Copy(archive, r)
	return err
}
