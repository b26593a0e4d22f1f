package driver

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

// image is one module file, open and uncompressed: the very bytes that are judged are those that the kernel gets.
type image struct {
	*moduleFile
	path string // as the machine sees it
	file *os.File
}

func (i *image) close() {
	if i != nil && i.file != nil {
		_ = i.file.Close() // it was only read
	}
}

// moduleBase returns a module's name from the name of its file; ok is false for other files.
func moduleBase(file string) (name string, ok bool) {
	base := path.Base(file)
	for _, suffix := range []string{"", ".xz", ".zst", ".gz"} {
		if n, found := strings.CutSuffix(base, ".ko"+suffix); found {
			return normal(n), true
		}
	}
	return "", false
}

// openImage opens and reads a module file. Compressed ones are unpacked into memory: few kernels can do it themselves.
func openImage(h *host.Host, name string) (*image, *accel.Problem) {
	f, err := h.Open(name)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot open module %q", name)
	}
	if !strings.HasSuffix(name, ".ko") {
		packed := f
		f, err = h.MemoryFile(path.Base(name), func(w io.Writer) error { return unpack(w, packed, name, moduleLimit) })
		_ = packed.Close() // it was only read
		if err != nil {
			return nil, accel.Problemf(accel.ReasonForError(err, accel.ModuleInvalid), "cannot unpack module %q: %v", name, err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close() // it was only read
		return nil, accel.ProblemOf(err, "cannot read module %q", name)
	}
	m, problem := readModule(f, st.Size())
	if problem != nil {
		_ = f.Close() // it was only read
		problem.Message = fmt.Sprintf("module file %q: %s", name, problem.Message)
		return nil, problem
	}
	return &image{moduleFile: m, path: name, file: f}, nil
}

// unpack writes the uncompressed content of r to w, at most limit bytes, by the suffix of name.
func unpack(w io.Writer, r io.Reader, name string, limit int64) error {
	var content io.Reader
	var err error
	switch path.Ext(name) {
	case ".xz":
		content, err = xz.ReaderConfig{DictCap: lzma.MinDictCap}.NewReader(r) // the least: the file says how much it needs
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
