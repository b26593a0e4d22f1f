package artifact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/acceld/acceld/accel"
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

// decompressor detects the compression from the first bytes, as container runtimes do: gzip, zstd or none. Closed
// frees the decoder.
func decompressor(r io.Reader) (content io.Reader, closed func(), err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, _ := in.Peek(4) // a shorter stream is neither gzip nor zstd
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		return z, func() {}, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(128<<20), zstd.WithDecoderConcurrency(2))
		if err != nil {
			return nil, func() {}, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// bounded passes on as many bytes as are left and then fails. With io.LimitReader, a decompression bomb would end like
// a valid archive. It also fails once the work was called off.
type bounded struct {
	r     io.Reader
	left  *int64
	ended func() error
}

// errTooLarge is the error of a bounded reader past its limit.
var errTooLarge = errors.New("it unpacks to more than an artifact may have")

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ended(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), *b.left+1)])
	if int64(n) > *b.left {
		n, err = int(*b.left), errTooLarge
	}
	*b.left -= int64(n)
	return n, err
}

// extraction unpacks layers into an empty directory. It counts what it reads and, apart from that, what it writes:
// some forms of tar write much for little that is read.
type extraction struct {
	h      *host.Host
	dir    string
	limits Limits
	ended  func() error // why the work was called off; nil if it was not
	left   int64        // bytes that may still be unpacked
	room   int64        // bytes that may still be written
	count  int
	sync   func(*os.File) error
}

func newExtraction(ctx context.Context, h *host.Host, dir string, limits Limits) *extraction {
	return &extraction{
		h: h, dir: dir, limits: limits, ended: ctx.Err, left: limits.Unpacked, room: limits.Unpacked,
		sync: (*os.File).Sync,
	}
}

// each calls do for every entry of one layer, whose digest was verified. A defect of the layer is an ArtifactInvalid.
func (x *extraction) each(r io.Reader, do func(*tar.Header, string, io.Reader) error) error {
	content, closed, err := decompressor(r)
	defer closed()
	for archive := tar.NewReader(bounded{content, &x.left, x.ended}); err == nil; {
		var header *tar.Header
		if header, err = archive.Next(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = x.entry(header, archive, do)
		}
	}
	return x.refusal(err)
}

// nameLimit is the length of the longest name of an entry, as of a path in Linux (PATH_MAX).
const nameLimit = 4096

// entry calls do for one entry.
func (x *extraction) entry(header *tar.Header, content io.Reader,
	do func(*tar.Header, string, io.Reader) error,
) error {
	if x.count++; x.count > x.limits.Files {
		return invalidf("its layer has more than %d files", x.limits.Files)
	}
	name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "./"), "/")
	if name == "" || name == "." {
		return nil
	}
	if len(name) > nameLimit || !local(name) {
		return invalidf("its layer has an entry named %.200q", header.Name)
	}
	return do(header, name, content)
}

// refusal is the problem for an error while a layer was unpacked.
func (x *extraction) refusal(err error) error {
	var p *accel.Problem
	var machine *fs.PathError
	switch {
	case x.ended() != nil:
		return x.ended()
	case errors.As(err, &p):
		return err
	case errors.As(err, &machine):
		return accel.ProblemOf(err, "cannot read its layer")
	}
	return invalidf("its layer cannot be unpacked: %v", err)
}

// oddity says what an entry is if it is neither a plain file nor a directory; empty if it is one of them. A sparse
// file is odd: its header alone says how much is written, whatever the archive has of it.
func oddity(header *tar.Header) string {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return "a sparse file"
		}
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeDir:
		return ""
	case tar.TypeGNUSparse:
		return "a sparse file"
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device node"
	case tar.TypeFifo:
		return "a named pipe"
	}
	return fmt.Sprintf("an entry of type %q", header.Typeflag)
}

// write writes and syncs one file below the directory, and returns its digest.
func (x *extraction) write(name string, size int64, r io.Reader) (string, error) {
	if size > x.room {
		return "", errTooLarge
	}
	to := path.Join(x.dir, name)
	if err := x.h.MkdirAll(path.Dir(to), 0o700); err != nil {
		return "", writeProblem(err, to)
	}
	f, err := x.h.Create(to, 0o600)
	if err != nil {
		return "", writeProblem(err, to)
	}
	sum := sha256.New()
	w := &writing{w: f}
	_, err = io.Copy(io.MultiWriter(w, sum), bounded{r, &x.room, x.ended})
	failed := errors.Join(w.err, x.sync(f), f.Close())
	if failed != nil {
		return "", writeProblem(failed, to)
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// writing records the errors of its writer, to tell them from those of the source that is copied to it.
type writing struct {
	w   io.Writer
	err error
}

func (w *writing) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = errors.Join(w.err, err)
	return n, err
}

func writeProblem(err error, name string) *accel.Problem {
	otherwise := accel.InternalError
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		otherwise = accel.ArtifactInvalid // two entries with conflicting paths
	}
	return accel.Problemf(accel.ReasonForError(err, otherwise), "cannot write %q: %v", name, err)
}

// native unpacks the only layer of an artifact. It must contain exactly the files that the configuration names, with
// their digests.
func (x *extraction) native(r io.Reader, c Config) error {
	want := c.files()
	err := x.each(r, func(header *tar.Header, name string, content io.Reader) error {
		if odd := oddity(header); odd != "" {
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
		got, err := x.write(name, header.Size, content)
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
	return err
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
