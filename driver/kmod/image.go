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

// moduleLimit is the largest module that is read, uncompressed. The largest known one has 130 MB with debug
// information.
const moduleLimit = 512 << 20

// Image is one module file, open and uncompressed: the very bytes that are judged are those that the kernel gets.
type Image struct {
	*Info
	Path    string // as the machine sees it
	Content *os.File
}

// Close closes the file; a nil image has none.
func (i *Image) Close() {
	if i != nil && i.Content != nil {
		_ = i.Content.Close() // it was only read
	}
}

// NameOf returns a module's name from the name of its file; ok is false for other files.
func NameOf(file string) (name string, ok bool) {
	base := path.Base(file)
	for _, suffix := range []string{"", ".xz", ".zst", ".gz"} {
		if n, found := strings.CutSuffix(base, ".ko"+suffix); found {
			return Normal(n), true
		}
	}
	return "", false
}

// Open opens and reads a module file. Compressed ones are unpacked into memory: few kernels can do it themselves.
func Open(h *host.Host, name string) (*Image, *accel.Problem) {
	f, err := h.Open(name)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot open module %q", name)
	}
	if !strings.HasSuffix(name, ".ko") {
		packed := f
		f, err = h.MemoryFile(path.Base(name), func(w io.Writer) error { return Unpack(w, packed, name, moduleLimit) })
		_ = packed.Close() // it was only read
		if err != nil {
			return nil, accel.Problemf(accel.ReasonForError(err, accel.ModuleInvalid), "cannot unpack module %q: %v",
				name, err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close() // it was only read
		return nil, accel.ProblemOf(err, "cannot read module %q", name)
	}
	m, problem := Read(f, st.Size())
	if problem != nil {
		_ = f.Close() // it was only read
		problem.Message = fmt.Sprintf("module file %q: %s", name, problem.Message)
		return nil, problem
	}
	return &Image{Info: m, Path: name, Content: f}, nil
}

// Unpack writes the uncompressed content of r to w, at most limit bytes, by the suffix of name.
func Unpack(w io.Writer, r io.Reader, name string, limit int64) error {
	var content io.Reader
	var err error
	switch path.Ext(name) {
	case ".xz":
		// the least: the file says how much it needs
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
