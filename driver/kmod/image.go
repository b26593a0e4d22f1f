package kmod

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// moduleLimit is the size of the largest uncompressed module that is read. The largest known module has 130 MB with
// debug information.
const moduleLimit = 512 << 20

// Image is one module file, open and uncompressed: exactly the bytes that are judged are given to the kernel.
type Image struct {
	*Info
	Path    string // as a path on the host
	Content *os.File
}

// Close closes the file; a nil image is allowed.
func (i *Image) Close() {
	if i != nil {
		_ = i.Content.Close() // it was only read
	}
}

// NameOf returns a module's name from its file name; ok is false if the file is not a module.
func NameOf(file string) (name string, ok bool) {
	base := path.Base(file)
	for _, suffix := range []string{"", ".xz", ".zst", ".gz"} {
		if n, found := strings.CutSuffix(base, ".ko"+suffix); found {
			return Normal(n), true
		}
	}
	return "", false
}

// Open opens and reads a module file. Compressed files are unpacked into memory: few kernels can do that themselves.
func Open(h *host.Host, name string) (*Image, *accel.Problem) {
	f, err := h.Open(name)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot open module %q", name)
	}
	if !strings.HasSuffix(name, ".ko") {
		packed := f
		f, err = host.MemoryFile(path.Base(name), func(w io.Writer) error {
			return Unpack(w, packed, name, moduleLimit)
		})
		_ = packed.Close() // it was only read
		if err != nil {
			return nil, accel.Problemf(accel.ReasonForError(err, accel.ModuleInvalid), "cannot unpack module %q: %v",
				name, err)
		}
	}
	i := &Image{Path: name, Content: f}
	st, err := f.Stat()
	if err != nil {
		i.Close()
		return nil, accel.ProblemOf(err, "cannot read module %q", name)
	}
	var problem *accel.Problem
	if i.Info, problem = Read(f, st.Size()); problem != nil {
		i.Close()
		problem.Message = fmt.Sprintf("module file %q: %s", name, problem.Message)
		return nil, problem
	}
	return i, nil
}

// Unpack writes the uncompressed content of r to w, at most limit bytes. The suffix of name selects the format.
func Unpack(w io.Writer, r io.Reader, name string, limit int64) error {
	var content io.Reader
	var err error
	switch path.Ext(name) {
	case ".xz":
		// Only the minimum: the file states the dictionary size it needs.
		content, err = xz.ReaderConfig{DictCap: lzma.MinDictCap}.NewReader(r)
	case ".zst":
		var z *zstd.Decoder
		z, err = zstd.NewReader(r, zstd.WithDecoderMaxMemory(128<<20), zstd.WithDecoderConcurrency(1))
		if err == nil {
			defer z.Close()
		}
		content = z
	case ".gz":
		content, err = gzip.NewReader(r)
	default:
		return fmt.Errorf("no way to unpack %q", path.Ext(name))
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(content, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return err
}
