package unpack

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Extraction unpacks archives into one directory, which exists and is empty. It counts what it reads and, apart from
// that, what it writes: some forms of tar write much for little that is read.
type Extraction struct {
	// Sync makes a written file durable. It is (*os.File).Sync; [Extraction.Add] does not use it.
	Sync func(*os.File) error
	// syncDisk makes a tree durable.
	syncDisk func(dir string) error

	h      *host.Host
	dir    string
	bounds Bounds
	ended  func() error // why the work was called off; nil if it was not
	left   int64        // bytes that may still be unpacked
	room   int64        // bytes that may still be written
	count  int
	tree   tree
}

// New returns an extraction into the directory dir of h. It ends with ctx.
func New(ctx context.Context, h *host.Host, dir string, b Bounds) *Extraction {
	return &Extraction{
		Sync: (*os.File).Sync, syncDisk: host.SyncDisk, h: h, dir: dir, bounds: b, ended: ctx.Err, left: b.Bytes,
		room: b.Bytes, tree: newTree(),
	}
}

// Entry is what is done with an entry of an archive. Its name is clean and stays below the directory.
type Entry func(header *tar.Header, name string, content io.Reader) error

// Each calls do for every entry of a tar archive, compressed or not. A defect of the archive is an ArtifactInvalid.
func (x *Extraction) Each(r io.Reader, do Entry) error {
	return x.each(r, false, func(content io.Reader) entries { return tarEntries{tar.NewReader(content)} }, do)
}

// entries reads an archive.
type entries interface {
	next() (*tar.Header, error) // io.EOF after the last
	io.Reader                   // of the content of the last one
}

// tarEntries is the reader of a tar archive.
type tarEntries struct{ *tar.Reader }

func (t tarEntries) next() (*tar.Header, error) { return t.Next() }

// each calls do for every entry. Drained demands that the stream goes on to its proper end, which has its checksum.
func (x *Extraction) each(r io.Reader, drained bool, open func(io.Reader) entries, do Entry) error {
	content, closed, err := Decompress(r)
	defer closed()
	if err != nil {
		return x.Refusal(err)
	}
	content = bounded{content, &x.left, x.ended}
	for archive := open(content); err == nil; {
		var header *tar.Header
		header, err = archive.next()
		if errors.Is(err, io.EOF) {
			if !drained {
				return nil
			}
			if _, err = io.Copy(io.Discard, content); err == nil {
				return nil
			}
		} else if err == nil {
			err = x.entry(header, archive, do)
		}
	}
	return x.Refusal(err)
}

// entry calls do for one entry.
func (x *Extraction) entry(header *tar.Header, content io.Reader, do Entry) error {
	if err := x.Count(); err != nil {
		return err
	}
	name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "./"), "/")
	if name == "" || name == "." {
		return nil
	}
	if len(name) > NameLimit || !Local(name) || strings.Count(name, "/") >= depthLimit {
		return invalidf("it has an entry named %.200q", header.Name)
	}
	return do(header, name, content)
}

// Mark notes how much has been read. Back returns to that, for a caller that reads the same entries again.
func (x *Extraction) Mark() (back func()) {
	left, count := x.left, x.count
	return func() { x.left, x.count = left, count }
}

// Count counts one more file.
func (x *Extraction) Count() error {
	if x.count++; x.count > x.bounds.Files {
		return invalidf("it has more than %d files", x.bounds.Files)
	}
	return nil
}

// Content returns a reader of the content of a file that the caller writes, within what may still be written.
func (x *Extraction) Content(size int64, r io.Reader) (io.Reader, error) {
	if x.room < size {
		return nil, errTooLarge
	}
	return bounded{r, &x.room, x.ended}, nil
}

// Refusal is the problem for an error while an archive was unpacked.
func (x *Extraction) Refusal(err error) error {
	var p *accel.Problem
	var machine *fs.PathError
	switch {
	case x.ended() != nil:
		return x.ended()
	case errors.As(err, &p):
		return err
	case errors.As(err, &machine):
		return accel.ProblemOf(err, "cannot read it")
	}
	return invalidf("it cannot be unpacked: %v", err)
}

// Local reports whether name is a clean relative path that stays below its directory.
func Local(name string) bool {
	return filepath.IsLocal(name) && path.Clean(name) == name && name != "." && !strings.ContainsAny(name, "\x00\n")
}

// Oddity says what an entry is if it is neither a plain file nor a directory; empty if it is one of them. A sparse
// file is odd: its header alone says how much is written, whatever the archive has of it.
func Oddity(header *tar.Header) string {
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

// Write writes and syncs one file below the directory, which root alone may read, and returns its SHA-256 in
// hexadecimal.
func (x *Extraction) Write(name string, size int64, r io.Reader) (string, error) {
	to := path.Join(x.dir, name)
	if size > x.room {
		return "", errTooLarge
	}
	if err := x.h.MkdirAll(path.Dir(to), 0o700); err != nil {
		return "", WriteProblem(err, to)
	}
	return x.create(to, 0o600, r, x.Sync)
}

// create writes a file and finishes it with done.
func (x *Extraction) create(to string, mode fs.FileMode, r io.Reader, done func(*os.File) error) (string, error) {
	f, err := x.h.Create(to, mode)
	if err != nil {
		return "", WriteProblem(err, to)
	}
	sum := sha256.New()
	w := &Writing{W: f}
	_, err = io.Copy(io.MultiWriter(w, sum), bounded{r, &x.room, x.ended})
	failed := errors.Join(w.Err, done(f), f.Close())
	if failed != nil {
		return "", WriteProblem(failed, to)
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// Writing records the errors of its writer, to tell them from those of the source that is copied to it.
type Writing struct {
	W   io.Writer
	Err error
}

func (w *Writing) Write(p []byte) (int, error) {
	n, err := w.W.Write(p)
	w.Err = errors.Join(w.Err, err)
	return n, err
}

// WriteProblem is the problem for a file that cannot be written. Two entries with conflicting paths are the archive's
// fault, all else is the host's.
func WriteProblem(err error, name string) *accel.Problem {
	otherwise := accel.InternalError
	for _, conflict := range []error{
		fs.ErrExist, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ELOOP,
	} {
		if errors.Is(err, conflict) {
			otherwise = accel.ArtifactInvalid
		}
	}
	return accel.Problemf(accel.ReasonForError(err, otherwise), "cannot write %q: %v", name, err)
}

// invalidf returns an ArtifactInvalid problem.
func invalidf(format string, args ...any) error {
	return accel.Problemf(accel.ArtifactInvalid, format, args...)
}
